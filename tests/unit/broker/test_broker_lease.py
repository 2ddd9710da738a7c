"""A broker keeps its lease, takes another when it has lost it, and stops when somebody else has its id."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aquifer_broker.cluster.metadata_link import BrokerLease
from aquifer_broker.cluster.ports import Lease
from aquifer_broker.cluster.view import BrokerInfo
from aquifer_core.errors import DeadlineExceededError
from fixtures.cluster_metadata import InMemoryClusterMetadata
from fixtures.polling import eventually

BROKER = BrokerInfo(broker_id=1, incarnation="i")


class ForgetfulMetadata(InMemoryClusterMetadata):
    """Answers to registrations may be lost after they are done; repeats of one that lives are answered as the first."""

    def __init__(self) -> None:
        super().__init__(lease_ms=30)
        self.lost_answers = 0
        self.answers_to_lose = 0

    async def register_broker(self, broker: BrokerInfo) -> Lease:
        known = self.brokers.get(broker.broker_id)
        if known is not None and known.alive and known.incarnation == broker.incarnation:
            return Lease(
                cluster_id=self.cluster_id, broker_epoch=known.broker_epoch, lease_ms=self._lease_ms
            )
        lease = await super().register_broker(broker)
        if self.lost_answers < self.answers_to_lose:
            self.lost_answers += 1
            raise DeadlineExceededError("no answer in time")
        return lease


@dataclass
class Told:
    """What the lease has told."""

    epochs: list[int] = field(default_factory=list)
    superseded: int = 0

    def stop(self) -> None:
        self.superseded += 1


@asynccontextmanager
async def leased(metadata: InMemoryClusterMetadata) -> AsyncIterator[Told]:
    """A broker with a lease."""
    told = Told()
    async with BrokerLease(
        metadata, BROKER, on_registered=told.epochs.append, on_superseded=told.stop
    ):
        yield told


async def test_a_lost_lease_is_taken_again_under_a_new_epoch() -> None:
    metadata = ForgetfulMetadata()
    async with leased(metadata) as told:
        await metadata.expire(1)
        await eventually(lambda: len(told.epochs) == 2)
        assert told.epochs[1] == metadata.brokers[1].broker_epoch > told.epochs[0]
    assert not told.superseded
    assert not metadata.brokers[1].alive


async def test_a_broker_is_not_superseded_by_its_own_registration_whose_answer_was_lost() -> None:
    """It was told that another has its id, and ended."""
    metadata = ForgetfulMetadata()
    async with leased(metadata) as told:
        metadata.answers_to_lose = 1
        await metadata.expire(1)
        await eventually(lambda: told.superseded or len(told.epochs) == 2)
        assert not told.superseded
        assert told.epochs[1] == metadata.brokers[1].broker_epoch
    assert metadata.lost_answers == 1


async def test_a_broker_whose_id_another_takes_is_told_so() -> None:
    metadata = ForgetfulMetadata()
    async with leased(metadata) as told:
        await metadata.register_broker(BrokerInfo(broker_id=1, incarnation="another"))
        await eventually(lambda: told.superseded)
        assert len(told.epochs) == 1
