"""Identifiers: Kafka's uuids, partitions and remote log segments."""

import base64
import binascii
import os
from dataclasses import dataclass
from typing import ClassVar, Self

from aquifer_core.errors import InvalidRequestError

_UUID_BYTES = 16
_UUID_TEXT_LENGTH = 22


@dataclass(frozen=True, slots=True, order=True)
class KafkaUuid:
    """A 128-bit id whose text form is URL-safe base64 without padding, 22 characters.

    Source: `org.apache.kafka.common.Uuid`.
    """

    raw: bytes

    ZERO: ClassVar["KafkaUuid"]

    def __post_init__(self) -> None:
        if len(self.raw) != _UUID_BYTES:
            raise InvalidRequestError(f"a uuid has 16 bytes, this one has {len(self.raw)}")

    @classmethod
    def random(cls) -> Self:
        """A random id whose text does not start with a dash, as Kafka makes them (tools would take it for a flag)."""
        while True:
            raw = bytearray(os.urandom(_UUID_BYTES))
            raw[6] = (raw[6] & 0x0F) | 0x40
            raw[8] = (raw[8] & 0x3F) | 0x80
            made = cls(bytes(raw))
            if not str(made).startswith("-") and any(raw):
                return made

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the 22-character form.

        Raises:
            InvalidRequestError: the text is not 22 characters of URL-safe base64.
        """
        if len(text) != _UUID_TEXT_LENGTH:
            raise InvalidRequestError(
                f"{text!r} is not a uuid: expected 22 characters of URL-safe base64"
            )
        try:
            return cls(base64.b64decode(text + "==", altchars=b"-_", validate=True))
        except (binascii.Error, ValueError) as error:
            raise InvalidRequestError(f"{text!r} is not a uuid: {error}") from error

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw).rstrip(b"=").decode("ascii")


KafkaUuid.ZERO = KafkaUuid(bytes(_UUID_BYTES))


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of one incarnation of a topic: a topic created again under its old name has another id."""

    topic_id: KafkaUuid
    topic: str
    partition: int

    def __post_init__(self) -> None:
        if self.partition < 0:
            raise InvalidRequestError(f"partition {self.partition} of {self.topic!r} is negative")

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class RemoteLogSegmentId:
    """One copy of a log segment. A retry of a copy is another copy and gets another id."""

    topic_id_partition: TopicIdPartition
    id: KafkaUuid

    @classmethod
    def generate(cls, topic_id_partition: TopicIdPartition) -> Self:
        """A new id for the next copy attempt."""
        return cls(topic_id_partition, KafkaUuid.random())

    def __str__(self) -> str:
        return f"{self.topic_id_partition}/{self.id}"
