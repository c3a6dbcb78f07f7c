"""What of an assignment reaches the source of records: another member wrote it, and may be wrong.

The leader of a classic group sends bytes to each member that no broker looks into. A topic name
that Kafka does not admit is an error to librdkafka at best and ends the process at worst, so every
entry is checked here before anything is opened, sought or looked up. What cannot be read is left
out, and the rest is read.

The other member also decides how long the assignment is. A topic's name is checked once, however
many partitions it has, and an assignment of `MANY` partitions is no work for the event loop.

Another member also decides how long the assignment is. One of `MANY` partitions or more is taken
over in a thread; a topic's name is checked once, however many partitions it has.

Left to others: partitions that the cluster does not have (yet). The leader may have newer metadata
than this member's brokers, so they are waited for where they are read.

Source: Kafka's ``Topic.validate`` and ``SubscriptionState.checkAssignmentMatchedSubscription``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, final

import attrs

from kgroup.types import Assignment, TopicPartition, name_fault, number_fault

MANY: Final = 5_000
"""From so many partitions on, a thread checks and sorts an assignment, and not the event loop."""
_NOT_SUBSCRIBED: Final = "this member does not subscribe to the topic"


@final
@attrs.frozen
class ReceivedAssignment:
    """An assignment that can be read, and what was left out of it.

    Attributes:
        partitions: each once, in the leader's order.
        left_out: for each entry that was left out, as a text, what is wrong with it.
        foreign: the topics of those left out that could be read, which are not subscribed.
    """

    partitions: tuple[TopicPartition, ...]
    left_out: Mapping[str, str]
    foreign: frozenset[str] = frozenset()


@final
@attrs.frozen
class TakenOver:
    """What an assignment means for a member.

    Attributes:
        admitted: what of it can be read.
        assignment: that, sorted, beside the assignment before.
        given_up: what the member owned and was not assigned, sorted.
    """

    admitted: ReceivedAssignment
    assignment: Assignment
    given_up: tuple[TopicPartition, ...]


def admit(assigned: Iterable[TopicPartition], topics: Collection[str]) -> ReceivedAssignment:
    """Check an assignment.

    Args:
        assigned: what the leader gave.
        topics: what this member joined with.
    """
    admitted: dict[TopicPartition, None] = {}
    left_out: dict[str, str] = {}
    foreign: set[str] = set()
    names: dict[str, tuple[str, str | None]] = {}
    for name in assigned:
        if name.topic in topics and name.partition >= 0:  # what was joined with is a topic's name
            admitted[name] = None
            continue
        if name.topic not in names:
            names[name.topic] = f"{name.topic!r:.80}", name_fault(name.topic)
        entry, fault = names[name.topic]
        fault = fault or number_fault(name.partition)
        if fault is None:
            foreign.add(name.topic)
        left_out[f"{entry}-{name.partition}"] = fault or _NOT_SUBSCRIBED
    return ReceivedAssignment(tuple(admitted), left_out, frozenset(foreign))


def take_over(
    assigned: Iterable[TopicPartition],
    topics: Collection[str],
    previous: Iterable[TopicPartition] = (),
    owned: Iterable[TopicPartition] = (),
) -> TakenOver:
    """Make of an assignment what the member goes on with.

    Args:
        assigned: what the leader gave.
        topics: what this member joined with.
        previous: the partitions of the generation that the program held before.
        owned: what it has to give up if it was not assigned it.
    """
    admitted = admit(assigned, topics)
    assignment = Assignment(admitted.partitions, previous)
    given_up = Assignment(name for name in owned if name not in assignment)
    return TakenOver(admitted, assignment, given_up.partitions)
