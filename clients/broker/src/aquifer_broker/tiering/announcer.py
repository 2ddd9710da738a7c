"""Tells the manager what this broker hosts, in a loop of its own: nothing on the way of a record waits for it (SR-36)."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
from aquifer_core.errors import ErrorReason, RemoteResourceNotFoundError
from aquifer_core.ids import TopicIdPartition
from aquifer_rpc.supervised import SupervisedLoop

from aquifer_broker.tiering.announcement import difference
from aquifer_broker.tiering.manager_client import ManagerClient, PartitionRole, Registration

__all__ = ["Announcer"]

logger = structlog.get_logger(__name__)

_INTERVAL_S: Final = 1.0
_BACKOFF_MAX_S: Final = 5.0
_ROLES_A_CALL: Final = 500
# The manager answers a deletion when metadata knows of it, partition by partition.
_DELETIONS_A_CALL: Final = 50
# Changes are announced when they happen; now and then everything is compared, in case one was missed.
_COMPARE_INTERVAL_S: Final = 30.0
_TRIES: Final = 3


class Announcer:
    """Keeps the manager's view of this broker equal to what is hosted.

    Every run compares the two and sends the difference, so that whatever was lost (a message, the manager's memory) is made up
    for. Enter `loop` to run it.
    """

    def __init__(
        self,
        manager: ManagerClient,
        *,
        broker_log_address: Callable[[], str],
        hosted: Callable[[], Iterable[PartitionRole]],
        delete_when_stopped: Callable[[PartitionRole], bool],
    ) -> None:
        """Prepares.

        Args:
            manager: Where to announce.
            broker_log_address: `host:port` of this broker's BrokerLogService, asked for when registering.
            hosted: The tiered partitions of this broker at the moment.
            delete_when_stopped: Whether the remote data of an announced partition goes with it, because its tiering ended
                (`remote.log.delete.on.disable`).
        """
        self._manager = manager
        self._broker_log_address = broker_log_address
        self._hosted = hosted
        self._delete_when_stopped = delete_when_stopped
        self._registration: Registration | None = None
        self._announced: dict[TopicIdPartition, PartitionRole] = {}
        self._rolled: set[TopicIdPartition] = set()
        self._deletions: set[TopicIdPartition] = set()
        self._log_starts: dict[TopicIdPartition, tuple[int, int]] = {}
        self._heartbeat_due_s = 0.0
        self._compare_due_s = 0.0
        self.loop = SupervisedLoop(
            "manager announcements",
            self.run_once,
            interval_s=_INTERVAL_S,
            backoff_max_s=_BACKOFF_MAX_S,
        )

    @property
    def registered(self) -> bool:
        """Whether the manager knew this broker last time."""
        return self._registration is not None

    def changed(self) -> None:
        """What is hosted may have changed: look soon."""
        self._compare_due_s = 0.0
        self.loop.wake()

    def rolled(self, topic_id_partition: TopicIdPartition) -> None:
        """A segment was rolled: its partition becomes due with the next heartbeat, which comes now.

        What is not announced yet is due as soon as it is.
        """
        if topic_id_partition in self._announced:
            self._rolled.add(topic_id_partition)
            self.loop.wake()

    def delete_remote(self, topic_id_partition: TopicIdPartition) -> None:
        """The topic was deleted: its remote data is to go."""
        self._deletions.add(topic_id_partition)
        self.changed()

    def log_start_raised(
        self, topic_id_partition: TopicIdPartition, leader_epoch: int, log_start_offset: int
    ) -> None:
        """The log start was raised: the manager cleans up below it."""
        self._log_starts[topic_id_partition] = (leader_epoch, log_start_offset)
        self.loop.wake()

    async def run_once(self) -> None:
        """Registers if need be and sends everything that the manager does not know.

        Raises:
            AquiferError: The manager did not answer or refused; what was not sent is sent by the next run.
        """
        for _ in range(_TRIES):
            try:
                await self._register()
                await self._heartbeat()
                await self._announce()
                await self._raise_log_starts()
            except RemoteResourceNotFoundError as error:
                if error.reason is not ErrorReason.BROKER_NOT_FOUND:
                    raise
                logger.info("manager_forgot_broker", error=error.message)
                self._registration = None
            else:
                return

    async def _register(self) -> None:
        if self._registration is not None:
            return
        registration = await self._manager.register(self._broker_log_address())
        # A manager without a memory of this broker has to be told everything; one with it does not mind.
        self._announced.clear()
        self._compare_due_s = 0.0
        self._registration = registration
        self._heartbeat_due_s = _due_s(registration.lease_ms)
        logger.info(
            "registered_with_manager",
            manager=registration.manager_incarnation,
            lease_ms=registration.lease_ms,
        )

    async def _announce(self) -> None:
        if time.monotonic() < self._compare_due_s:
            return
        # Set first: a change while the calls below are under way asks for another look.
        self._compare_due_s = time.monotonic() + _COMPARE_INTERVAL_S
        try:
            await self._send_news()
        except BaseException:
            self._compare_due_s = 0.0
            raise

    async def _send_news(self) -> None:
        news = difference(self._hosted(), self._announced)
        await self._stop(news.stopped)
        for start in range(0, len(news.roles), _ROLES_A_CALL):
            roles = news.roles[start : start + _ROLES_A_CALL]
            await self._manager.announce(roles)
            self._note(roles)
        if news.configs:
            await self._manager.change_configs(dict(news.configs))
            self._note(news.configured)
        # Last: it fails as long as metadata is away, and nothing else is to wait for that.
        await self._delete()

    def _note(self, roles: Sequence[PartitionRole]) -> None:
        """These were told, as they were when they were looked at: what changed meanwhile is told next."""
        self._announced |= {role.topic_id_partition: role for role in roles}

    async def _stop(self, gone: Sequence[PartitionRole]) -> None:
        self._deletions |= {
            role.topic_id_partition for role in gone if self._delete_when_stopped(role)
        }
        stopped = [role.topic_id_partition for role in gone]
        # A deletion that is asked for while a mere stop is on its way is still to be told.
        rest = [tip for tip in stopped if tip not in self._deletions]
        for start in range(0, len(rest), _ROLES_A_CALL):
            await self._stop_some(rest[start : start + _ROLES_A_CALL], delete_remote=False)

    async def _delete(self) -> None:
        hosted = {role.topic_id_partition for role in self._hosted()}
        deletions = sorted(self._deletions - hosted)
        for start in range(0, len(deletions), _DELETIONS_A_CALL):
            some = deletions[start : start + _DELETIONS_A_CALL]
            await self._stop_some(some, delete_remote=True)
            self._deletions -= set(some)

    async def _stop_some(self, some: Sequence[TopicIdPartition], *, delete_remote: bool) -> None:
        await self._manager.stop(some, delete_remote=delete_remote)
        for tip in some:
            self._announced.pop(tip, None)

    async def _raise_log_starts(self) -> None:
        for tip, (leader_epoch, offset) in list(self._log_starts.items()):
            await self._manager.delete_records(tip, leader_epoch, offset)
            if self._log_starts.get(tip) == (leader_epoch, offset):
                del self._log_starts[tip]

    async def _heartbeat(self) -> None:
        if not self._rolled and time.monotonic() < self._heartbeat_due_s:
            return
        # What is rolled during the call is told by the next one.
        rolled, self._rolled = self._rolled, set()
        try:
            lease_ms = await self._manager.heartbeat(rolled)
        except BaseException:
            self._rolled |= rolled
            raise
        self._heartbeat_due_s = _due_s(lease_ms)


def _due_s(lease_ms: int) -> float:
    return time.monotonic() + lease_ms / 3000
