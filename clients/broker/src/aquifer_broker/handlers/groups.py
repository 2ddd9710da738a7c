"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and FindCoordinator."""

from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from aquifer_broker.coordination.group_values import JoinRequest, MemberIdentity, SyncRequest
from aquifer_broker.handlers.metadata import broker_entry
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call
from aquifer_broker.protocol.entities import millis

__all__ = [
    "FindCoordinatorHandler",
    "HeartbeatHandler",
    "JoinGroupHandler",
    "LeaveGroupHandler",
    "SyncGroupHandler",
]


class _KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class FindCoordinatorHandler:
    """Answers FindCoordinator v0 to v6."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """One coordinator per key; up to v3 there is one key."""
        key_type = getattr(call.body, "key_type", _KeyType.GROUP)
        if hasattr(call.body, "coordinator_keys"):
            keys = call.body.coordinator_keys
            return {
                "coordinators": [{"key": key, **self._find(call, key_type, key)} for key in keys]
            }
        return self._find(call, key_type, call.body.key)

    def _find(self, call: Call, key_type: int, key: str) -> dict[str, Any]:
        missing: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}
        if key_type == _KeyType.TRANSACTION:
            return {
                **missing,
                "error_code": ErrorCode.coordinator_not_available,
                "error_message": "transactions are not served by this cluster",
            }
        if key_type != _KeyType.GROUP:
            message = f"coordinators of type {key_type} are not known"
            return {**missing, "error_code": ErrorCode.invalid_request, "error_message": message}
        broker = self._services.groups.coordinator(key)
        entry = broker_entry(broker, call.client.listener) if broker is not None else None
        if entry is None:
            return {
                **missing,
                "error_code": ErrorCode.coordinator_not_available,
                "error_message": "no live broker is known",
            }
        entry.pop("rack")
        return {**entry, "error_code": ErrorCode.none, "error_message": None}


class JoinGroupHandler:
    """Answers JoinGroup v0 to v9."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Waits for the rebalance."""
        body = call.body
        session_timeout_ms = millis(body.session_timeout)
        # v0 had one timeout for both.
        rebalance_timeout_ms = session_timeout_ms
        if hasattr(body, "rebalance_timeout"):
            rebalance_timeout_ms = millis(body.rebalance_timeout)
        result = await self._services.groups.join(
            body.group_id,
            JoinRequest(
                identity=_identity(body),
                client_id=call.request.client_id or "",
                client_host=f"/{call.client.host}",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=body.protocol_type,
                protocols=tuple((each.name, each.metadata) for each in body.protocols),
                requires_known_member_id=call.version >= 4,
                can_skip_assignment=call.version >= 9,
            ),
        )
        name = result.protocol_name
        return {
            "error_code": result.error,
            "generation_id": result.generation_id,
            "protocol_type": result.protocol_type,
            # Nullable since v7.
            "protocol_name": name if name is not None or call.version >= 7 else "",
            "leader": result.leader_id,
            "skip_assignment": result.skip_assignment,
            "member_id": result.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "metadata": member.metadata,
                }
                for member in result.members
            ],
        }


class SyncGroupHandler:
    """Answers SyncGroup v0 to v5."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Waits for the leader's assignment."""
        body = call.body
        # From v5 on the client says what it believes the protocol to be (KIP-559).
        if call.version >= 5 and (body.protocol_type is None or body.protocol_name is None):
            return {"error_code": ErrorCode.inconsistent_group_protocol, "assignment": b""}
        result = await self._services.groups.sync(
            body.group_id,
            SyncRequest(
                identity=_identity(body),
                generation_id=body.generation_id,
                protocol_type=getattr(body, "protocol_type", None),
                protocol_name=getattr(body, "protocol_name", None),
                assignments={each.member_id: each.assignment for each in body.assignments},
            ),
        )
        return {
            "error_code": result.error,
            "protocol_type": result.protocol_type,
            "protocol_name": result.protocol_name,
            "assignment": result.assignment,
        }


class HeartbeatHandler:
    """Answers Heartbeat v0 to v4."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Keeps a member's session."""
        body = call.body
        return {
            "error_code": self._services.groups.heartbeat(
                body.group_id, _identity(body), body.generation_id
            )
        }


class LeaveGroupHandler:
    """Answers LeaveGroup v0 to v5."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """Lets members go; up to v2 there is one."""
        body = call.body
        leaving = body.members if hasattr(body, "members") else (body,)
        codes = self._services.groups.leave(body.group_id, [_identity(each) for each in leaving])
        if isinstance(codes, ErrorCode):
            return {"error_code": codes, "members": ()}
        if not hasattr(body, "members"):
            return {"error_code": codes[0]}
        return {
            "error_code": ErrorCode.none,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.group_instance_id,
                    "error_code": code,
                }
                for each, code in zip(leaving, codes, strict=True)
            ],
        }


def _identity(body: Any) -> MemberIdentity:
    return MemberIdentity(
        member_id=body.member_id, group_instance_id=getattr(body, "group_instance_id", None)
    )
