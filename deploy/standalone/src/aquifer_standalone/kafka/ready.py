"""Whether a broker of Apache Kafka serves, which it does some time after it answers."""

import asyncio
from typing import Final

from confluent_kafka.admin import AdminClient

from aquifer_standalone.readiness import kafka_serving

_ASK_S: Final = 5.0


async def broker_serving(address: str, broker_id: int) -> bool:
    """Tell whether the broker at `host:port` answers and counts itself among the brokers of the cluster."""
    host, _, port = address.rpartition(":")
    if not await kafka_serving(host, int(port)):
        return False
    return await asyncio.to_thread(_is_listed, address, broker_id)


def _is_listed(address: str, broker_id: int) -> bool:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return broker_id in admin.list_topics(timeout=_ASK_S).brokers
