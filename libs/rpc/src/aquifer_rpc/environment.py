"""Loads settings from the environment and refuses what is misspelt."""

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args

from aquifer_core.errors import InvalidConfigurationError
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings
from pydantic_settings.exceptions import SettingsError

NESTED_DELIMITER = "__"

S = TypeVar("S", bound=BaseSettings)


def load_settings(
    settings_type: type[S], prefix: str, environ: Mapping[str, str] | None = None
) -> S:
    """Reads the settings of a process from its environment.

    Args:
        settings_type: a `BaseSettings` class with `env_nested_delimiter` "__".
        prefix: of the variables, for example `AQUIFER_STORAGE_`.
        environ: None takes `os.environ`; only names are checked in another one.

    Raises:
        InvalidConfigurationError: a variable with the prefix is no setting, or a value is refused; one line.
    """
    refuse_unknown_variables(settings_type, prefix, os.environ if environ is None else environ)
    try:
        return settings_type(_env_prefix=prefix)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = prefix + NESTED_DELIMITER.join(str(part) for part in first["loc"]).upper()
        raise _refused(name, f"{name}: {first['msg']}") from error
    except SettingsError as error:
        raise _refused(prefix, f"{prefix}*: {error}") from error


def refuse_unknown_variables(
    settings_type: type[BaseModel], prefix: str, environ: Mapping[str, str]
) -> None:
    """Refuses variables that begin with the prefix and name no setting: pydantic-settings ignores them silently.

    Raises:
        InvalidConfigurationError: names the variable and the nearest real one.
    """
    known = dict(_variables(settings_type, prefix.upper()))
    open_ended = tuple(f"{name}{NESTED_DELIMITER}" for name, closed in known.items() if not closed)
    for name in sorted(environ):
        upper = name.upper()
        if not upper.startswith(prefix.upper()) or upper in known or upper.startswith(open_ended):
            continue
        close = difflib.get_close_matches(upper, known, n=1, cutoff=0.5)
        remedy = f"did you mean {close[0]}?" if close else "remove it"
        raise _refused(name, f"{name} is not a setting; {remedy}")


def _refused(key: str, message: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(message, metadata={"key": key})


def _variables(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, bool]]:
    """Names of all variables of a model, and whether nothing can be nested below them."""
    for field_name, field in model.model_fields.items():
        name = prefix + field_name.upper()
        groups = [part for part in _parts(field.annotation) if _is_model(part)]
        mapping = any(
            getattr(part, "__origin__", part) in (dict, Mapping)
            for part in _parts(field.annotation)
        )
        yield name, not mapping
        for group in groups:
            yield from _variables(group, name + NESTED_DELIMITER)


def _parts(annotation: Any) -> list[Any]:
    """The alternatives of a union, or the annotation itself."""
    if hasattr(annotation, "__origin__") and annotation.__origin__ is Annotated:
        return _parts(get_args(annotation)[0])
    arguments = get_args(annotation)
    if arguments and type(None) in arguments:
        return [part for argument in arguments for part in _parts(argument)]
    if type(annotation).__name__ == "UnionType":
        return [part for argument in arguments for part in _parts(argument)]
    return [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
