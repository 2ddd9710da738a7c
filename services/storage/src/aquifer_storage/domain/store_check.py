"""Checks of a store: does it do what segments need, and is what it lacks something that the service can do without?"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import uuid4

from aquifer_core.errors import AquiferError
from aquifer_core.ports import Clock

from aquifer_storage.domain.ports import ObjectStore, TestedStore

FOLDER: Final = ".aquifer-check/"
"""Objects of checks lie here, after the store's prefix."""

_DEADLINE_S: Final = 60.0
_LEFTOVER_MS: Final = 3_600_000


class Outcome(StrEnum):
    """What a check has found."""

    OK = "ok"
    DEGRADED = "degraded"
    """The service works without it, at a price that the text names."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check. `number` counts from 1 up to `total`; with a store that cannot be reached the others are left out."""

    name: str
    outcome: Outcome
    message: str
    duration_ms: int
    number: int
    total: int


class UnmetError(Exception):
    """The store does not do what is needed; the text says what it does instead."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a check works.

    Attributes:
        objects: the store.
        tested: the same store, as only a check asks it.
        clock: ours.
        all_checks: begin of the keys of all checks, those of others and of before included.
        folder: begin of the keys that this check may use.
    """

    objects: ObjectStore
    tested: TestedStore
    clock: Clock
    all_checks: str
    folder: str

    def key(self, name: str) -> str:
        """A key of this check."""
        return self.folder + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that is asked of a store.

    Attributes:
        name: for people and programs.
        run: returns what was found, or raises `UnmetError`.
        without: what it means to be without; none: the store cannot be used.
    """

    name: str
    run: Callable[[Bench], Awaitable[str]]
    without: str | None = None


class StoreCheck:
    """Runs checks one after the other and deletes what they wrote."""

    def __init__(
        self,
        objects: ObjectStore,
        tested: TestedStore,
        checks: Sequence[Check],
        *,
        clock: Clock,
        key_prefix: str = "",
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._objects = objects
        self._tested = tested
        self._checks = checks
        self._clock = clock
        self._prefix = key_prefix + FOLDER
        self._deadline_s = deadline_s

    async def run(self) -> AsyncGenerator[CheckResult, None]:
        """Check; a store that fails is a result, not an error. May run beside others and beside all other work."""
        run = f"{self._prefix}{self._clock.now_ms()}-{uuid4().hex}/"
        total = len(self._checks) + 2
        reached = await self._check(Check(name="reachable", run=_reachable), run, 1, total)
        yield reached
        if reached.outcome is not Outcome.OK:
            return
        is_over = False
        try:
            for number, check in enumerate(self._checks, start=2):
                yield await self._check(check, f"{run}{check.name}/", number, total)
            is_over = True
        finally:
            if not is_over:
                await self._check(_CLEAN_UP, run, total, total)
        yield await self._check(_CLEAN_UP, run, total, total)

    async def _check(self, check: Check, folder: str, number: int, total: int) -> CheckResult:
        bench = Bench(self._objects, self._tested, self._clock, self._prefix, folder)
        began_s = self._clock.monotonic_s()
        outcome = Outcome.OK
        try:
            async with asyncio.timeout(self._deadline_s):
                message = await check.run(bench)
        except TimeoutError:
            message = f"not done in {self._deadline_s:.0f} s"
            outcome = Outcome.FAILED
        except Exception as error:  # whatever a store does is a result
            message = _text(error)
            outcome = Outcome.FAILED if check.without is None else Outcome.DEGRADED
        if outcome is Outcome.DEGRADED:
            message = f"{message}; {check.without}"
        return CheckResult(
            name=check.name,
            outcome=outcome,
            message=message,
            duration_ms=int((self._clock.monotonic_s() - began_s) * 1000),
            number=number,
            total=total,
        )


def _text(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, UnmetError | AquiferError) else repr(error)


async def _reachable(bench: Bench) -> str:
    await bench.objects.check()
    return "the store answers and takes the credentials"


async def _clean_up(bench: Bench) -> str:
    """Delete the objects of this run, and of runs that ended without doing so."""
    oldest_ms = bench.clock.now_ms() - _LEFTOVER_MS
    found = [
        listed.key
        async for listed in bench.objects.list_objects(bench.all_checks)
        if listed.key.startswith(bench.folder)
        or _begun_ms(listed.key.removeprefix(bench.all_checks)) < oldest_ms
    ]
    await bench.objects.delete(found)
    return "nothing of the checks is left"


def _begun_ms(run: str) -> int:
    number = run.partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62


_CLEAN_UP: Final = Check(name="clean-up", run=_clean_up)
