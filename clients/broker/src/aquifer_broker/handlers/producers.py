"""InitProducerId for idempotent producers."""

import structlog
from kio.schema.errors import ErrorCode

from aquifer_broker.handlers.error_codes import error_code_of
from aquifer_broker.handlers.services import BrokerServices
from aquifer_broker.protocol.dispatch import Answer, Call

__all__ = ["InitProducerIdHandler"]

logger = structlog.get_logger(__name__)


class InitProducerIdHandler:
    """Answers InitProducerId v0 to v5; transactions are refused by the coordinator look-up before."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    async def __call__(self, call: Call) -> Answer:
        """A fresh id with epoch 0, also for a producer that bumps its epoch (KIP-360: any newer identity will do)."""
        error, producer_id, epoch = ErrorCode.none, -1, -1
        if call.body.transactional_id == "":
            error = ErrorCode.invalid_request
        elif call.body.transactional_id is not None:
            error = ErrorCode.not_coordinator
        else:
            try:
                producer_id, epoch = await self._services.producer_ids.allocate(), 0
            except Exception as failure:
                logger.warning("producer_id_not_allocated", error=str(failure))
                error = error_code_of(failure, unavailable=ErrorCode.coordinator_load_in_progress)
        return {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}
