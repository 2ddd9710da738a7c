"""Every span attribute, span name and metric, declared once; the reference page is generated from here."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A key of spans, metrics or logs."""

    key: str
    doc: str


class InstrumentKind(StrEnum):
    """Kinds of OpenTelemetry instruments that we use."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "up-down counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric: name, unit (UCUM), kind and the attributes that it is split by."""

    name: str
    unit: str
    kind: InstrumentKind
    doc: str
    attributes: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span name; `{...}` parts are filled in."""

    name: str
    doc: str
    attributes: tuple[Attribute, ...] = ()


TOPIC: Final = Attribute(key="aquifer.topic", doc="Topic name.")
TOPIC_ID: Final = Attribute(key="aquifer.topic_id", doc="Topic id, 22 characters.")
PARTITION: Final = Attribute(key="aquifer.partition", doc="Partition number.")
SEGMENT_ID: Final = Attribute(key="aquifer.segment_id", doc="Id of the copy, 22 characters.")
START_OFFSET: Final = Attribute(key="aquifer.start_offset", doc="First offset, inclusive.")
END_OFFSET: Final = Attribute(key="aquifer.end_offset", doc="Last offset, inclusive.")
FETCH_OFFSET: Final = Attribute(key="aquifer.fetch_offset", doc="Offset asked for.")
LEADER_EPOCH: Final = Attribute(key="aquifer.leader_epoch", doc="Leader epoch.")
BROKER_ID: Final = Attribute(key="aquifer.broker_id", doc="Broker id.")
BYTES: Final = Attribute(key="aquifer.bytes", doc="Bytes moved by the operation.")
INDEX_TYPE: Final = Attribute(key="aquifer.index_type", doc="Index type, Kafka's name.")
ERROR_REASON: Final = Attribute(key="aquifer.error_reason", doc="`ErrorReason` of a failure.")
REQUEST_ID: Final = Attribute(key="aquifer.request_id", doc="Request id, as in logs.")
ENDPOINT: Final = Attribute(key="aquifer.endpoint", doc="Address called, host:port.")
ATTEMPT: Final = Attribute(key="aquifer.attempt", doc="Attempt of a call, from 1.")
LOOP: Final = Attribute(key="aquifer.loop", doc="Name of a supervised loop.")
PROBE: Final = Attribute(key="aquifer.probe", doc="Name of a readiness probe.")
OBJECT_STORE: Final = Attribute(key="aquifer.object_store", doc="`s3` or `filesystem`.")
OBJECT_KEY: Final = Attribute(key="aquifer.object_key", doc="Key of the object, or prefix of keys.")
OPERATION: Final = Attribute(key="aquifer.operation", doc="Operation, for example `get_object`.")
OUTCOME: Final = Attribute(
    key="aquifer.outcome", doc="`ok`, or why not: `not_found`, `unavailable`, `refused`, `failed`."
)
DIRECTION: Final = Attribute(key="aquifer.direction", doc="`sent` or `received`.")
TASK: Final = Attribute(
    key="aquifer.task",
    doc="Kind of a task: `copy`, `expiration`, `follower`, `partition_deletion`.",
)
KAFKA_API: Final = Attribute(key="aquifer.kafka.api", doc="Kafka API, for example `FETCH`.")

RPC_SYSTEM: Final = Attribute(key="rpc.system", doc="Always `grpc`.")
RPC_SERVICE: Final = Attribute(key="rpc.service", doc="Full name of the service.")
RPC_METHOD: Final = Attribute(key="rpc.method", doc="Name of the RPC.")
RPC_CODE: Final = Attribute(key="rpc.grpc.status_code", doc="Status code, as a number.")
RPC_CODE_NAME: Final = Attribute(key="aquifer.rpc.code", doc="Status code, by name.")
PEER_ADDRESS: Final = Attribute(key="network.peer.address", doc="Address of the other side.")

_RPC = (RPC_SYSTEM, RPC_SERVICE, RPC_METHOD, RPC_CODE, ERROR_REASON, REQUEST_ID)

SERVER_SPAN: Final = Span(
    name="{service}/{method}",
    doc="An RPC served, to the end of its iteration.",
    attributes=(*_RPC, PEER_ADDRESS),
)
CLIENT_SPAN: Final = Span(
    name="{service}/{method}",
    doc="An RPC called, retries included, to the end of its iteration.",
    attributes=(*_RPC, ENDPOINT),
)

SERVER_DURATION: Final = Metric(
    name="aquifer.rpc.server.duration",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time to serve an RPC, iteration included.",
    attributes=(RPC_METHOD, RPC_CODE_NAME),
)
SERVER_IN_FLIGHT: Final = Metric(
    name="aquifer.rpc.server.in_flight",
    unit="{rpc}",
    kind=InstrumentKind.UP_DOWN_COUNTER,
    doc="RPCs being served now.",
    attributes=(RPC_METHOD,),
)
CLIENT_DURATION: Final = Metric(
    name="aquifer.rpc.client.duration",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time of a call, retries and iteration included.",
    attributes=(RPC_METHOD, RPC_CODE_NAME),
)
CLIENT_RETRIES: Final = Metric(
    name="aquifer.rpc.client.retries",
    unit="{retry}",
    kind=InstrumentKind.COUNTER,
    doc="Attempts after the first one.",
    attributes=(RPC_METHOD, ERROR_REASON),
)
LOOP_SECONDS_SINCE_SUCCESS: Final = Metric(
    name="aquifer.loop.seconds_since_success",
    unit="s",
    kind=InstrumentKind.GAUGE,
    doc="Age of the last success of a supervised loop; from its start when it never had one.",
    attributes=(LOOP,),
)
LOOP_FAILURES: Final = Metric(
    name="aquifer.loop.failures",
    unit="{failure}",
    kind=InstrumentKind.COUNTER,
    doc="Runs of a supervised loop that failed.",
    attributes=(LOOP,),
)
TLS_READS: Final = Metric(
    name="aquifer.tls.reads",
    unit="{read}",
    kind=InstrumentKind.COUNTER,
    doc="Readings of TLS files that had changed: `ok`, or `refused` and not used.",
    attributes=(OUTCOME,),
)
PROBE_UP: Final = Metric(
    name="aquifer.probe.up",
    unit="1",
    kind=InstrumentKind.GAUGE,
    doc="1 while a readiness probe succeeds, else 0.",
    attributes=(PROBE,),
)
OBJECT_STORE_SPAN: Final = Span(
    name="{object store}.{operation}",
    doc="One request to the object store; a retry is another one.",
    attributes=(OBJECT_KEY, BYTES, ATTEMPT, OUTCOME),
)
OBJECT_STORE_REQUESTS: Final = Metric(
    name="aquifer.object_store.requests",
    unit="{request}",
    kind=InstrumentKind.COUNTER,
    doc="Requests to the object store, retries included.",
    attributes=(OBJECT_STORE, OPERATION, OUTCOME),
)
OBJECT_STORE_DURATION: Final = Metric(
    name="aquifer.object_store.duration",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time of a request to the object store.",
    attributes=(OBJECT_STORE, OPERATION),
)
OBJECT_STORE_BYTES: Final = Metric(
    name="aquifer.object_store.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Bytes of objects sent to and received from the object store.",
    attributes=(OBJECT_STORE, DIRECTION),
)
OBJECT_STORE_LIMIT: Final = Metric(
    name="aquifer.object_store.limit",
    unit="{request}",
    kind=InstrumentKind.GAUGE,
    doc="Requests that may be under way at once; falls when the store refuses, below 1 when it refuses everything.",
    attributes=(OBJECT_STORE, OPERATION),
)
OBJECT_STORE_LEFTOVERS: Final = Metric(
    name="aquifer.object_store.leftovers",
    unit="{object}",
    kind=InstrumentKind.COUNTER,
    doc="Objects of failed copies that were found and deleted because of their age.",
    attributes=(OBJECT_STORE,),
)
COPY_SPAN: Final = Span(
    name="copy",
    doc="A run of a partition's copy task.",
    attributes=(TOPIC, TOPIC_ID, PARTITION, LEADER_EPOCH, ERROR_REASON),
)
COPY_SEGMENT_SPAN: Final = Span(
    name="copy segment",
    doc="The copy of one segment, from its entry in metadata to its last state.",
    attributes=(TOPIC, TOPIC_ID, PARTITION, SEGMENT_ID, START_OFFSET, END_OFFSET, ERROR_REASON),
)
EXPIRE_SPAN: Final = Span(
    name="expire",
    doc="A run of a partition's expiration task.",
    attributes=(TOPIC, TOPIC_ID, PARTITION, LEADER_EPOCH, ERROR_REASON),
)
DELETE_PARTITION_SPAN: Final = Span(
    name="delete partition",
    doc="A run of the job that deletes all remote data of a partition.",
    attributes=(TOPIC, TOPIC_ID, PARTITION, ERROR_REASON),
)
SCRUB_SPAN: Final = Span(
    name="scrub",
    doc="A comparison of metadata, listing and content of a partition.",
    attributes=(TOPIC, TOPIC_ID, PARTITION, ERROR_REASON),
)
COPY_BYTES: Final = Metric(
    name="aquifer.remote.copy.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Bytes of `.log` files copied.",
    attributes=(TOPIC,),
)
COPY_REQUESTS: Final = Metric(
    name="aquifer.remote.copy.requests",
    unit="{copy}",
    kind=InstrumentKind.COUNTER,
    doc="Copies begun.",
    attributes=(TOPIC,),
)
COPY_ERRORS: Final = Metric(
    name="aquifer.remote.copy.errors",
    unit="{run}",
    kind=InstrumentKind.COUNTER,
    doc="Copy runs that failed.",
    attributes=(TOPIC,),
)
FETCH_BYTES: Final = Metric(
    name="aquifer.remote.fetch.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Record bytes read from remote storage.",
    attributes=(TOPIC,),
)
FETCH_REQUESTS: Final = Metric(
    name="aquifer.remote.fetch.requests",
    unit="{fetch}",
    kind=InstrumentKind.COUNTER,
    doc="Remote reads asked for, refused ones included.",
    attributes=(TOPIC,),
)
FETCH_ERRORS: Final = Metric(
    name="aquifer.remote.fetch.errors",
    unit="{fetch}",
    kind=InstrumentKind.COUNTER,
    doc="Remote reads that failed; offsets out of range and refusals do not count.",
    attributes=(TOPIC,),
)
DELETE_BYTES: Final = Metric(
    name="aquifer.remote.delete.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Bytes of `.log` files deleted.",
    attributes=(TOPIC,),
)
DELETE_REQUESTS: Final = Metric(
    name="aquifer.remote.delete.requests",
    unit="{delete}",
    kind=InstrumentKind.COUNTER,
    doc="Segment deletions tried.",
    attributes=(TOPIC,),
)
DELETE_ERRORS: Final = Metric(
    name="aquifer.remote.delete.errors",
    unit="{delete}",
    kind=InstrumentKind.COUNTER,
    doc="Segment deletions that failed.",
    attributes=(TOPIC,),
)
COPY_LAG_BYTES: Final = Metric(
    name="aquifer.remote.copy.lag.bytes",
    unit="By",
    kind=InstrumentKind.GAUGE,
    doc="Bytes of rolled segments that are not remote.",
    attributes=(TOPIC,),
)
COPY_LAG_SEGMENTS: Final = Metric(
    name="aquifer.remote.copy.lag.segments",
    unit="{segment}",
    kind=InstrumentKind.GAUGE,
    doc="Rolled segments that are not remote.",
    attributes=(TOPIC,),
)
COPY_LAG_AGE: Final = Metric(
    name="aquifer.remote.copy.lag.age",
    unit="ms",
    kind=InstrumentKind.GAUGE,
    doc="Age of the oldest rolled segment that is not remote.",
    attributes=(TOPIC,),
)
TASK_SINCE_SUCCESS: Final = Metric(
    name="aquifer.task.since_success",
    unit="ms",
    kind=InstrumentKind.GAUGE,
    doc="Longest time that a task of the kind is without success.",
    attributes=(TASK,),
)
TASKS_FAILING: Final = Metric(
    name="aquifer.task.failing",
    unit="{task}",
    kind=InstrumentKind.GAUGE,
    doc="Tasks whose last run failed.",
    attributes=(TASK,),
)
READER_ACTIVE: Final = Metric(
    name="aquifer.remote.reader.active",
    unit="{fetch}",
    kind=InstrumentKind.GAUGE,
    doc="Remote reads under way.",
)
READER_PENDING: Final = Metric(
    name="aquifer.remote.reader.pending",
    unit="{fetch}",
    kind=InstrumentKind.GAUGE,
    doc="Remote reads waiting for a reader.",
)
INDEX_BEHIND: Final = Metric(
    name="aquifer.remote.index.behind",
    unit="{partition}",
    kind=InstrumentKind.GAUGE,
    doc="Partitions whose local remote index does not reach as far as remote storage.",
)
INDEX_ANSWERS: Final = Metric(
    name="aquifer.remote.index.answers",
    unit="{answer}",
    kind=InstrumentKind.COUNTER,
    doc="Questions of readers answered by a local remote index, because metadata did not.",
    attributes=(TOPIC,),
)
BROKER_READ_LIMIT: Final = Metric(
    name="aquifer.broker.remote_reads.limit",
    unit="{read}",
    kind=InstrumentKind.GAUGE,
    doc="Remote reads that a broker makes at once now; low while its event loop is late beside producers.",
)
BROKER_LOOP_DELAY: Final = Metric(
    name="aquifer.broker.loop.delay",
    unit="s",
    kind=InstrumentKind.GAUGE,
    doc="How late a broker's event loop woke up, nine times of ten, while there were remote reads beside hot traffic.",
)
KAFKA_REQUEST_DURATION: Final = Metric(
    name="aquifer.kafka.request.duration",
    unit="s",
    kind=InstrumentKind.HISTOGRAM,
    doc="Time from a complete request to its response, waits for records and for other members included.",
    attributes=(KAFKA_API,),
)
KAFKA_PRODUCE_BYTES: Final = Metric(
    name="aquifer.kafka.produce.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Bytes of record batches appended for producers.",
    attributes=(TOPIC,),
)
KAFKA_FETCH_BYTES: Final = Metric(
    name="aquifer.kafka.fetch.bytes",
    unit="By",
    kind=InstrumentKind.COUNTER,
    doc="Bytes of record batches sent to clients, local and remote ones.",
    attributes=(TOPIC,),
)
KAFKA_CONNECTIONS: Final = Metric(
    name="aquifer.kafka.connections",
    unit="{connection}",
    kind=InstrumentKind.GAUGE,
    doc="Open connections of Kafka clients.",
)
