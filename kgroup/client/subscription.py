"""The topics to which a member subscribes: its names, and those that its patterns match now."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import TypeAlias, final

import trio

from kgroup.client.cluster import Cluster
from kgroup.errors import short_list

Topics: TypeAlias = tuple[str | re.Pattern[str], ...]


@final
class Subscription:
    """The names and patterns to which a member subscribes; the program may replace them.

    Attributes:
        topics: the names and patterns; empty while the member is unsubscribed.
        described: the names of which a broker has told this member that they exist, or that they
            do not; so it has the permission to ask. `keep_only` forgets those that are not wanted
            any more.
    """

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.described: set[str] = set()

    @property
    def has_patterns(self) -> bool:
        """Whether it has patterns, so that the topics that it means can change."""
        return any(isinstance(topic, re.Pattern) for topic in self.topics)

    async def resolve(self, cluster: Cluster) -> frozenset[str]:
        """The topics of a cluster to which the member subscribes now.

        Raises:
            TransportError: no broker responded.
            BrokerError: a broker refused the Metadata request.
        """
        names = frozenset(topic for topic in self.topics if isinstance(topic, str))
        patterns = [topic for topic in self.topics if isinstance(topic, re.Pattern)]
        if not patterns:
            await trio.lowlevel.checkpoint()
            return names
        known = await cluster.metadata(None)
        return names | {
            name
            for name in known.topics.keys() - known.internal
            if any(pattern.fullmatch(name) for pattern in patterns)
        }

    def keep_only(self, topics: AbstractSet[str]) -> None:
        """Forget all names but these, which `resolve` has returned."""
        self.described &= topics

    def __str__(self) -> str:
        return short_list(self.topics, _described)


def _described(topic: str | re.Pattern[str]) -> str:
    return repr(topic) if isinstance(topic, str) else f"the pattern {topic.pattern!r}"
