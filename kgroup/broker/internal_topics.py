"""Kafka's own topics: those of the coordinators, as clients see them.

The coordinators here keep their state in memory. Their topics are listed, with the partitions and
leaders of the shards, from the first search for a coordinator on, but have no records: to read one
is UNKNOWN_TOPIC_OR_PARTITION. Clients can neither create them nor write to them.

Source: Kafka's ``Topic.INTERNAL_TOPICS``, ``KafkaApis.getOrCreateInternalTopic``,
``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final
from uuid import NAMESPACE_OID, UUID, uuid5

import attrs

from kgroup.broker.replicas import PartitionReplicas
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The topic of the group coordinator."""
TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""The topic of the transaction coordinator."""
METADATA_TOPIC: Final = "__cluster_metadata"
"""The controllers' log, which is not listed."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
RESERVED: Final = INTERNAL_TOPICS | {METADATA_TOPIC}
"""The names that no topic of a client can have."""


@final
@attrs.frozen
class InternalTopic:
    """A topic of a coordinator, with the replicas of its shards."""

    is_internal: ClassVar = True

    name: str
    replicas: Sequence[PartitionReplicas]

    @property
    def topic_id(self) -> UUID:
        """Its id, the same in every cluster."""
        return uuid5(NAMESPACE_OID, self.name)


def refuse_creation(name: str) -> None:
    """Refuse to create a topic of Kafka's own.

    Raises:
        RequestError: TOPIC_ALREADY_EXISTS; INVALID_REQUEST for the controllers' log.
    """
    if name == METADATA_TOPIC:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    if name in INTERNAL_TOPICS:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def refuse_writing(name: str) -> None:
    """Refuse to write to a topic of a coordinator, or to delete its records.

    Raises:
        RequestError: INVALID_TOPIC_EXCEPTION.
    """
    if name in INTERNAL_TOPICS:
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}"
        )
