"""`aquifer-metadata` serves; `aquifer-metadata migrate [REVISION]` brings the database schema up to date, or to a revision, and ends."""

import sys
from functools import partial
from typing import Final, NoReturn

from aquifer_rpc.service import run_service

from aquifer_metadata.app import migrate_only, serve
from aquifer_metadata.settings import PREFIX, MetadataSettings

_MOST_ARGUMENTS: Final = 2


def main() -> NoReturn:
    """Entry point of the command."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["migrate"] and len(arguments) <= _MOST_ARGUMENTS:
        migration = partial(migrate_only, revision=arguments[-1] if arguments[1:] else "head")
        run_service("aquifer-metadata", MetadataSettings, PREFIX, migration, [])
    run_service("aquifer-metadata", MetadataSettings, PREFIX, serve, arguments)


if __name__ == "__main__":
    main()
