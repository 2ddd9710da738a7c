"""A digest of every offset, timestamp, key and value of a partition, in order."""

import hashlib
import struct
from dataclasses import dataclass, field

_HEAD = struct.Struct(">qqii")


@dataclass(slots=True)
class PartitionDigest:
    """Running digest; two are equal when the same records were added at the same offsets."""

    records: int = 0
    size_bytes: int = 0
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Adds a record; None and empty differ."""
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        self._hash.update(
            _HEAD.pack(offset, timestamp_ms, key_size, value_size) + (key or b"") + (value or b"")
        )
        self.records += 1
        self.size_bytes += max(key_size, 0) + max(value_size, 0)

    def hexdigest(self) -> str:
        """Digest of what was added so far."""
        return self._hash.hexdigest()
