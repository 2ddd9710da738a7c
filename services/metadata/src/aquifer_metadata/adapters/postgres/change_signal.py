"""Wakes watchers when something changed: at once in this process, by NOTIFY in the others.

A hint only: whoever waits also polls, or is polled for together with others (`watch_poll`), so that a lost notification costs time
and nothing else. Notifications are sent after the commit, gathered for a moment, twenty a second at most, and from a connection of
their own, because a transaction that notifies takes a lock that every other one of the database waits for at its commit.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

import psycopg
import structlog
from aquifer_core.errors import ErrorReason, RemoteStorageUnavailableError
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc.supervised import SupervisedLoop
from psycopg import sql

from aquifer_metadata.adapters.postgres.database import Database, connect_arguments

logger = structlog.get_logger(__name__)

CLUSTER = "cluster"
"""Key of changes of the cluster metadata."""

_CHANNEL = "aquifer_metadata_change"
_MAX_PAYLOAD_BYTES = 7900
_ANY = "*"


def partition_signal(tip: TopicIdPartition) -> str:
    """Key of changes of a partition's remote segments."""
    return f"{tip.topic_id}:{tip.partition}"


class ChangeSignal:
    """Carries hints about changes between the replicas of the service."""

    def __init__(
        self, database: Database, *, gather_s: float = 0.005, pause_s: float = 0.05
    ) -> None:
        """Prepares.

        Args:
            database: whose notifications are used.
            gather_s: for so long changes are gathered into a notification.
            pause_s: between notifications, or each change of a busy time would have one.
        """
        self._database = database
        self._gather_s = gather_s
        self._pause_s = pause_s
        self._sent_s = float("-inf")
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._polled: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._poll: SupervisedLoop | None = None
        self._unsent: set[str] = set()
        self._sender = SupervisedLoop("change sender", self._send, interval_s=1.0)
        self._listener = SupervisedLoop(
            "change listener", self._listen, interval_s=0.1, backoff_max_s=2.0
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._sender)
        await self._stack.enter_async_context(self._listener)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def changed(self, key: str) -> None:
        """Says that a change of `key` was committed."""
        self._wake([key])
        self._unsent.add(key)
        self._sender.wake()

    def subscribe(self, key: str, *, polled: bool = False) -> "Subscription":
        """Begins to collect changes of a key; a context manager.

        Args:
            key: what changes.
            polled: when nobody knows what changed, the poll finds out whether this did.
        """
        return Subscription(self._polled if polled else self._waiting, key)

    async def poll_with(self, loop: SupervisedLoop) -> None:
        """Runs the poll from now on until this is closed; idempotent. It runs at once when notifications were lost."""
        if self._poll is None:
            self._poll = loop
            await self._stack.enter_async_context(loop)

    def wake(self, key: str) -> None:
        """Wakes those of this process who wait for a key."""
        self._wake([key])

    def _wake(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key == _ANY:
                self._wake_everybody()
            for waiting in (self._waiting, self._polled):
                for event in waiting.get(key, ()):
                    event.set()

    def _wake_everybody(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()
        if self._poll is not None:
            self._poll.wake()

    async def _send(self) -> None:
        if not self._unsent:
            return
        await asyncio.sleep(max(self._gather_s, self._sent_s + self._pause_s - time.monotonic()))
        keys, self._unsent = self._unsent, set()
        payload = " ".join(sorted(keys))
        if len(payload.encode()) > _MAX_PAYLOAD_BYTES:
            payload = _ANY
        self._sent_s = time.monotonic()
        await self._database.notify(_CHANNEL, payload)

    async def _listen(self) -> None:
        try:
            await self._follow_notifications()
        except psycopg.OperationalError as error:
            raise RemoteStorageUnavailableError(
                f"the database does not answer: {error}", reason=ErrorReason.DATABASE_UNAVAILABLE
            ) from error

    async def _follow_notifications(self) -> None:
        async with await self._connected() as connection:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_CHANNEL)))
            # Whatever was sent while nobody listened is lost.
            self._wake([_ANY])
            async for notification in connection.notifies():
                self._wake(notification.payload.split())

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        options = self._database.options
        try:
            return await psycopg.AsyncConnection.connect(
                options.dsn, autocommit=True, **connect_arguments(options)
            )
        except asyncio.CancelledError as cancelled:
            # Frames in a traceback would keep the socket open, and the server waiting for an answer, until they are collected.
            raise cancelled.with_traceback(None) from None


class Subscription:
    """Remembers a change until it is waited for."""

    def __init__(self, waiting: dict[str, set[asyncio.Event]], key: str) -> None:
        self._waiting = waiting
        self._key = key
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._waiting[self._key].add(self._event)
        return self

    def __exit__(self, *exc_info: object) -> None:
        events = self._waiting[self._key]
        events.discard(self._event)
        if not events:
            del self._waiting[self._key]

    async def wait(self, at_most_s: float | None = None) -> None:
        """Returns after a change since the last wait, or when the time is over; None: it never is, somebody polls."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()
