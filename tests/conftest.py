"""Registers the fixture plugins; fixtures themselves live in tests/fixtures."""

from pathlib import Path

import pytest

_FIXTURES = Path(__file__).parent / "fixtures"

pytest_plugins = [f"fixtures.{path.stem}" for path in sorted(_FIXTURES.glob("*.py"))]

# All at once, before the first is imported: fixture modules may import each other.
pytest.register_assert_rewrite(*pytest_plugins)
