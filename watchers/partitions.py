"""The partition watcher: ends the leader's generation when its topics change.

It is baselined on the metadata that the assignment was computed from, so that no change between
the two is missed. Only the leader watches, for the topics of the whole group: a follower's
rejoin changes nothing in a stable group.

Source: Kafka's ``ConsumerCoordinator`` (``isLeader`` and its ``assignmentSnapshot``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from kgroup.client.error_policy import POLL_AGAIN, Request
from kgroup.client.retry import Report
from kgroup.errors import BrokerError, TransportError
from kgroup.types import Cause, End, TopicInfo

Look = Callable[[], Awaitable[Mapping[str, TopicInfo]]]
"""Asks for the watched topics; those that do not exist are left out."""


def changes(before: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo]) -> list[str]:
    """What is different, in words, by topic; nothing for other leaders or replicas."""
    words = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None and new is not None:
            words.append(f"topic {name} appeared with {new.partitions} partitions")
        elif new is None:
            words.append(f"topic {name} is gone")
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
    """Whether there is more than before, so that one look is enough to believe it."""
    return any(
        name not in before or topic.partitions > before[name].partitions
        for name, topic in now.items()
    )


async def partition_watcher(
    look: Look, baseline: Mapping[str, TopicInfo], interval: float, report: Report
) -> End:
    """Look again and again, until the topics differ from the baseline.

    A broker that has just started may not know all topics yet: what is gone must be gone twice
    in a row. A look that fails is reported, and made again an interval later.

    Args:
        look: asks for the topics.
        baseline: what the assignment was computed from.
        interval: seconds between two looks.
        report: is told of failures.

    Cancellation: at any time.
    """
    suspected: list[str] = []
    while True:
        await trio.sleep(interval)
        try:
            now = await look()
        except (BrokerError, TransportError) as error:
            report(Request.METADATA, error, POLL_AGAIN)
            continue
        found = changes(baseline, now)
        if found and (has_grown(baseline, now) or found == suspected):
            return End(Cause.PARTITIONS_CHANGED, "; ".join(found))
        suspected = found
