"""The topic of failed deletions, written with a Kafka producer (SR-35)."""

from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.errors import TopicAlreadyExistsError  # type: ignore[import-untyped]

__all__ = ["KafkaFailureTopic"]

_CLIENT_ID: Final = "aquifer-manager"
_TIMEOUT_MS: Final = 10_000


class KafkaFailureTopic:
    """Writes to a compacted topic, which it makes when it is missing; implements `FailureTopic`.

    Connects with the first record, so that a manager starts without brokers.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._producer: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def publish(self, key: str, value: bytes | None) -> None:
        """See `FailureTopic`."""
        if self._producer is None:
            self._producer = await self._connected()
        await self._producer.send_and_wait(self._topic, value, key=key.encode())

    async def _connected(self) -> Any:
        await self._make_topic()
        producer: Any = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            client_id=_CLIENT_ID,
            acks="all",
            request_timeout_ms=_TIMEOUT_MS,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def _make_topic(self) -> None:
        admin: Any = AIOKafkaAdminClient(
            bootstrap_servers=self._bootstrap_servers,
            client_id=_CLIENT_ID,
            request_timeout_ms=_TIMEOUT_MS,
        )
        try:
            await admin.start()
            if self._topic in await admin.list_topics():
                return
            # The brokers' default replication; the client wants an assignment with it, and an empty one says nothing.
            made: Any = NewTopic(
                name=self._topic,
                num_partitions=1,
                replication_factor=-1,
                replica_assignments={},
                topic_configs={"cleanup.policy": "compact"},
            )
            await admin.create_topics([made])
        except TopicAlreadyExistsError:
            return
        finally:
            await admin.close()
