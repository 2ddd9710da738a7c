"""Entry point of the `aquifer` command."""

import sys

from aquifer_admin import cli


def main() -> None:
    """Runs the command line and exits."""
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
