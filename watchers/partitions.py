"""The partition watcher: it ends the leader's generation when the group's topics change.

It compares with the metadata from which the assignment was computed, so that it misses no change
since then. Only the leader watches, for the topics of the whole group: if a follower of a stable
group joins again, the group does not rebalance.

Source: Kafka's ``ConsumerCoordinator`` (``isLeader`` and its ``assignmentSnapshot``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol

import trio

from kgroup.client.metadata import Metadata
from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError, short_list
from kgroup.types import Cause, End, TopicInfo, TopicPartition
from kgroup.watchers.poll_failures import PollFailures

DELETED_AFTER: Final = 5.0
"""About the seconds after which a topic that no poll has found counts as deleted."""


class Poll(Protocol):
    """Polls the watched topics."""

    def __call__(self, *, only_changed: bool) -> Awaitable[Metadata]:
        """Wait for the next poll; the result lacks topics that do not exist.

        Args:
            only_changed: polls that find what this has returned last may pass unseen.
        """
        ...


def changes(before: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo]) -> list[str]:
    """The differences, as one text for each topic; other leaders or replicas are none."""
    words = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None and new is not None:
            words.append(f"topic {name} appeared with {new.partitions} partitions")
        elif new is None:
            words.append(f"topic {name} was deleted")
        elif (
            old is not None
            and old.topic_id != new.topic_id
            and None
            not in (
                old.topic_id,
                new.topic_id,
            )
        ):
            words.append(f"topic {name} was deleted and created again")
        elif old is not None and old.partitions != new.partitions:
            words.append(f"topic {name} has {new.partitions} partitions, not {old.partitions}")
    return words


def has_grown(before: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo]) -> bool:
    """Whether topics or partitions were added; one poll is enough to believe that."""
    return any(
        name not in before or topic.partitions > before[name].partitions
        for name, topic in now.items()
    )


async def partition_watcher(
    poll: Poll,
    baseline: Mapping[str, TopicInfo],
    interval: float,
    report: Report,
    found_leaderless: Callable[[Collection[TopicPartition]], None],
) -> End:
    """Poll the metadata until it differs from the baseline.

    A topic counts as deleted only after all polls of about `DELETED_AFTER` seconds, and at least
    two, miss it: a broker that has just started may lack metadata. A failed poll is reported, and
    the next one follows (``PollFailures``).

    Args:
        poll: waits for the next poll and returns the metadata.
        baseline: the metadata from which the assignment was computed.
        interval: the seconds between two polls.
        report: called for a failure, if it is not the same as that of the poll before.
        found_leaderless: called after each poll, with the partitions that have no leader.

    Returns:
        the end of the generation.

    Cancellation: at any time.
    """
    suspected: list[str] = []
    suspected_at = 0.0
    failures = PollFailures(report)
    while True:
        try:
            # INVARIANT: what may be let pass is only what was compared and is no change.
            metadata = await poll(only_changed=not suspected)
        except (BrokerError, TransportError) as error:
            await failures.failed(error)
            continue
        failures.succeeded()
        found_leaderless(metadata.leaderless)
        found = changes(baseline, metadata.topics)
        if found != suspected:
            suspected, suspected_at = found, trio.current_time()
            certain = has_grown(baseline, metadata.topics)
        else:
            certain = trio.current_time() - suspected_at > DELETED_AFTER - interval / 2
        if found and certain:
            return End(Cause.PARTITIONS_CHANGED, short_list(found, between="; "))
