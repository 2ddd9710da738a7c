"""Runs the manager service: `python -m aquifer_manager`."""

from typing import NoReturn

from aquifer_rpc.service import run_service

from aquifer_manager.app import serve
from aquifer_manager.settings import ENV_PREFIX, ManagerSettings


def main() -> NoReturn:
    """Entry point of the command `aquifer-manager`."""
    run_service("aquifer-manager", ManagerSettings, ENV_PREFIX, serve)


if __name__ == "__main__":
    main()
