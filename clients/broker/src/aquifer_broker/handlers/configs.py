"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import structlog
from aquifer_core.errors import (
    ErrorReason,
    InvalidConfigurationError,
    InvalidRequestError,
    RemoteResourceNotFoundError,
)
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import ConfigChange, ConfigOperation, ConfigResource
from aquifer_broker.config.broker_keys import DEFINITIONS_BY_NAME
from aquifer_broker.config.config_text import config_text
from aquifer_broker.config.definitions import ConfigType
from aquifer_broker.config.topic_config import (
    TOPIC_DEFINITIONS,
    effective_log_config,
    validate_topic_configs,
)
from aquifer_broker.handlers.config_entries import Dynamic, broker_entries, topic_entries
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = [
    "AlterConfigsHandler",
    "DescribeConfigsHandler",
    "IncrementalAlterConfigsHandler",
    "dynamic_of",
]

logger = structlog.get_logger(__name__)

_VIEW_WAIT_S: Final = 2.0


class _ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`, as far as there are settings here."""

    TOPIC = 2
    BROKER = 4


async def _outcome(
    resource: Any, work: Callable[[], Awaitable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """One resource's part of an answer, errors included."""
    base = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    try:
        return {**base, **await work()}
    except Exception as error:
        code = error_code_of(error)
        if code is ErrorCode.unknown_server_error:
            logger.exception("configs_failed", resource=resource.resource_name)
        return {**base, "error_code": code, "error_message": str(error)}


def _resource_type(resource: Any) -> _ResourceType:
    try:
        return _ResourceType(resource.resource_type)
    except ValueError:
        raise InvalidRequestError(
            f"resource type {resource.resource_type} has no settings here: ask for topics (2) or brokers (4)"
        ) from None


class DescribeConfigsHandler:
    """Answers DescribeConfigs v1 to v4."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Describes every resource asked for."""
        results = []
        for resource in call.body.resources:

            async def describe(resource: Any = resource) -> Mapping[str, Any]:
                return {"configs": self._entries(call, resource)}

            results.append({"configs": (), **await _outcome(resource, describe)})
        return {"results": results}

    def _entries(self, call: Call, resource: Any) -> list[dict[str, Any]]:
        entries = self._all_entries(resource)
        for entry in entries:
            if not getattr(call.body, "include_synonyms", False):
                entry["synonyms"] = ()
            if not getattr(call.body, "include_documentation", False):
                entry["documentation"] = None
        return entries

    def _all_entries(self, resource: Any) -> list[dict[str, Any]]:
        wanted = resource.configuration_keys or None
        config = self._services.config
        if _resource_type(resource) is _ResourceType.TOPIC:
            topic = self._services.view.topic(resource.resource_name)
            if topic is None:
                raise _no_topic(resource.resource_name)
            return topic_entries(config, dynamic_of(self._services), topic.configs, wanted)
        view = self._services.view
        if resource.resource_name == "":
            cluster_wide = view.dynamic_configs("")
            names = cluster_wide.keys() & (set(wanted) if wanted else cluster_wide.keys())
            return broker_entries(config, Dynamic(own={}, cluster_wide=cluster_wide), names)
        _check_asked(self._services, resource.resource_name)
        return broker_entries(config, dynamic_of(self._services), wanted)


class _Alteration:
    """What both ways of altering do once the changes are known."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def current(self, resource: Any) -> Mapping[str, str]:
        """What is set now.

        Raises:
            RemoteResourceNotFoundError: no such topic.
        """
        if _resource_type(resource) is _ResourceType.BROKER:
            return self._services.view.dynamic_configs(resource.resource_name)
        topic = self._services.view.topic(resource.resource_name)
        if topic is None:
            raise _no_topic(resource.resource_name)
        return topic.configs

    async def alter(
        self, resource: Any, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Checks the outcome, then writes; waits a little until this broker has seen it."""
        before = self.current(resource)
        after = self._after(before, changes)
        timeout_s = self._services.config.request_timeout_ms / 1000
        if _resource_type(resource) is _ResourceType.TOPIC:
            self._check_topic(before, after)
            kind = ConfigResource.TOPIC
        else:
            _check_dynamic(changes)
            self._check_broker(resource.resource_name, after)
            kind = ConfigResource.BROKER
        async with asyncio.timeout(timeout_s):
            await self._services.metadata.alter_configs(
                kind,
                resource.resource_name,
                [_explicit(change, before, after) for change in changes],
                validate_only=validate_only,
            )
        if not validate_only:
            await self._services.view.wait_until(
                lambda: dict(self.current(resource)) == after, _VIEW_WAIT_S
            )

    def _check_topic(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        config = self._services.config
        # What is in force may have become invalid by other defaults, and an alteration is what puts it right.
        effective = effective_log_config(before, config.log_defaults)
        validate_topic_configs(
            after,
            defaults=config.log_defaults,
            remote_storage_available=config.remote_storage_enabled,
            before=effective,
        )

    def _check_broker(self, name: str, after: Mapping[str, str]) -> None:
        """Checks the whole outcome, as a broker will when it takes it over."""
        view = self._services.view
        if name and not (name.isdecimal() and int(name) in view.brokers):
            raise InvalidRequestError(
                f"there is no broker {name}; give the id of one, or no name for all brokers"
            )
        cluster_wide = view.dynamic_configs("") if name else {}
        self._services.config.with_dynamic({**cluster_wide, **after})

    def _after(self, before: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
        after = dict(before)
        for change in changes:
            if change.operation is ConfigOperation.DELETE:
                after.pop(change.key, None)
            elif change.value is None:
                raise InvalidConfigurationError(
                    f"{change.key} has no value: give one, or DELETE it",
                    metadata={"key": change.key, "value": ""},
                )
            elif change.operation is ConfigOperation.SET:
                after[change.key] = change.value
            else:
                after[change.key] = _changed_list(after, change)
        return after


class IncrementalAlterConfigsHandler:
    """Answers IncrementalAlterConfigs v0 and v1."""

    def __init__(self, services: BrokerServices) -> None:
        self._alteration = _Alteration(services)

    async def __call__(self, call: Call) -> Answer:
        """Alters every resource, each all or none."""
        validate_only = call.body.validate_only

        def work(resource: Any) -> Callable[[], Awaitable[Mapping[str, Any]]]:
            async def alter() -> Mapping[str, Any]:
                changes = [_change(each) for each in resource.configs]
                await self._alteration.alter(resource, changes, validate_only=validate_only)
                return {}

            return alter

        return {"responses": [await _outcome(each, work(each)) for each in call.body.resources]}


class AlterConfigsHandler:
    """Answers AlterConfigs v0 to v2: what is not named goes back to its default."""

    def __init__(self, services: BrokerServices) -> None:
        self._alteration = _Alteration(services)

    async def __call__(self, call: Call) -> Answer:
        """Replaces the settings of every resource, each all or none."""
        validate_only = call.body.validate_only

        def work(resource: Any) -> Callable[[], Awaitable[Mapping[str, Any]]]:
            async def replace() -> Mapping[str, Any]:
                given = {each.name: each.value for each in resource.configs}
                gone = self._alteration.current(resource).keys() - given.keys()
                changes = [ConfigChange(key=key, value=value) for key, value in given.items()]
                changes += [
                    ConfigChange(key=key, value=None, operation=ConfigOperation.DELETE)
                    for key in sorted(gone)
                ]
                await self._alteration.alter(resource, changes, validate_only=validate_only)
                return {}

            return replace

        return {"responses": [await _outcome(each, work(each)) for each in call.body.resources]}


def dynamic_of(services: BrokerServices) -> Dynamic:
    """What was altered of this broker's settings."""
    view = services.view
    return Dynamic(
        own=view.dynamic_configs(str(services.config.node_id)),
        cluster_wide=view.dynamic_configs(""),
    )


def _change(requested: Any) -> ConfigChange:
    try:
        operation = ConfigOperation(requested.config_operation)
    except ValueError:
        raise InvalidRequestError(
            f"operation {requested.config_operation} on {requested.name} is not known"
        ) from None
    return ConfigChange(key=requested.name, value=requested.value, operation=operation)


def _explicit(
    change: ConfigChange, before: Mapping[str, str], after: Mapping[str, str]
) -> ConfigChange:
    """A list that was not set is changed from its default, which only brokers know."""
    is_list_change = change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)
    if not is_list_change or change.key in before:
        return change
    return ConfigChange(key=change.key, value=after[change.key])


def _changed_list(current: Mapping[str, str], change: ConfigChange) -> str:
    definition = TOPIC_DEFINITIONS.get(change.key) or DEFINITIONS_BY_NAME.get(change.key)
    if definition is None or definition.type is not ConfigType.LIST:
        raise InvalidConfigurationError(
            f"{change.operation.name} is not allowed on {change.key}: it is not a list; use SET",
            metadata={"key": change.key, "value": change.value or ""},
        )
    text = current.get(change.key) or config_text(definition.default) or ""
    have = [part for part in text.split(",") if part]
    named = [part.strip() for part in (change.value or "").split(",") if part.strip()]
    if change.operation is ConfigOperation.APPEND:
        return ",".join(have + [part for part in named if part not in have])
    return ",".join(part for part in have if part not in named)


def _check_dynamic(changes: Sequence[ConfigChange]) -> None:
    for change in changes:
        definition = DEFINITIONS_BY_NAME.get(change.key)
        if definition is None or not definition.dynamic:
            raise InvalidConfigurationError(
                f"{change.key} cannot be changed while brokers run: set it in server.properties and restart",
                metadata={"key": change.key, "value": change.value or ""},
            )
        if change.value is not None:
            definition.parse(change.value)


def _check_asked(services: BrokerServices, name: str) -> None:
    if name != str(services.config.node_id):
        raise InvalidRequestError(
            f"this is broker {services.config.node_id}; ask broker {name} itself for its settings"
        )


def _no_topic(name: str) -> RemoteResourceNotFoundError:
    return RemoteResourceNotFoundError(
        f"there is no topic {name!r}", reason=ErrorReason.TOPIC_NOT_FOUND
    )
