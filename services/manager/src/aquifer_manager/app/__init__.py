"""Puts the manager together and runs it."""

from aquifer_manager.app.manager import Manager, serve

__all__ = ["Manager", "serve"]
