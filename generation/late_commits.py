"""What is known of commits that got no answer, and may arrive after later ones.

A commit that got no answer within ``request_timeout`` may still be on its way, although its
connection was closed. The coordinator applies it whenever it arrives, as long as the generation
lasts: it compares the member and the generation, and no order. Then it overwrites the committed
offset of a later commit. The next owner of the partition would read records again that were
acknowledged as committed or, after a seek back, would skip records.

So `LateCommits` remembers which offsets such commits may store, and what was acknowledged after
them. ``late_commit_watcher`` fetches what is stored, and commits again what was overwritten: from
time to time while the generation runs and drains, and once more when its work is done. The next
generation of the member, in which no earlier commit can arrive, begins as if none had, for the
partitions that the member has kept, and commits again at once.

INVARIANTS:
- the committed offset becomes what it would be if the late commit had never arrived, and nothing
  else: only a commit without an answer is overwritten, by the one that was acknowledged last. (An
  offset that another client stores is not told from one of the same number and metadata.)
- nothing is known of a partition that the generation does not own, so nothing of it is committed.

What remains. A late commit stays in effect if the member loses its generation or dies before it has
checked, if the last check fails, if the commit arrives after it and before the next generation, or
after more than `MAY_ARRIVE_FOR`. Then records are read again.

Source: Kafka's ``ClassicGroup.validateOffsetCommit``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, final

import attrs
import trio

from kgroup.notifier import Notifier
from kgroup.types import OffsetAndMetadata, TopicPartition

MAY_ARRIVE_FOR: Final = 600.0
"""Seconds in which an unanswered commit may still arrive. Brokers and proxies close connections
that have been idle for about as long (``connections.max.idle.ms``)."""

_Stored: TypeAlias = tuple[int, str]
"""The offset and the metadata of a commit. Old brokers do not return its leader epoch."""


@final
@attrs.frozen
class PendingCommits:
    """The commits of one partition that may yet arrive, and the last one that was acknowledged.

    Attributes:
        unconfirmed: those that were sent after the acknowledged one, each with the time, by trio's
            clock, until which it may arrive. If one of them is stored, that is right.
        outdated: those that were sent before it. If one of them is stored, it has arrived late.
        acknowledged: what was acknowledged after an unanswered commit, if anything was.
        moves: `Positions.moves` of the partition when that was committed.
        inherited: whether all this is of the generation before, so that nothing can arrive.
    """

    unconfirmed: Mapping[_Stored, float] = MappingProxyType({})
    outdated: Mapping[_Stored, float] = MappingProxyType({})
    acknowledged: OffsetAndMetadata | None = None
    moves: int = 0
    inherited: bool = False

    def overwritten_by(self, stored: OffsetAndMetadata | None) -> bool:
        """Whether this is what a commit has stored that arrived after the acknowledged one."""
        if self.acknowledged is None or stored is None:
            return False
        found = _stored(stored)
        return (
            found in self.outdated
            and found not in self.unconfirmed
            and found != _stored(self.acknowledged)
        )

    def at(self, now: float) -> PendingCommits | None:
        """What of them may still arrive; None if nothing may."""
        unconfirmed = {one: until for one, until in self.unconfirmed.items() if until > now}
        outdated = {one: until for one, until in self.outdated.items() if until > now}
        if not (unconfirmed or outdated):
            return None
        if len(unconfirmed) + len(outdated) == len(self.unconfirmed) + len(self.outdated):
            return self
        return attrs.evolve(self, unconfirmed=unconfirmed, outdated=outdated)


@final
class LateCommits:
    """The commits of one generation that may arrive late.

    Args:
        before: `pending` of the generation before.

    Attributes:
        any_unanswered: whether a commit of this generation got no answer.
        last_at: when the last one was given up, by trio's clock; at first when this was made.
        more: is notified when another one got no answer.
    """

    def __init__(self, before: Mapping[TopicPartition, PendingCommits]) -> None:
        self._inherited = before
        self._pending: dict[TopicPartition, PendingCommits] = {}
        self._began = False
        self.any_unanswered = False
        self.last_at = trio.current_time()
        self.more = Notifier()

    def begin(
        self,
        kept: Collection[TopicPartition],
        stored: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        """The generation has its partitions; no earlier commit can arrive any more.

        Args:
            kept: those that have been this member's all the time.
            stored: what was fetched in this generation, as far as it was.
        """
        self._began = True
        self._pending = {
            name: attrs.evolve(commits, moves=0, inherited=True)
            for name, commits in self._inherited.items()
            if name in kept
            and commits.acknowledged is not None
            and (name not in stored or commits.overwritten_by(stored[name]))
        }

    @property
    def pending(self) -> Mapping[TopicPartition, PendingCommits]:
        """The partitions of which a commit may arrive late; none before `begin`."""
        return MappingProxyType(self._pending)

    @property
    def any_inherited(self) -> bool:
        """Whether a commit of the generation before may be in effect that should not be."""
        return any(commits.inherited for commits in self._pending.values())

    @property
    def left_for_next(self) -> Mapping[TopicPartition, PendingCommits]:
        """What the next generation has to know; before `begin` what this one was given."""
        return dict(self._pending) if self._began else self._inherited

    def unanswered(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit of these was sent and got no answer."""
        self.any_unanswered = True
        self.last_at = trio.current_time()
        until = self.last_at + MAY_ARRIVE_FOR
        for name, position in offsets.items():
            known = self._pending.get(name, PendingCommits())
            self._pending[name] = attrs.evolve(
                known,
                unconfirmed={**known.unconfirmed, _stored(position): until},
                inherited=False,
            )
        self.more.notify()

    def acknowledged(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        moves: Mapping[TopicPartition, int],
    ) -> None:
        """A commit of these was answered without an error; ``moves`` are those of its caller."""
        for name in offsets.keys() & self._pending.keys():
            known = self._pending[name]
            self._pending[name] = attrs.evolve(
                known,
                unconfirmed={},
                outdated={**known.outdated, **known.unconfirmed},
                acknowledged=offsets[name],
                moves=moves[name],
            )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the commits of these: a transaction's producer commits them from now on."""
        for name in partitions:
            self._pending.pop(name, None)

    def forget_old(self) -> None:
        """Forget what cannot arrive any more."""
        now = trio.current_time()
        left = {name: commits.at(now) for name, commits in self._pending.items()}
        self._pending = {name: commits for name, commits in left.items() if commits is not None}

    def overwritten(
        self, stored: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> dict[TopicPartition, PendingCommits]:
        """Those of these partitions whose stored offset is that of an outdated commit."""
        return {
            name: commits
            for name, commits in self._pending.items()
            if name in stored and commits.overwritten_by(stored[name])
        }

    def fetched(
        self, stored: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> dict[TopicPartition, PendingCommits]:
        """Those of these partitions that are `overwritten`; other inherited ones are forgotten."""
        overwritten = self.overwritten(stored)
        others = stored.keys() - overwritten.keys()
        self.forget([name for name in others if self._pending[name].inherited])
        return overwritten

    def corrected(
        self, stored: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The stored offsets; where they were overwritten, those that were acknowledged."""
        overwritten = self.overwritten(stored)
        return {**stored, **{name: it.acknowledged for name, it in overwritten.items()}}


def _stored(position: OffsetAndMetadata) -> _Stored:
    return position.offset, position.metadata
