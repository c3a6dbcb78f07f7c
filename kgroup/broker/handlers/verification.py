"""The error with which a write outside of its transaction is refused, by API and version.

Source: KIP-890; Kafka's ``AddPartitionsToTxnManager``, ``ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

#: API -> the first version whose clients know TRANSACTION_ABORTABLE. Those before it are answered
#: INVALID_TXN_STATE.
_KNOWS_ABORTABLE_FROM: Final[Mapping[str, int]] = {"produce": 11, "txn_offset_commit": 4}
#: API -> what its clients retry in place of a coordinator's error. Producers ask no coordinator.
_RETRIED: Final[Mapping[str, Mapping[ErrorCode, ErrorCode]]] = {
    "produce": {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS}
}


def verification_code(context: RequestContext, error: RequestError) -> ErrorCode:
    """What the client of a Produce or TxnOffsetCommit is answered for a refusal."""
    if error.code is ErrorCode.TRANSACTION_ABORTABLE:
        knows = context.version >= _KNOWS_ABORTABLE_FROM[context.api]
        return error.code if knows else ErrorCode.INVALID_TXN_STATE
    return _RETRIED.get(context.api, {}).get(error.code, error.code)
