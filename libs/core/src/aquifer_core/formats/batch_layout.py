"""Layout of the record batch of magic 2 (K-6.2)."""

import struct
from enum import IntEnum
from typing import Final

__all__ = [
    "ATTRIBUTES_POSITION",
    "BATCH_HEADER",
    "BATCH_HEADER_BYTES",
    "BATCH_PREFIX",
    "CODEC_MASK",
    "CONTROL_MASK",
    "CRC_POSITION",
    "DELETE_HORIZON_MASK",
    "LEADER_EPOCH_POSITION",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "MAX_TIMESTAMP_POSITION",
    "MIN_STORED_LENGTH",
    "TIMESTAMP_TYPE_MASK",
    "TRANSACTIONAL_MASK",
    "CompressionCodec",
    "TimestampType",
]

LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length: what `batchLength` does not count."""
BATCH_HEADER_BYTES: Final = 61
MAGIC: Final = 2

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_PREFIX: Final = struct.Struct(">qiib")
"""Base offset, length, leader epoch and magic: what every format version starts with."""

MIN_STORED_LENGTH: Final = 14
"""Below it no format version has a batch (K-6.8)."""
LEADER_EPOCH_POSITION: Final = 12
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40


class CompressionCodec(IntEnum):
    """Codec of the records of a batch; the values are Kafka's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set the timestamps of a batch; the values are Kafka's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1
