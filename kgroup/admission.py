"""What of an assignment reaches the source of records: another member wrote it, and may be wrong.

The leader of a classic group sends bytes to each member that no broker looks into. A topic name
that Kafka does not admit is an error to librdkafka at best and ends the process at worst, so every
entry is checked here before anything is opened, sought or looked up. What cannot be read is left
out, and the rest is read.

Left to others: partitions that the cluster does not have (yet). The leader may have newer metadata
than this member's brokers, so they are waited for where they are read.

Source: Kafka's ``Topic.validate`` and ``SubscriptionState.checkAssignmentMatchedSubscription``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, final

import attrs

from kgroup.model import TopicPartition, partition_fault

_NOT_SUBSCRIBED: Final = "this member does not subscribe to the topic"


@final
@attrs.frozen
class Admitted:
    """An assignment that can be read, and what was left out of it.

    Attributes:
        partitions: each once, in the leader's order.
        left_out: for each entry that was left out, as a text, what is wrong with it.
        foreign: those left out that could be read, of topics that are not subscribed.
    """

    partitions: tuple[TopicPartition, ...]
    left_out: Mapping[str, str]
    foreign: tuple[TopicPartition, ...] = ()


def admit(assigned: Iterable[TopicPartition], topics: Collection[str]) -> Admitted:
    """Check an assignment.

    Args:
        assigned: what the leader gave.
        topics: what this member joined with.
    """
    admitted: dict[TopicPartition, None] = {}
    left_out: dict[str, str] = {}
    foreign: dict[TopicPartition, None] = {}
    for name in assigned:
        if name.topic in topics and name.partition >= 0:  # what was joined with is a topic's name
            admitted[name] = None
            continue
        fault = partition_fault(name)
        if fault is None:
            foreign[name] = None
        left_out[f"{name.topic!r:.80}-{name.partition}"] = fault or _NOT_SUBSCRIBED
    return Admitted(tuple(admitted), left_out, tuple(foreign))
