"""Finds the implementation of a role by its dotted Python path (SR-2, SR-3)."""

import importlib
from typing import Any

from aquifer_core.errors import InvalidConfigurationError

__all__ = ["load_role"]


def load_role(class_name: str, role: type[Any], key: str) -> Any:
    """Makes an object of the class named, without arguments.

    Args:
        class_name: dotted path, for example `aquifer_client.GrpcRemoteStorageManager`.
        role: the abstract class it must derive from.
        key: of the setting, for the message.

    Raises:
        InvalidConfigurationError: it is missing, cannot be imported, or is not a class of the role.
    """
    if not class_name:
        raise _refused(key, f"{key} is missing; give the dotted path of a {role.__name__}")
    module_name, _, name = class_name.rpartition(".")
    if not module_name:
        raise _refused(key, f"{key}={class_name}: give a dotted path, module and class")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise _refused(key, f"{key}={class_name} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, role)):
        raise _refused(key, f"{key}={class_name} is not a {role.__name__}")
    try:
        return found()
    except TypeError as error:
        raise _refused(
            key, f"{key}={class_name} cannot be made without arguments: {error}"
        ) from error


def _refused(key: str, message: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(message, metadata={"key": key})
