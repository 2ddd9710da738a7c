"""`aquifer-storage` serves."""

from typing import NoReturn

from aquifer_rpc.service import run_service

from aquifer_storage.adapters.allocator import share_heaps
from aquifer_storage.app import serve
from aquifer_storage.settings import PREFIX, StorageSettings


def main() -> NoReturn:
    """Entry point of the command."""
    share_heaps()
    run_service(
        "aquifer-storage", StorageSettings, PREFIX, serve, workers=lambda settings: settings.workers
    )


if __name__ == "__main__":
    main()
