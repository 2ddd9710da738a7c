"""Local remote index files of partitions (SR-32, SR-33)."""

from aquifer_manager.adapters.remote_index.directory import IndexDirectory
from aquifer_manager.adapters.remote_index.store import IndexStore

__all__ = ["IndexDirectory", "IndexStore"]
