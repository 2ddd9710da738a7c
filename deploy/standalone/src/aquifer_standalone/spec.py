"""What a supervised process is: its command, its environment and when it counts as ready."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from aquifer_standalone.ports import LoopbackPort
from aquifer_standalone.unprivileged import UnprivilegedUser

Readiness: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks once, with its own short deadline; False or an exception means not yet."""

Preparation: TypeAlias = Callable[[], Awaitable[None]]
"""Runs before each start, crash restarts included; idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Back-off between restarts: doubles from `initial_s` to `max_s`, starts anew after `reset_after_s` of life."""

    initial_s: float = 0.2
    max_s: float = 10.0
    reset_after_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One child process of the supervisor.

    `argv[0]` is an absolute path. `env` is added to the inherited environment. `ports` are released right before each
    start. `depends_on` names the processes that must be ready first and are stopped later.
    """

    name: str
    argv: tuple[str, ...]
    readiness: Readiness
    depends_on: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    prepare: Preparation | None = None
    ports: tuple[LoopbackPort, ...] = ()
    run_as: UnprivilegedUser | None = None
    restart: RestartPolicy = RestartPolicy()
    ready_timeout_s: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 10.0
