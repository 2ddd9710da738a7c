"""The statements of retention, as the page of plans shows them."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from aquifer_core.ports import RetentionPolicy
from aquifer_metadata.adapters.postgres.remote_log_retention import plan_values
from aquifer_metadata.adapters.postgres.remote_log_retention_statements import (
    EXPIRY,
    PLAN,
    SURVEY,
)
from bench.metadata_facts import OFFSETS_PER_SEGMENT, SEGMENT_BYTES, Facts

_EPOCH = 0
_EXPIRED = 10


def retention_statements(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """What it is for, its text in the driver's form, its parameters; ten segments are too many."""
    policy = RetentionPolicy(
        retention_ms=-1,
        retention_bytes=(facts.per_partition - _EXPIRED) * SEGMENT_BYTES,
        log_start_offset=0,
        log_end_offset=facts.per_partition * OFFSETS_PER_SEGMENT,
    )
    tip = facts.partition(facts.partitions // 2)
    values = plan_values(tip, {_EPOCH: 0}, policy, int(time.time() * 1000))
    total = {"total_bytes": facts.per_partition * SEGMENT_BYTES}
    yield "What retention deletes of a partition", PLAN.text, values
    yield (
        "A page of a large partition: what its segments weigh, and what goes whatever the size",
        SURVEY.text,
        {**values, "page_size": 250_000},
    )
    yield (
        "A step in a large partition to the first segment that stays",
        EXPIRY.text,
        {**values, **total, "page_size": 1_000},
    )
