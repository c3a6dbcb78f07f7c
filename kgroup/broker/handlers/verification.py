"""The error code for a write outside of its transaction, by API and version.

Source: KIP-890; Kafka's ``AddPartitionsToTxnManager``, ``ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

#: API -> the first version whose clients know TRANSACTION_ABORTABLE. Older ones are answered
#: INVALID_TXN_STATE.
_KNOWS_ABORTABLE_FROM: Final[Mapping[str, int]] = {"produce": 11, "txn_offset_commit": 4}
#: API -> the coordinator's error -> one that the API's clients retry instead: a Produce goes to no
#: coordinator.
_RETRIED: Final[Mapping[str, Mapping[ErrorCode, ErrorCode]]] = {
    "produce": {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS}
}


def verification_code(context: RequestContext, error: RequestError) -> ErrorCode:
    """The error code for the client of a Produce or TxnOffsetCommit."""
    if error.code is ErrorCode.TRANSACTION_ABORTABLE:
        knows = context.version >= _KNOWS_ABORTABLE_FROM[context.api]
        return error.code if knows else ErrorCode.INVALID_TXN_STATE
    return _RETRIED.get(context.api, {}).get(error.code, error.code)
