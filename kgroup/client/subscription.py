"""The topics to which a member subscribes: its names, and those that its patterns match now."""

from __future__ import annotations

import re
from typing import final

import trio

from kgroup.client.cluster import Cluster


@final
class Subscription:
    """The names and patterns of a configuration, and the cluster whose topics they match."""

    def __init__(self, topics: tuple[str | re.Pattern[str], ...], cluster: Cluster) -> None:
        self._names = frozenset(topic for topic in topics if isinstance(topic, str))
        self._patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        self._cluster = cluster

    @property
    def has_patterns(self) -> bool:
        """Whether it has patterns, so that the topics can change."""
        return bool(self._patterns)

    async def resolve(self) -> frozenset[str]:
        """The topics to which the member subscribes now.

        Raises:
            TransportError: no broker responded.
            BrokerError: a broker refused the Metadata request.
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
