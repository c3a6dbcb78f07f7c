"""Conversions that several handlers share: nesting by topic, durations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Protocol, TypeVar


class OfTopic(Protocol):
    """Anything that belongs to a topic."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...


Item = TypeVar("Item", bound=OfTopic)


def by_topic(
    items: Iterable[Item], show: Callable[[Item], dict[str, Any]], inner: str = "partitions"
) -> list[dict[str, Any]]:
    """Nest items under their topics, both in their original order."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        topics.setdefault(item.topic, []).append(show(item))
    return [{"name": topic, inner: shown} for topic, shown in topics.items()]


def seconds(duration: timedelta) -> float:
    """A duration as float seconds."""
    return duration.total_seconds()
