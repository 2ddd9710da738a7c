"""`aquifer-metadata` serves; `aquifer-metadata migrate` brings the database schema up to date and ends."""

import sys
from typing import NoReturn

from aquifer_rpc.service import run_service

from aquifer_metadata.app import migrate_only, serve
from aquifer_metadata.settings import PREFIX, MetadataSettings


def main() -> NoReturn:
    """Entry point of the command."""
    arguments = sys.argv[1:]
    if arguments == ["migrate"]:
        run_service("aquifer-metadata", MetadataSettings, PREFIX, migrate_only, [])
    run_service("aquifer-metadata", MetadataSettings, PREFIX, serve, arguments)


if __name__ == "__main__":
    main()
