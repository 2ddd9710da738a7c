"""What the domain needs from an object store and from a key ring."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from aquifer_core.formats.checksum import Buffer
from aquifer_core.ids import KafkaUuid

from aquifer_storage.domain.chunk_cache import ChunkKey
from aquifer_storage.domain.envelope import WrappedKey


class HeldChunks(Protocol):
    """Stored bytes of chunks, held nearer than the store. Never raises: what fails is not there."""

    async def get(self, key: ChunkKey) -> bytes | None:
        """The bytes; they may be damaged."""
        ...

    def put(self, key: ChunkKey, data: bytes) -> None:
        """Hold bytes that were verified, sooner or later or not at all."""
        ...

    async def drop(self, key: ChunkKey) -> None:
        """Hold a chunk no longer."""
        ...

    async def forget(self, segment_id: KafkaUuid) -> None:
        """Hold nothing of a segment any longer."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """A listed object.

    Attributes:
        modified_ms: when it was written, by the store's clock. For an upload in parts that may be when it began.
    """

    key: str
    size_bytes: int
    modified_ms: int


class Written(IntEnum):
    """What became of a write; false when there was an object, which stays."""

    NOT = 0
    YES = 1
    CONFIRMED = 2
    """The store has said of this very body, by a checksum, that it has just that."""


class ObjectUpload(Protocol):
    """An object that is written in parts; nobody sees it before `complete`.

    Parts may be written concurrently and in any order. All but the last have the same size.
    """

    async def put_part(self, number: int, data: Buffer) -> None:
        """Write part `number`, from 1. Idempotent.

        The data is not touched any more when this returns or raises, also on cancellation.
        """
        ...

    async def complete(self) -> bool:
        """Make the object visible, its parts in the order of their numbers, unless there is one; false when there is.

        After an answer was lost, false may also mean that this very call has made it.
        """
        ...

    async def abort(self) -> None:
        """Forget every part. Idempotent."""
        ...


class ObjectStore(Protocol):
    """Objects under keys.

    Every method raises `RemoteStorageUnavailableError` when the store does not answer in time or
    refuses load, after retries, and `RemoteResourceNotFoundError` only when the store said that the
    object is not there.
    """

    async def put(self, key: str, data: Buffer) -> Written:
        """Write an object, replacing what was there."""
        ...

    async def create(self, key: str, data: Buffer, *, sha256: str | None = None) -> Written:
        """Write an object unless there is one; `Written.NOT` when there is one.

        After an answer was lost, that may also mean that this very call has written it.

        Args:
            key: the object.
            data: its bytes.
            sha256: their hex SHA-256 where it is known, so that nobody needs to take it again.
        """
        ...

    async def replace(self, key: str, data: Buffer, *, found: bytes) -> Written:
        """Write an object in place of the one that was found; `Written.NOT` when another or none is there by now.

        After an answer was lost, that may also mean that this very call has written it. A store without conditional writes is looked
        at just before.

        Args:
            key: the object.
            data: its bytes.
            found: the bytes to replace, few.
        """
        ...

    async def start_upload(self, key: str, part_size_bytes: int) -> ObjectUpload:
        """Begin an object of many parts."""
        ...

    async def abort_uploads(self, key: str) -> int:
        """Forget every unfinished upload of a key, whoever began it; returns how many."""
        ...

    async def get(self, key: str, position: int = 0, length_bytes: int | None = None) -> bytes:
        """Read a range of an object; fewer bytes when it ends before."""
        ...

    def read(
        self, key: str, position: int, lengths_bytes: Sequence[int]
    ) -> AsyncGenerator[bytes, None]:
        """Read adjacent ranges with one request, one after the other, as they are asked for.

        A range that reaches past the object's end comes short. Closing the iterator ends the
        transfer.
        """
        ...

    async def size_bytes(self, key: str) -> int | None:
        """Size of an object; none when there is none."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order. Idempotent: what is not there is deleted."""
        ...

    def list_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects whose keys begin with a prefix, in the order of their keys."""
        ...

    async def check(self) -> None:
        """Return when the store can be used, raise when it cannot."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...


class StoreClock(Protocol):
    """The clock of a store."""

    async def store_time_ms(self) -> int | None:
        """Time at the store now; none when it does not tell."""
        ...


class TestedStore(StoreClock, Protocol):
    """What only a check asks of a store."""

    async def refuses_damage(self, key: str) -> bool:
        """Whether an object that came other than it was sent is refused; writes one if not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """The stored form of a chunk: its bytes in pieces, and what was done to them."""

    pieces: list[Buffer]
    is_compressed: bool = False
    is_encrypted: bool = False


class KeyRing(Protocol):
    """Key-encryption keys; what a KMS provider implements.

    Wrapped keys name the key that wrapped them. Calls may be made concurrently; each has a deadline of its own.
    """

    async def active_key_id(self) -> str:
        """Return the id of the key that wraps new data keys."""
        ...

    async def wrap(self, data_key: bytes) -> WrappedKey:
        """Wrap a data key with the active key.

        Raises:
            PreconditionError: the active key cannot be used (ENCRYPTION_KEY_UNAVAILABLE).
            UnavailableError: the provider does not answer.
        """
        ...

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Unwrap a data key.

        Raises:
            PreconditionError: the key is missing or another one (ENCRYPTION_KEY_UNAVAILABLE).
            UnavailableError: the provider does not answer.
        """
        ...

    async def check(self) -> None:
        """Return when new data keys can be wrapped, raise when they cannot."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...
