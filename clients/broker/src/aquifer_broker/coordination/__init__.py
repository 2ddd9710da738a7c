"""Coordination of consumer groups and producers."""
