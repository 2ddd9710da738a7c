"""Registers the fixture plugins; fixtures themselves live in tests/fixtures."""

from pathlib import Path

_FIXTURES = Path(__file__).parent / "fixtures"

pytest_plugins = [f"fixtures.{path.stem}" for path in sorted(_FIXTURES.glob("*.py"))]
