"""Which groups this broker coordinates, and since when without a gap."""

from collections.abc import Callable, Collection
from typing import Final

from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import Coordination
from aquifer_broker.cluster.view import BrokerInfo, ClusterChange, ClusterView
from aquifer_broker.coordination.placement import coordinator_of

__all__ = ["GroupPlacement", "GroupRefusedError", "Moved"]

Moved = Callable[[str], bool]
"""Whether a group has, or may have had, another coordinator since it was last asked for here."""


class GroupRefusedError(Exception):
    """This broker does not serve the group."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"the group is not served here: {code.name}")
        self.kafka_error_code: Final = code


class GroupPlacement:
    """Groups by rendezvous hash over the live brokers that this one knows.

    The view may skip what came and went: a broker that coordinated for a moment, or that this one had lost its own lease. Both have a
    registration that is newer than those known before, and what is kept here of their groups is worth nothing then.
    """

    def __init__(self, *, node_id: int, view: ClusterView) -> None:
        self._node_id = node_id
        self._view = view
        self._broker_epoch = 0
        self._newest_epoch = 0
        self._listeners: list[Callable[[Moved], None]] = []
        view.on_change(self._brokers_changed)

    def on_moved(self, listener: Callable[[Moved], None]) -> None:
        """Calls the listener when groups may have moved."""
        self._listeners.append(listener)

    def registered_as(self, broker_epoch: int) -> None:
        """This broker has a new lease: between that and the one before anybody may have coordinated its groups."""
        self._broker_epoch = broker_epoch
        self._tell(lambda _: True)

    def coordinator(self, group_id: str) -> BrokerInfo | None:
        """The broker that coordinates a group; None: no live broker is known."""
        alive = {broker.broker_id: broker for broker in self._view.live_brokers()}
        broker_id = coordinator_of(group_id, alive)
        return alive[broker_id] if broker_id is not None else None

    def refusal(self, group_id: str) -> ErrorCode:
        """Why this broker cannot serve a group; NONE: it can."""
        if group_id == "":
            return ErrorCode.invalid_group_id
        broker = self.coordinator(group_id)
        if broker is None:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none if broker.broker_id == self._node_id else ErrorCode.not_coordinator

    def coordination(self, group_id: str) -> Coordination:
        """What a write goes with that is decided now, before anything else happens.

        Raises:
            GroupRefusedError: this broker does not coordinate the group.
        """
        refusal = self.refusal(group_id)
        if refusal is not ErrorCode.none:
            raise GroupRefusedError(refusal)
        return Coordination(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch,
            cluster_version=self._view.version,
        )

    def _brokers_changed(self, change: ClusterChange) -> None:
        if not change.brokers_changed:
            return
        candidates = {
            broker.broker_id
            for broker in self._view.brokers.values()
            if broker.alive or broker.broker_epoch > self._newest_epoch
        }
        self._newest_epoch = max(
            (broker.broker_epoch for broker in self._view.brokers.values()), default=0
        )
        self._tell(lambda group_id: not self._stayed(group_id, candidates))

    def _stayed(self, group_id: str, candidates: Collection[int]) -> bool:
        stays = coordinator_of(group_id, candidates) == self._node_id
        return stays and self.refusal(group_id) is ErrorCode.none

    def _tell(self, moved: Moved) -> None:
        for listener in tuple(self._listeners):
            listener(moved)
