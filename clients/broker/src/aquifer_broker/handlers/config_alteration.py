"""Changes of settings: what they would make, whether that may be, and writing it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aquifer_core.errors import InvalidConfigurationError, InvalidRequestError

from aquifer_broker.cluster.ports import ConfigChange, ConfigOperation, ConfigResource
from aquifer_broker.config.broker_keys import DEFINITIONS_BY_NAME
from aquifer_broker.config.config_text import config_text
from aquifer_broker.config.definitions import ConfigType
from aquifer_broker.config.topic_config import (
    TOPIC_DEFINITIONS,
    effective_log_config,
    validate_topic_configs,
)
from aquifer_broker.handlers.config_resources import ResourceType, no_topic, resource_type
from aquifer_broker.handlers.services import BrokerServices

__all__ = ["ConfigAlteration"]

_VIEW_WAIT_S: Final = 2.0


class ConfigAlteration:
    """What both ways of altering do once the changes are known."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def current(self, resource: Any) -> Mapping[str, str]:
        """What is set now.

        Raises:
            RemoteResourceNotFoundError: no such topic.
        """
        if resource_type(resource) is ResourceType.BROKER:
            return self._services.view.dynamic_configs(resource.resource_name)
        topic = self._services.view.topic(resource.resource_name)
        if topic is None:
            raise no_topic(resource.resource_name)
        return topic.configs

    async def alter(
        self, resource: Any, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> None:
        """Checks the outcome, then writes; waits a little until this broker has seen it."""
        before = self.current(resource)
        after = self._after(before, changes)
        timeout_s = self._services.config.request_timeout_ms / 1000
        if resource_type(resource) is ResourceType.TOPIC:
            self._check_topic(before, after)
            kind = ConfigResource.TOPIC
        else:
            # What a broker of another version stored can be taken back by any.
            _check_dynamic(
                [change for change in changes if change.operation is not ConfigOperation.DELETE]
            )
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
        if definition is not None and definition.counts_elsewhere is not None:
            raise InvalidConfigurationError(
                f"{change.key} has no effect in a broker: set {definition.counts_elsewhere}",
                metadata={"key": change.key, "value": change.value or ""},
            )
        if definition is None or not definition.dynamic:
            raise InvalidConfigurationError(
                f"{change.key} cannot be changed while brokers run: set it in server.properties and restart",
                metadata={"key": change.key, "value": change.value or ""},
            )
        if change.value is not None:
            definition.parse(change.value)
