"""What every command shares: where the services are, the deadline, the form of the answer, and running to an exit code."""

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from aquifer_rpc.settings import TlsClientSettings

from aquifer_admin.bounds import MAX_SECONDS
from aquifer_admin.connection import ConnectionOptions, Role, Session
from aquifer_admin.render import Report, emit

__all__ = ["command"]

P = ParamSpec("P")

_PANEL = "Connection"
_ADDRESS = re.compile(r"\[?[\w.:-]+\]?:\d{1,5}")
_DEFAULTS = {
    Role.METADATA: "127.0.0.1:7200",
    Role.MANAGER: "127.0.0.1:7300",
    Role.STORAGE: "127.0.0.1:7100",
}


def _addresses(role: Role) -> Any:
    """The option with the addresses of a service."""
    return Annotated[
        str,
        typer.Option(
            role.option,
            envvar=role.variable,
            metavar="HOST:PORT[,...]",
            help=f"Replicas of the {role.value} service.",
            rich_help_panel=_PANEL,
        ),
    ]


def _file(name: str, variable: str, text: str) -> Any:
    return Annotated[
        Path | None,
        typer.Option(
            name, envvar=variable, exists=True, dir_okay=False, help=text, rich_help_panel=_PANEL
        ),
    ]


_SHARED: dict[str, tuple[Any, Any]] = {
    "as_json": (Annotated[bool, typer.Option("--json", help="One JSON document.")], False),
    **{role.value: (_addresses(role), default) for role, default in _DEFAULTS.items()},
    "timeout_s": (
        Annotated[
            float,
            typer.Option(
                "--timeout",
                envvar="AQUIFER_ADMIN_TIMEOUT",
                min=0.1,
                max=MAX_SECONDS,
                metavar="SECONDS",
                help="Deadline of each call.",
                rich_help_panel=_PANEL,
            ),
        ],
        10.0,
    ),
    "tls_ca": (
        _file("--tls-ca", "AQUIFER_ADMIN_TLS_CA", "Authorities to trust; turns TLS on."),
        None,
    ),
    "tls_certificate": (
        _file("--tls-certificate", "AQUIFER_ADMIN_TLS_CERTIFICATE", "Certificate for mTLS."),
        None,
    ),
    "tls_key": (_file("--tls-key", "AQUIFER_ADMIN_TLS_KEY", "Private key for mTLS."), None),
}


def command(
    app: typer.Typer, name: str
) -> Callable[
    [Callable[Concatenate[Session, P], Awaitable[Report]]],
    Callable[Concatenate[Session, P], Awaitable[Report]],
]:
    """Adds a coroutine function as a command; its first parameter is the session, the others are the command's own.

    The command gets the shared options, prints the report and exits with its code.
    """

    def register(
        function: Callable[Concatenate[Session, P], Awaitable[Report]],
    ) -> Callable[Concatenate[Session, P], Awaitable[Report]]:
        own = list(inspect.signature(function).parameters.values())[1:]

        def run(**arguments: Any) -> None:
            shared = {key: arguments.pop(key) for key in _SHARED}
            options = _connection_options(shared)

            async def answer() -> Report:
                async with Session(options) as session:
                    return await function(session, **arguments)  # type: ignore[call-arg]

            report = asyncio.run(answer())
            emit(report, as_json=shared["as_json"])
            raise typer.Exit(report.exit_code)

        functools.update_wrapper(run, function)
        parameters = [*own, *_shared_parameters()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(run)
        return function

    return register


def _shared_parameters() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )
        for name, (annotation, default) in _SHARED.items()
    ]


def _connection_options(given: dict[str, Any]) -> ConnectionOptions:
    certificate, key = given["tls_certificate"], given["tls_key"]
    if (certificate is None) is not (key is None):
        raise typer.BadParameter("--tls-certificate and --tls-key belong together; give both")
    files = {"ca_file": given["tls_ca"], "certificate_file": certificate, "key_file": key}
    return ConnectionOptions(
        **{role.value: _parse_addresses(role, given[role.value]) for role in _DEFAULTS},
        timeout_s=given["timeout_s"],
        tls=TlsClientSettings(**files) if any(files.values()) else None,
    )


def _parse_addresses(role: Role, text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in parts or ("",):
        if _ADDRESS.fullmatch(part) is None:
            raise typer.BadParameter(
                f"{part!r} is no address; give {role.option} as host:port, several with commas"
            )
    return parts
