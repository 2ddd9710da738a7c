"""The largest numbers that a request can carry, or that make sense on a command line."""

from typing import Final

MAX_INT32: Final = 2**31 - 1
"""Partitions, numbers of them, and positions in segments."""
MAX_INT64: Final = 2**63 - 1
"""Offsets."""
MAX_REPLICAS: Final = 10_000
"""What Kafka's client library takes."""
MAX_SECONDS: Final = 7 * 86_400
"""Every call has a deadline: a week is none that somebody waits for."""
