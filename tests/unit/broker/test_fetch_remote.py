"""What a client is told when some of its remote reads were refused (SR-9)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aquifer_broker.handlers.fetch_read import FetchTarget, PartitionRead
from aquifer_broker.handlers.fetch_remote import read_remote
from aquifer_broker.handlers.remote_log import RemoteRead, RemoteReadRequest
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.log.log_values import FetchIsolation
from aquifer_core.errors import ErrorReason, QuotaExceededError
from kio.schema.errors import ErrorCode

_RECORDS = b"records"
_FULL = QuotaExceededError("full", reason=ErrorReason.READER_QUEUE_FULL, retry_after_ms=70)
_SPENT = QuotaExceededError("spent", reason=ErrorReason.FETCH_QUOTA, retry_after_ms=40)


class _Remote:
    """Answers the reads of a fetch in order."""

    def __init__(self, *outcomes: bytes | Exception) -> None:
        self._outcomes = outcomes

    async def read(self, request: RemoteReadRequest) -> RemoteRead:
        outcome = self._outcomes[request.fetch_offset]
        if isinstance(outcome, Exception):
            raise outcome
        return RemoteRead(records=outcome)


def _read(number: int) -> PartitionRead:
    return PartitionRead(
        target=FetchTarget(
            key=("events", number), topic=None, partition=number, fetch_offset=number, max_bytes=100
        ),
        remote=RemoteReadRequest(
            log=cast(Any, None),
            leader_epoch=0,
            fetch_offset=number,
            max_bytes=100,
            min_one_batch=True,
            isolation=FetchIsolation.HIGH_WATERMARK,
        ),
    )


@pytest.mark.parametrize(
    ("outcomes", "throttle_ms"),
    [
        ((_RECORDS, _RECORDS), 0),
        ((_RECORDS, _FULL), 0),
        ((_FULL, _FULL), 70),
        ((b"", _FULL), 70),
        ((_RECORDS, _SPENT), 40),
        ((_FULL, _SPENT), 70),
        ((_RECORDS, _FULL, _SPENT), 40),
    ],
)
async def test_a_client_with_records_is_slowed_down_for_the_quota_only(
    outcomes: tuple[bytes | Exception, ...], throttle_ms: int
) -> None:
    services = SimpleNamespace(
        remote=_Remote(*outcomes), config=SimpleNamespace(remote_fetch_max_wait_ms=60_000)
    )
    reads = [_read(number) for number in range(len(outcomes))]

    assert await read_remote(cast(BrokerServices, services), reads) == throttle_ms
    found = [(read.records, read.error) for read in reads]
    assert found == [
        (each if isinstance(each, bytes) else b"", ErrorCode.none) for each in outcomes
    ]
