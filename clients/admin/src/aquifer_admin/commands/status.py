"""`aquifer status`: is everything there, does it serve, does tiering keep up."""

import asyncio
from contextlib import closing
from typing import Any

import typer
from aquifer.metadata.v1 import cluster_metadata_service_pb2 as cluster_pb2
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub
from aquifer_core.errors import AquiferError
from aquifer_rpc.calls import call_unary
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import RenderableType

from aquifer_admin.cluster import in_parallel, read_snapshot
from aquifer_admin.command import command
from aquifer_admin.connection import Peer, Role, Session, cause
from aquifer_admin.documents import Document
from aquifer_admin.managed import read_partitions
from aquifer_admin.render import Column, Report, as_bytes, as_duration, details, stacked, table

_STATE = Column(key="state", header="STATE", bad=lambda state: state != "serving")
_SERVICE = (
    Column(key="service", header="SERVICE"),
    Column(key="address", header="ADDRESS"),
    _STATE,
    Column(key="version", header="VERSION"),
    Column(key="capabilities", header="CAPABILITIES", wraps=True),
    Column(key="error", header="ERROR", wraps=True),
)
_BROKER = (
    Column(key="broker_id", header="BROKER", justify="right"),
    Column(key="alive", header="LEASE", bad=lambda alive: not alive),
    Column(key="kafka_address", header="KAFKA"),
    Column(key="kafka_reachable", header="REACHABLE", bad=lambda reachable: not reachable),
    Column(key="log_service_address", header="LOG SERVICE"),
    Column(
        key="log_service_state", header="STATE", bad=lambda state: state not in (None, "serving")
    ),
    Column(key="error", header="ERROR", wraps=True),
)
_PARTITIONS = (
    Column(key="topics", header="TOPICS"),
    Column(key="partitions", header="PARTITIONS"),
    Column(key="leaderless_partitions", header="LEADERLESS", bad=bool),
    Column(key="under_replicated_partitions", header="UNDER-REPLICATED", bad=bool),
    Column(key="managed_partitions", header="MANAGED"),
    Column(key="paused_partitions", header="PAUSED", bad=bool),
    Column(key="failing_partitions", header="FAILING", bad=bool),
    Column(key="copy_lag_bytes", header="LAG BYTES", show=as_bytes),
    Column(key="copy_lag_segments", header="LAG SEGMENTS"),
    Column(key="copy_lag_ms", header="OLDEST LAG", show=as_duration),
)


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    command(app, "status")(status)


async def status(session: Session) -> Report:
    """Check every service and broker; exit code 1 when something is down."""
    replicas = [peer for role in Role for peer in session.replicas(role)]
    services = await in_parallel(_service(peer) for peer in replicas)
    try:
        snapshot = await read_snapshot(session.peer(Role.METADATA))
    except AquiferError as error:
        return _report(services, None, None, [f"cluster: {error.message}"])
    brokers = await in_parallel(_broker(session, each) for each in snapshot.brokers)
    totals, errors = _cluster_totals(snapshot), []
    try:
        totals.update(_managed_totals(await read_partitions(session, "")))
    except AquiferError as error:
        errors.append(f"partitions: {error.message}")
    return _report(services, brokers, totals, errors)


def _report(
    services: list[Document],
    brokers: list[Document] | None,
    partitions: Document | None,
    errors: list[str],
) -> Report:
    down = [f"{each['service']} at {each['address']}" for each in services if _is_down(each)]
    down += [f"broker {each['broker_id']}" for each in brokers or () if _broker_is_down(each)]
    if partitions is not None and partitions["leaderless_partitions"]:
        down.append(f"{partitions['leaderless_partitions']} partitions without leader")
    ok = not down and not errors
    document = {
        "ok": ok,
        "down": down,
        "errors": errors,
        "services": services,
        "brokers": brokers,
        "partitions": partitions,
    }
    parts: list[RenderableType] = [table("Services", _SERVICE, services)]
    if brokers is not None:
        parts.append(table("Brokers", _BROKER, brokers))
    if partitions is not None:
        parts.append(details("Partitions", _PARTITIONS, partitions))
    parts += errors
    parts.append("Everything is up." if ok else f"Down: {', '.join(down) or 'see the errors'}.")
    return Report(document=document, body=stacked(*parts), exit_code=int(not ok))


async def _service(peer: Peer) -> Document:
    row: Document = {
        "service": peer.name,
        "address": peer.address,
        **await _health(peer),
        "version": None,
        "capabilities": None,
    }
    if peer.role is Role.STORAGE and row["state"] == "serving":
        row.update(await _capabilities(peer))
    return row


async def _health(peer: Peer) -> Document:
    """State of a gRPC server: `serving`, `not serving` or `unreachable`."""
    stub: Any = health_pb2_grpc.HealthStub(peer.channel)
    try:
        request = health_pb2.HealthCheckRequest()
        answer = await call_unary(stub.Check, request, deadline_s=peer.timeout_s, retry=False)
    except AquiferError as error:
        return {"state": "unreachable", "error": cause(error)}
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return {"state": "serving" if serving else "not serving", "error": None}


async def _capabilities(peer: Peer) -> Document:
    stub = RemoteStorageServiceStub(peer.channel)
    try:
        answer = await peer.ask(stub.GetCapabilities, storage_pb2.GetCapabilitiesRequest())
    except AquiferError as error:
        return {"error": error.message}
    return {
        "version": answer.version,
        "capabilities": {
            "backend": answer.backend,
            "compression": answer.compression,
            "encryption": answer.encryption,
            "chunk_size_bytes": answer.chunk_size_bytes,
            "max_segment_bytes": answer.max_segment_bytes,
            "max_message_data_bytes": answer.max_message_data_bytes,
        },
    }


async def _broker(session: Session, broker: cluster_pb2.Broker) -> Document:
    error = None
    address = None
    for endpoint in broker.endpoints:
        address = f"{endpoint.host}:{endpoint.port}"
        error = await connect_error(endpoint.host, endpoint.port, session.options.timeout_s)
        if error is None:
            break
    log_service: Document = {"state": None, "error": None}
    if broker.broker_log_address:
        log_service = await _health(session.broker(broker.broker_log_address))
    return {
        "broker_id": broker.broker_id,
        "alive": broker.alive,
        "rack": broker.rack or None,
        "kafka_address": address,
        "kafka_reachable": address is not None and error is None,
        "log_service_address": broker.broker_log_address or None,
        "log_service_state": log_service["state"],
        "error": error or log_service["error"],
    }


async def connect_error(host: str, port: int, timeout_s: float) -> str | None:
    """None when a TCP connection can be made."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port}: no connection in {timeout_s:g} s"
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    except UnicodeError as error:
        return f"{host}:{port}: no name of a host ({error.__cause__ or error})"
    with closing(writer):
        return None


def _is_down(service: Document) -> bool:
    return service["state"] != "serving" or service["error"] is not None


def _broker_is_down(broker: Document) -> bool:
    reachable = broker["alive"] and broker["kafka_reachable"]
    return not reachable or broker["log_service_state"] not in (None, "serving")


def _cluster_totals(snapshot: cluster_pb2.ClusterSnapshot) -> Document:
    partitions = [each for topic in snapshot.topics for each in topic.partitions]
    return {
        "topics": len(snapshot.topics),
        "partitions": len(partitions),
        "leaderless_partitions": sum(each.leader < 0 for each in partitions),
        "under_replicated_partitions": sum(
            len(each.isr) < len(each.replicas) for each in partitions
        ),
        # Unknown until the managers have answered: no lag is something else.
        **dict.fromkeys(_managed_totals([])),
    }


def _managed_totals(rows: list[Document]) -> Document:
    return {
        "managed_partitions": len(rows),
        "paused_partitions": sum(row["paused"] for row in rows),
        "failing_partitions": sum(row["last_error_reason"] is not None for row in rows),
        "copy_lag_bytes": sum(row["copy_lag_bytes"] for row in rows),
        "copy_lag_segments": sum(row["copy_lag_segments"] for row in rows),
        "copy_lag_ms": max((row["copy_lag_ms"] for row in rows), default=0),
    }
