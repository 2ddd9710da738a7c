"""Implementations of the domain's ports."""
