"""What a Metadata response says of topics: their partitions, leaders and errors.

``kgroup.client.responses`` has checked that its values are possible, and the cluster keeps its
brokers and leaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Action, Request, reaction_to_code
from kgroup.errors import BrokerError
from kgroup.types import TopicInfo, TopicPartition

_NO_EPOCH: Final = -1


@final
@attrs.frozen(kw_only=True)
class Metadata:
    """A Metadata response.

    Attributes:
        topics: the topics that exist.
        leaders: for each partition that has a leader, the leader's node id.
        leaderless: the partitions that have none.
        leader_epochs: for each partition its leader epoch, if the broker sends it (KIP-320).
        missing: the requested topics that do not exist, or whose partitions are not all known yet.
        internal: the names of Kafka's internal topics.
        refused: of those topics whose errors were not to be raised, the ones that this member may
            not read, or whose names are invalid, with the broker's error.
    """

    topics: Mapping[str, TopicInfo]
    leaders: Mapping[TopicPartition, int]
    leaderless: frozenset[TopicPartition] = frozenset()
    leader_epochs: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    missing: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()
    refused: Mapping[str, BrokerError] = attrs.field(factory=dict)


def read_metadata(
    answer: Any,
    wanted: frozenset[str] | None,
    foreign: frozenset[str],
    racks: Mapping[int, str],
) -> Metadata:
    """What a Metadata response without an error of its own says of the requested topics.

    Args:
        answer: the entity that kio decoded.
        wanted: the requested topics; None means all. The response may have others, too.
        foreign: those of which an error is in the result's ``refused`` and is not raised.
        racks: the racks of brokers, by their node ids.

    Raises:
        BrokerError: a topic has an error that the error policy does not ignore.
    """
    topics: dict[str, TopicInfo] = {}
    leaders: dict[TopicPartition, int] = {}
    leaderless = set[TopicPartition]()
    leader_epochs: dict[TopicPartition, int] = {}
    internal = set()
    refused: dict[str, BrokerError] = {}
    for topic in answer.topics:
        if wanted is not None and topic.name not in wanted:
            continue  # another member's
        code = int(topic.error_code)
        if code:
            reaction = reaction_to_code(Request.METADATA, code)
            if reaction.action is Action.IGNORE:
                continue
            error = broker_error(Request.METADATA, code, f"topic {topic.name!r}")
            if topic.name not in foreign:
                raise error
            refused[str(topic.name)] = error
            continue
        parts = sorted(topic.partitions, key=lambda part: int(part.partition_index))
        if parts and parts[-1].partition_index != len(parts) - 1:
            continue  # the broker does not know all of them yet
        topics[topic.name] = TopicInfo(
            name=topic.name,
            partitions=len(parts),
            racks=tuple(
                tuple(racks[node] for node in part.replica_nodes if node in racks) for part in parts
            )
            if racks
            else (),
            topic_id=getattr(topic, "topic_id", None),
        )
        if topic.is_internal:
            internal.add(str(topic.name))
        _read_leaders(topic, leaders, leaderless, leader_epochs)
    return Metadata(
        topics=topics,
        leaders=leaders,
        leaderless=frozenset(leaderless),
        leader_epochs=leader_epochs,
        missing=(wanted or frozenset()) - topics.keys() - refused.keys(),
        internal=frozenset(internal),
        refused=refused,
    )


def _read_leaders(
    topic: Any,
    leaders: dict[TopicPartition, int],
    leaderless: set[TopicPartition],
    leader_epochs: dict[TopicPartition, int],
) -> None:
    """Add the leaders and the leader epochs of a topic's partitions in a Metadata response."""
    for part in topic.partitions:
        name = TopicPartition(topic.name, part.partition_index)
        if part.leader_id >= 0:
            leaders[name] = part.leader_id
        else:
            leaderless.add(name)
        if (epoch := getattr(part, "leader_epoch", _NO_EPOCH)) >= 0:
            leader_epochs[name] = epoch
