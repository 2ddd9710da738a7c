"""The meta.properties file, which ties a log directory to a broker and a cluster (K-6.1)."""

from dataclasses import dataclass
from typing import Final

from aquifer_core.errors import CorruptIndexError, InvalidRequestError
from aquifer_core.formats.checkpoint import parse_int32
from aquifer_core.formats.checksum import Buffer
from aquifer_core.formats.properties import format_properties, parse_properties
from aquifer_core.ids import KafkaUuid

__all__ = ["MetaProperties", "format_meta_properties", "parse_meta_properties"]

_NAME: Final = "meta.properties"
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Who a log directory belongs to.

    Attributes:
        cluster_id: The cluster.
        node_id: The broker.
        directory_id: The directory; none when written by a version without directory ids.
    """

    cluster_id: str
    node_id: int
    directory_id: KafkaUuid | None = None


def parse_meta_properties(data: Buffer) -> MetaProperties:
    """Parse the file.

    Raises:
        CorruptIndexError: The version is not 1, or a value is missing or malformed.
    """
    properties = parse_properties(data, _NAME)
    version = properties.get("version")
    if version != _VERSION:
        raise CorruptIndexError(f"{_NAME}: version {version} is not supported")
    missing = {"cluster.id", "node.id"} - properties.keys()
    if missing:
        raise CorruptIndexError(f"{_NAME}: {', '.join(sorted(missing))} missing")
    directory_id = properties.get("directory.id")
    try:
        parsed_id = None if directory_id is None else KafkaUuid.parse(directory_id)
    except InvalidRequestError as error:
        raise CorruptIndexError(f"{_NAME}: directory.id: {error}") from error
    return MetaProperties(
        cluster_id=properties["cluster.id"],
        node_id=parse_int32(properties["node.id"], f"{_NAME}: node.id"),
        directory_id=parsed_id,
    )


def format_meta_properties(meta: MetaProperties) -> bytes:
    """Encode the file, keys in order, without the comment lines Java adds."""
    properties = {"cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        properties["directory.id"] = str(meta.directory_id)
    return format_properties(properties | {"node.id": str(meta.node_id), "version": _VERSION})
