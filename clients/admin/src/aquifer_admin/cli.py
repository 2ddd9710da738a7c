"""The `aquifer` command: exit code 0 for success, 1 for failure, 2 for wrong usage."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer
from aquifer_core.errors import AquiferError

from aquifer_admin.commands import metadata, partitions, scrub, segments, status, store, topics, why
from aquifer_admin.render import OutputError

app = typer.Typer(
    name="aquifer",
    help="Topics, remote segments, partitions and health of an Aquifer suite.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(topics.app, name="topics")
app.add_typer(segments.app, name="segments")
app.add_typer(partitions.app, name="partitions")
app.add_typer(store.app, name="store")
app.add_typer(metadata.app, name="metadata")
status.add_to(app)
scrub.add_to(app)
why.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"aquifer {version('aquifer-admin')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Topics, remote segments, partitions and health of an Aquifer suite."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command line; every failure is one line on standard error that says what, where and the remedy."""
    try:
        _check_text(sys.argv[1:] if arguments is None else arguments)
        code = app(arguments, prog_name="aquifer", standalone_mode=False)
    except typer.TyperException as error:
        return _refuse(error)
    except typer.Abort:
        return _fail("cancelled; nothing was changed")
    except AquiferError as error:
        return _fail(f"{error.message} ({error.reason.value})")
    except KeyboardInterrupt:
        _fail("interrupted")
        return 130
    except OutputError as error:
        _give_up_output()
        return _fail(str(error))
    return int(code or 0)


def _give_up_output() -> None:
    """Python would try once more to write what is left when the process ends, and complain."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _check_text(arguments: list[str]) -> None:
    """Refuses what the terminal's encoding made no text of: no name of a topic is like that, and no request could carry it."""
    for each in arguments:
        if not each.isascii() and each != each.encode(errors="ignore").decode():
            raise typer.BadParameter(f"{each!a} is no text; give it in UTF-8")


def _refuse(error: typer.TyperException) -> int:
    text = error.format_message()
    # Without text it is the help that was asked for by giving no command.
    if text:
        hint = " (`--help` shows the usage)" if error.exit_code == 2 else ""
        _fail(f"{text}{hint}")
    return error.exit_code


def _fail(text: str) -> int:
    line = " ".join(text.split())
    print(f"aquifer: {line}", file=sys.stderr)
    return 1
