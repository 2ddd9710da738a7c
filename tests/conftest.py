"""Registers the fixture plugins; fixtures themselves live in tests/fixtures."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_FIXTURES = Path(__file__).parent / "fixtures"

pytest_plugins = [f"fixtures.{path.stem}" for path in sorted(_FIXTURES.glob("*.py"))]

# How long an example takes says something of the machine only.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# All at once, before the first is imported: fixture modules may import each other.
pytest.register_assert_rewrite(*pytest_plugins)
