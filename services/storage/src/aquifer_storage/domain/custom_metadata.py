"""The custom metadata that a copy answers with: where the segment's remote log index lies.

It saves the read of the manifest before the first read of a segment.
"""

import struct
from dataclasses import dataclass
from typing import Final

_VERSION: Final = 1
_LAYOUT: Final = struct.Struct(">bqi")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogIndexLocation:
    """Where the remote log index lies in the index bundle."""

    position: int
    size_bytes: int

    def encode(self) -> bytes:
        """Encode as version int8, position int64, size int32."""
        return _LAYOUT.pack(_VERSION, self.position, self.size_bytes)


def decode_location(custom_metadata: bytes | None) -> RemoteLogIndexLocation | None:
    """Decode custom metadata; none when it is absent or not ours, and then the manifest tells."""
    if custom_metadata is None or len(custom_metadata) != _LAYOUT.size:
        return None
    version, position, size_bytes = _LAYOUT.unpack(custom_metadata)
    if version != _VERSION or position < 0 or size_bytes <= 0:
        return None
    return RemoteLogIndexLocation(position=position, size_bytes=size_bytes)
