"""Alembic migrations, packaged with the service."""
