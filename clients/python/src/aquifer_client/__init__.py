"""Typed async client of the Aquifer services."""
