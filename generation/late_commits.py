"""Commits that got no answer: the coordinator may apply them late, after later ones.

A request that got no answer within ``request_timeout`` may still be on its way, although its
connection was closed. The coordinator applies it whenever it arrives, as long as the generation
lasts. Then it puts the committed offset back: the next owner of the partition would read records
again that were acknowledged as committed, or, after a seek back, would skip records.

So the member remembers what such requests would store. If a later commit of the same partition was
acknowledged, it looks at what is stored: after a heartbeat interval, then less and less often, once
more at the end of the drain, and at the beginning of the next generation. Where one of those
offsets has come back, it commits again what was acknowledged last. `LateCommits` remembers, and
says what was put back; `LateCommitWatcher` (``late_commit_watcher``) looks and commits.

INVARIANT: only an offset of an unanswered commit is overwritten, and only by one that the
coordinator has acknowledged after it. What another client has stored stays.

What remains: a late commit may arrive after the last look and before the next generation, and
another member may be given the partition then, or the member may die before the next look. Then
records are read again.

Source: Kafka's ``GroupMetadataManager``, which compares the member id and the generation of a
commit, and no order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, final

import attrs
import trio

from kgroup.types import OffsetAndMetadata, TopicPartition

_MAY_ARRIVE_FOR: Final = 600.0
"""Seconds in which an unanswered commit may still arrive. Brokers and proxies close connections
that have been idle for about as long (``connections.max.idle.ms``)."""


@final
@attrs.frozen
class LateCommit:
    """What may happen to the committed offset of one partition.

    Attributes:
        unconfirmed: the offsets of unanswered commits since the last acknowledged one.
        outdated: those of unanswered commits before it; one of them must not be stored any more.
        acknowledged: what was acknowledged last, if anything was after an unanswered commit.
        moves: `Positions.moves` of the partition when that was committed.
        until: the time, by trio's clock, until which an unanswered commit may arrive.
    """

    unconfirmed: frozenset[int] = frozenset()
    outdated: frozenset[int] = frozenset()
    acknowledged: OffsetAndMetadata | None = None
    moves: int = 0
    until: float = 0.0

    def put_back_by(self, stored: OffsetAndMetadata | None) -> bool:
        """Whether an outdated commit has come in after the acknowledged one."""
        return (
            self.acknowledged is not None
            and stored is not None
            and stored.offset != self.acknowledged.offset
            and stored.offset in self.outdated - self.unconfirmed
        )


@final
class LateCommits:
    """The unanswered commits of one generation, and those of kept partitions from the one before.

    Args:
        before: `left` of the generation before.

    Attributes:
        last_at: when the last commit was given up, by trio's clock; at first when the generation
            began.
    """

    def __init__(self, before: Mapping[TopicPartition, LateCommit]) -> None:
        self._late = dict(before)
        self.last_at = trio.current_time()

    @property
    def left(self) -> Mapping[TopicPartition, LateCommit]:
        """The partitions that an unanswered commit may yet put back."""
        return MappingProxyType(self._late)

    def unanswered(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit of these was sent and got no answer."""
        self.last_at = trio.current_time()
        until = self.last_at + _MAY_ARRIVE_FOR
        for name, at in offsets.items():
            known = self._late.get(name, LateCommit())
            self._late[name] = attrs.evolve(
                known, unconfirmed=known.unconfirmed | {at.offset}, until=until
            )

    def acknowledged(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        moves: Mapping[TopicPartition, int],
    ) -> None:
        """A commit of these was answered without an error; ``moves`` are those of its caller."""
        for name in offsets.keys() & self._late.keys():
            known = self._late[name]
            self._late[name] = attrs.evolve(
                known,
                unconfirmed=frozenset(),
                outdated=known.outdated | known.unconfirmed,
                acknowledged=offsets[name],
                moves=moves[name],
            )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others store offsets of these from now on, such as a transaction's producer."""
        for name in partitions:
            self._late.pop(name, None)

    def forget_old(self) -> None:
        """Forget those that cannot arrive any more."""
        now = trio.current_time()
        self.forget([name for name, late in self._late.items() if late.until <= now])

    def begin(self, kept: Collection[TopicPartition]) -> None:
        """A generation begins, in which no earlier commit can arrive; only these are still owned.

        What had arrived before is put right by the first look.
        """
        self._late = {
            name: attrs.evolve(late, moves=0, until=0.0)
            for name, late in self._late.items()
            if name in kept and late.acknowledged is not None
        }

    def to_look_at(self) -> Mapping[TopicPartition, LateCommit]:
        """Those of which a commit was acknowledged after an unanswered one."""
        return {name: late for name, late in self._late.items() if late.acknowledged is not None}

    def put_back(
        self, stored: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> Mapping[TopicPartition, LateCommit]:
        """Those of these partitions whose stored offset is that of an outdated commit."""
        return {
            name: late
            for name, late in self._late.items()
            if name in stored and late.put_back_by(stored[name])
        }

    def corrected(
        self, stored: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The stored offsets; where they were put back, those that were acknowledged."""
        put_back = self.put_back(stored)
        return {**stored, **{name: late.acknowledged for name, late in put_back.items()}}
