"""The vote for a group's protocol: each member for the first of its own that all members support.

Members with the same protocols in the same order vote alike and are counted together, so that a
vote among a thousand members costs no more than one among ten.

A protocol that a member names twice does not count as supported by it. Kafka counts it twice, and
compares the count with the number of members: so it is not elected as a rule, and a group in which
nothing else is common mostly never completes a join. Here such a member is refused when it joins.

Source: Kafka's ``ClassicGroup.selectProtocol`` and ``candidateProtocols``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar, final

from kgroup.broker.groups.java_hashing import hash_map_order
from kgroup.broker.groups.requests import Protocol

Key = TypeVar("Key")


@final
class ProtocolVote:
    """The protocols and votes of the members of one group."""

    def __init__(self) -> None:
        self._preferences: Counter[tuple[str, ...]] = Counter()
        self._supporters: Counter[str] = Counter()
        self._members = 0

    def add(self, protocols: Iterable[Protocol]) -> None:
        """Count a new member with these protocols."""
        self._count(protocols, 1)

    def remove(self, protocols: Iterable[Protocol]) -> None:
        """Discount a member with these protocols."""
        self._count(protocols, -1)

    def any_supported_by_all(self, protocols: Iterable[Protocol]) -> bool:
        """Whether all members support one of these; true without members."""
        return any(self._supporters[name] == self._members for name in named_once(protocols))

    def elect(self) -> str:
        """The protocol with the most votes, among one member or more; ties end as in Java."""
        votes: Counter[str] = Counter()
        for names, count in self._preferences.items():
            votes[self._choice(names)] += count
        return max(hash_map_order(votes), key=votes.__getitem__)

    def _choice(self, names: tuple[str, ...]) -> str:
        return next(name for name in names if self._supporters[name] == self._members)

    def _count(self, protocols: Iterable[Protocol], by: int) -> None:
        names = named_once(protocols)
        self._members += by
        _add(self._preferences, names, by)
        for name in names:
            _add(self._supporters, name, by)


def named_once(protocols: Iterable[Protocol]) -> tuple[str, ...]:
    """The names of these protocols in their order, without those that occur more than once."""
    counts = Counter(protocol.name for protocol in protocols)
    return tuple(name for name, count in counts.items() if count == 1)


def _add(counter: Counter[Key], key: Key, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
