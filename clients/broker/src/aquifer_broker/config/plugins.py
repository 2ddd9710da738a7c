"""Loads the implementations of roles that are named by dotted paths (SR-2, SR-3)."""

import importlib
from typing import TypeVar

from aquifer_core.errors import InvalidConfigurationError
from aquifer_core.ports import RemoteLogMetadataManager, RemoteStorageManager

from aquifer_broker.config.broker_config import BrokerConfig
from aquifer_broker.config.remote_keys import GRPC_METADATA_MANAGER

__all__ = ["Plugins", "check_plugins", "load_role"]

Role = TypeVar("Role")

Plugins = tuple[type[RemoteStorageManager], type[RemoteLogMetadataManager]]


def check_plugins(config: BrokerConfig) -> Plugins | None:
    """The plugin classes; None: remote storage is disabled, and nothing was imported (SR-1).

    Raises:
        InvalidConfigurationError: one is missing, cannot be imported or has another type (SR-2).
    """
    if not config.remote_storage_enabled:
        return None
    storage_key = "remote.log.storage.manager.class.name"
    metadata_key = "remote.log.metadata.manager.class.name"
    storage = load_role(storage_key, config.values[storage_key], RemoteStorageManager)  # type: ignore[type-abstract]
    if config.values[metadata_key] is None:
        raise InvalidConfigurationError(
            f"{metadata_key} is missing: the topic-based manager, its default, is not part of this"
            f" version; give {GRPC_METADATA_MANAGER}",
            metadata={"key": metadata_key, "value": ""},
        )
    metadata = load_role(metadata_key, config.values[metadata_key], RemoteLogMetadataManager)  # type: ignore[type-abstract]
    return storage, metadata


def load_role(key: str, path: str | None, role: type[Role]) -> type[Role]:
    """Imports `package.module.Class` and checks that it implements a role.

    Raises:
        InvalidConfigurationError: the key is missing, the class cannot be imported (with the cause), or it is something else.
    """
    if not path:
        raise InvalidConfigurationError(
            f"{key} is missing: it is mandatory when remote.log.storage.enable=true; give the dotted"
            f" path of a {role.__name__}",
            metadata={"key": key, "value": ""},
        )
    found = _import(key, path)
    if not (isinstance(found, type) and issubclass(found, role)):
        raise InvalidConfigurationError(
            f"{key}={path!r} is not a {role.__name__}: give a class that derives from"
            f" {role.__module__}.{role.__qualname__}",
            metadata={"key": key, "value": path},
        )
    return found


def _import(key: str, path: str) -> object:
    module_name, _, class_name = path.rpartition(".")
    try:
        if not module_name:
            raise ImportError("a dotted path has a module and a class")
        return getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a plugin's module may raise anything while it is imported
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidConfigurationError(
            f"{key}={path!r} cannot be imported ({cause}): install the distribution that has it, or"
            " correct the path",
            metadata={"key": key, "value": path},
        ) from error
