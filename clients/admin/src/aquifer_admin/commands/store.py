"""`aquifer store`: does the object store do what segments need?"""

from contextlib import aclosing

import typer
from aquifer.storage.v1 import remote_storage_service_pb2 as storage_pb2
from aquifer.storage.v1.remote_storage_service_pb2_grpc import RemoteStorageServiceStub

from aquifer_admin import documents
from aquifer_admin.command import command
from aquifer_admin.connection import Role, Session
from aquifer_admin.documents import Document
from aquifer_admin.render import Column, Report, as_duration, progress_by_count, table

app = typer.Typer(help="Check the object store.", no_args_is_help=True)

# A check may wait for a store that answers late; the whole suite gets this on top of --timeout.
_SUITE_S = 600.0

_CHECK = (
    Column(key="check", header="CHECK"),
    Column(key="outcome", header="OUTCOME", bad=lambda outcome: outcome != "ok"),
    Column(key="duration_ms", header="TIME", show=as_duration, justify="right"),
    Column(key="message", header="FOUND", wraps=True),
)


@app.callback()
def _group() -> None:
    """Keep `check` a command of a group; typer takes a single command for the group itself."""


@command(app, "check")
async def check(session: Session) -> Report:
    """Try out what segments need of the object store; exit code 1 when it cannot be used.

    Reading what was written, ranges, checksums, parts, listings, deletion, conditional writes, clock. A few objects are written
    under .aquifer-check/ and deleted.
    """
    peer = session.peer(Role.STORAGE)
    stub = RemoteStorageServiceStub(peer.channel)
    request = storage_pb2.CheckStoreRequest()
    rows: list[Document] = []
    with progress_by_count() as progress:
        bar = progress.add_task("checking", total=None)
        answers = peer.read(stub.CheckStore, request, timeout_s=peer.timeout_s + _SUITE_S)
        async with aclosing(answers) as results:
            async for result in results:
                rows.append(documents.store_check(result))
                progress.update(bar, completed=result.number, total=result.total)
    failed = [row["check"] for row in rows if row["outcome"] == "failed"]
    degraded = [row["check"] for row in rows if row["outcome"] == "degraded"]
    return Report(
        document={"ok": not failed, "failed": failed, "degraded": degraded, "checks": rows},
        body=table("Store", _CHECK, rows, caption=_verdict(failed, degraded)),
        exit_code=int(bool(failed)),
    )


def _verdict(failed: list[str], degraded: list[str]) -> str:
    if failed:
        return f"the store cannot be used: {', '.join(failed)}"
    if degraded:
        return f"the store can be used; it lacks {', '.join(degraded)}"
    return "the store does everything"
