"""Which topics a member subscribes to: names as they are, patterns by what they match now."""

from __future__ import annotations

import re
from typing import final

import trio

from kgroup.client.cluster import Cluster


@final
class Subscription:
    """The topics of a configuration, resolved against the cluster where it has patterns."""

    def __init__(self, topics: tuple[str | re.Pattern[str], ...], cluster: Cluster) -> None:
        self._names = frozenset(topic for topic in topics if isinstance(topic, str))
        self._patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        self._cluster = cluster

    @property
    def has_patterns(self) -> bool:
        """Whether what it matches can change."""
        return bool(self._patterns)

    async def resolve(self) -> frozenset[str]:
        """The topics subscribed to now, in no order.

        Raises:
            TransportError: no broker answered.
            BrokerError: a broker refuses to tell.
        """
        if not self._patterns:
            await trio.lowlevel.checkpoint()
            return self._names
        known = await self._cluster.metadata(None)
        matched = {
            name
            for name in known.topics.keys() - known.internal
            if any(pattern.fullmatch(name) for pattern in self._patterns)
        }
        return self._names | matched
