"""Kafka's own topics: those of the coordinators, as clients see them.

The coordinators here keep their state in memory. Their topics are listed, with the partitions and
leaders of the shards, from the first search for a coordinator on, but have no records: to read one
is UNKNOWN_TOPIC_OR_PARTITION. Clients can neither create them nor write to them, nor, other than in
Kafka, delete or change them: there, a client that deletes them deletes all groups.

Source: Kafka's ``Topic.INTERNAL_TOPICS``, ``KafkaApis.getOrCreateInternalTopic``,
``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    OFFSETS_TOPIC: {**_COMPACTED, "compression.type": "producer"},
    TRANSACTIONS_TOPIC: {
        **_COMPACTED,
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    },
}


@final
@attrs.frozen
class InternalTopic:
    """A topic of a coordinator, with the replicas of its shards."""

    is_internal: ClassVar = True

    name: str
    replicas: Sequence[PartitionReplicas]

    @property
    def configs(self) -> Mapping[str, str]:
        """Those with which Kafka creates it."""
        return _CONFIGS[self.name]

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


def refuse_change(name: str) -> None:
    """Refuse to delete a topic of a coordinator, or to change its partitions or configs.

    Raises:
        RequestError: POLICY_VIOLATION.
    """
    if name in INTERNAL_TOPICS:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {name!r} belongs to a coordinator; the embedded broker neither deletes nor"
            " changes it. DeleteGroups deletes a group with its offsets",
        )
