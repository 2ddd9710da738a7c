"""The partition.metadata file, which ties a partition's directory to a topic id (K-6.1)."""

from typing import Final

from aquifer_core.errors import CorruptIndexError, InvalidRequestError
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.properties import parse_properties
from aquifer_core.ids import KafkaUuid

__all__ = ["format_partition_metadata", "parse_partition_metadata"]

_NAME: Final = "partition.metadata"
_VERSION: Final = "0"


def parse_partition_metadata(data: Buffer) -> KafkaUuid:
    """Parse the file and return the topic id.

    Raises:
        CorruptIndexError: The version is not 0, or the topic id is missing, malformed or zero.
    """
    properties = parse_properties(data, _NAME)
    version = properties.get("version")
    if version != _VERSION:
        raise CorruptIndexError(f"{_NAME}: version {version} is not supported")
    try:
        topic_id = KafkaUuid.parse(properties.get("topic_id", ""))
    except InvalidRequestError as error:
        raise CorruptIndexError(f"{_NAME}: {error}") from error
    if topic_id == KafkaUuid.ZERO:
        raise CorruptIndexError(f"{_NAME}: the topic id is zero")
    return topic_id


def format_partition_metadata(topic_id: KafkaUuid) -> bytes:
    """Encode the file; like Kafka's it has no line end after the last line."""
    return f"version: {_VERSION}\ntopic_id: {topic_id}".encode()
