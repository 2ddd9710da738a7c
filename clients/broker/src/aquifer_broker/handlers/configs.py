"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog
from aquifer_core.errors import InvalidRequestError
from kio.schema.errors import ErrorCode

from aquifer_broker.cluster.ports import ConfigChange, ConfigOperation
from aquifer_broker.handlers.config_alteration import ConfigAlteration
from aquifer_broker.handlers.config_entries import Dynamic, broker_entries, topic_entries
from aquifer_broker.handlers.config_resources import (
    ResourceType,
    dynamic_of,
    no_topic,
    resource_type,
)
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = ["AlterConfigsHandler", "DescribeConfigsHandler", "IncrementalAlterConfigsHandler"]

logger = structlog.get_logger(__name__)

_Work = Callable[[], Awaitable[Mapping[str, Any]]]


async def _outcome(resource: Any, work: _Work) -> dict[str, Any]:
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


async def _alter_each(
    resources: Sequence[Any], work: Callable[[Any], _Work]
) -> list[dict[str, Any]]:
    """Alters resources one after the other; which of two changes of the same thing would count is nobody's guess."""
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    for resource in resources:
        twice = counts[resource.resource_type, resource.resource_name] > 1
        what = f"{resource.resource_name!r}" if twice else _named_twice(resource.configs)

        async def refuse(what: str | None = what) -> Mapping[str, Any]:
            raise InvalidRequestError(f"{what} is named twice; name it once")

        outcomes.append(await _outcome(resource, work(resource) if what is None else refuse))
    return outcomes


def _named_twice(configs: Sequence[Any]) -> str | None:
    counts = Counter(each.name for each in configs)
    return next((name for name, count in counts.items() if count > 1), None)


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
        if resource_type(resource) is ResourceType.TOPIC:
            topic = self._services.view.topic(resource.resource_name)
            if topic is None:
                raise no_topic(resource.resource_name)
            return topic_entries(config, dynamic_of(self._services), topic.configs, wanted)
        view = self._services.view
        if resource.resource_name == "":
            cluster_wide = view.dynamic_configs("")
            names = cluster_wide.keys() & (set(wanted) if wanted else cluster_wide.keys())
            return broker_entries(config, Dynamic(own={}, cluster_wide=cluster_wide), names)
        _check_asked(self._services, resource.resource_name)
        return broker_entries(config, dynamic_of(self._services), wanted)


class IncrementalAlterConfigsHandler:
    """Answers IncrementalAlterConfigs v0 and v1."""

    def __init__(self, services: BrokerServices) -> None:
        self._alteration = ConfigAlteration(services)

    async def __call__(self, call: Call) -> Answer:
        """Alters every resource, each all or none."""
        validate_only = call.body.validate_only

        def work(resource: Any) -> _Work:
            async def alter() -> Mapping[str, Any]:
                changes = [_change(each) for each in resource.configs]
                await self._alteration.alter(resource, changes, validate_only=validate_only)
                return {}

            return alter

        return {"responses": await _alter_each(call.body.resources, work)}


class AlterConfigsHandler:
    """Answers AlterConfigs v0 to v2: what is not named goes back to its default."""

    def __init__(self, services: BrokerServices) -> None:
        self._alteration = ConfigAlteration(services)

    async def __call__(self, call: Call) -> Answer:
        """Replaces the settings of every resource, each all or none."""
        validate_only = call.body.validate_only

        def work(resource: Any) -> _Work:
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

        return {"responses": await _alter_each(call.body.resources, work)}


def _change(requested: Any) -> ConfigChange:
    try:
        operation = ConfigOperation(requested.config_operation)
    except ValueError:
        raise InvalidRequestError(
            f"operation {requested.config_operation} on {requested.name} is not known"
        ) from None
    return ConfigChange(key=requested.name, value=requested.value, operation=operation)


def _check_asked(services: BrokerServices, name: str) -> None:
    if name != str(services.config.node_id):
        raise InvalidRequestError(
            f"this is broker {services.config.node_id}; ask broker {name} itself for its settings"
        )
