"""DescribeGroups, ListGroups and DeleteGroups."""

from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from aquifer_broker.coordination.group import Group
from aquifer_broker.coordination.group_values import GroupState
from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = ["DeleteGroupsHandler", "DescribeGroupsHandler", "ListGroupsHandler"]

logger = structlog.get_logger(__name__)

_TYPE = "classic"


class DescribeGroupsHandler:
    """Answers DescribeGroups v0 to v6."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Members, state and assignments of groups."""
        return {
            "groups": [await self._one(group_id, call.version) for group_id in call.body.groups]
        }

    async def _one(self, group_id: str, version: int) -> dict[str, Any]:
        groups = self._services.groups
        error = groups.refusal(group_id)
        group = groups.get(group_id)
        state = GroupState.DEAD
        if error is ErrorCode.none and group is None:
            try:
                if await groups.offsets.fetch_offsets(group_id, None):
                    state = GroupState.EMPTY
                elif version >= 6:
                    error = ErrorCode.group_id_not_found
            except Exception as failure:
                error = error_code_of(failure, unavailable=ErrorCode.coordinator_load_in_progress)
        if error is not ErrorCode.none or group is None:
            return _described(group_id, error, state)
        return {
            **_described(group_id, error, group.state),
            "protocol_type": group.protocol_type or "",
            "protocol_data": group.protocol_name or "",
            "members": _members(group),
        }


class ListGroupsHandler:
    """Answers ListGroups v0 to v5."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Groups that this broker coordinates, those with nothing but offsets too."""
        groups = self._services.groups
        here = {group.group_id: group for group in groups.groups()}
        try:
            stored = await groups.offsets.list_groups()
        except Exception as failure:
            logger.warning("groups_not_listed", error=str(failure))
            code = error_code_of(failure, unavailable=ErrorCode.coordinator_load_in_progress)
            return {"error_code": code, "groups": ()}
        listed = [_listed(group_id, group) for group_id, group in here.items()]
        listed += [
            _listed(group_id, None)
            for group_id in stored
            if group_id not in here and groups.refusal(group_id) is ErrorCode.none
        ]
        states = {state.lower() for state in getattr(call.body, "states_filter", ())}
        types = {kind.lower() for kind in getattr(call.body, "types_filter", ())}
        return {
            "error_code": ErrorCode.none,
            "groups": [
                each
                for each in listed
                if (not states or each["group_state"].lower() in states)
                and (not types or _TYPE in types)
            ],
        }


class DeleteGroupsHandler:
    """Answers DeleteGroups v0 to v2."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Deletes empty groups with their offsets."""
        results = []
        for group_id in call.body.groups_names:
            try:
                error = await self._services.groups.delete(group_id)
            except Exception as failure:
                logger.warning("group_not_deleted", group=group_id, error=str(failure))
                error = error_code_of(failure, unavailable=ErrorCode.coordinator_not_available)
            results.append({"group_id": group_id, "error_code": error})
        return {"results": results}


def _described(group_id: str, error: ErrorCode, state: GroupState) -> dict[str, Any]:
    missing = error is ErrorCode.group_id_not_found
    return {
        "error_code": error,
        "error_message": f"Group {group_id} not found." if missing else None,
        "group_id": group_id,
        "group_state": state if error is ErrorCode.none or missing else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _members(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(group.protocol_name),
            "member_assignment": member.assignment,
        }
        for member in group.members
    ]


def _listed(group_id: str, group: Group | None) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "protocol_type": (group.protocol_type or "") if group is not None else "",
        "group_state": group.state if group is not None else GroupState.EMPTY,
        "group_type": _TYPE,
    }
