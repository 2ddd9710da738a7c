"""The RemoteStorageManager service: segment bytes in an object store."""

from importlib.metadata import version

__version__ = version("aquifer-storage")
