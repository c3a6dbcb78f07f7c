"""Finds where the partitions of one generation start, before and after the hand-over.

A partition starts where the program's store says (``GroupConfig.starts``), or at the group's
committed offset, or where ``auto_offset_reset`` says. Committed offsets are fetched stable: an
undecided transaction is waited for, and never read as "no offset". With ``latest``, a partition
without an offset in a topic of which the group has other offsets starts at the earliest: it was
added later, and its first records count.

If the log was truncated, both rules continue where it was cut, as Kafka's client does (KIP-320).
``commit_verifier`` finds that out for a partition that the member is given, and librdkafka while
the member has it.

The hand-over waits for partition leaders for `EAGER` seconds only. A leader that is away must not
keep the other partitions waiting. What is still unknown then is found when it is first read
(``position_searches``).

`StartFinder` keeps no position. What it finds before the hand-over it enters in `Positions`,
against which commits are checked, and in the record source, which reads from there.

Source: KIP-447 (stable offsets), KIP-32 (ListOffsets); Kafka's ``ConsumerCoordinator`` and
``OffsetFetcher``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, final

import attrs
import trio

from kgroup.client.cluster import EARLIEST, LATEST
from kgroup.client.error_policy import Request
from kgroup.client.retry import until_answered
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    NoOffsetError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    TransportError,
)
from kgroup.events import OffsetReset
from kgroup.generation.commit_verifier import CommitVerifier
from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.offset_requests import Failure, OffsetRequests, can_be_retried
from kgroup.generation.own_starts import OwnStarts
from kgroup.generation.positions import Positions
from kgroup.types import (
    Assignment,
    AutoOffsetReset,
    EpochEnd,
    OffsetAndMetadata,
    TopicPartition,
)

EAGER: Final = 2.0
"""Seconds for which a hand-over waits for leaders to answer where their partitions begin."""

_NO_EPOCH: Final = -1
_TIMESTAMPS: Final = {AutoOffsetReset.EARLIEST: EARLIEST, AutoOffsetReset.LATEST: LATEST}


@final
@attrs.frozen
class StartRule:
    """By which rule the position of a partition is chosen.

    Attributes:
        rule: whether the earliest or the latest offset is searched for.
        reason: why.
        skipped: whether there was a position that is no longer in the log.
        lost: that position; -1 if there was none, or if it is not known.
    """

    rule: AutoOffsetReset
    reason: str
    skipped: bool = False
    lost: int = -1


@final
@attrs.frozen
class StartPosition:
    """A position that no commit gave.

    Attributes:
        offset: the position.
        rule: the rule by which it was chosen.
        reason: why.
        truncated: whether the log was truncated there, or the topic created again, so that what is
            committed may be past it.
        skipped: whether there was a position that is no longer in the log.
        leader_epoch: the leader epoch of the record before it, or a later one under which the log
            ended there; -1 if it is not known.
    """

    offset: int
    rule: AutoOffsetReset
    reason: str
    truncated: bool = False
    skipped: bool = False
    leader_epoch: int = _NO_EPOCH

    @property
    def skips_unless_committed(self) -> bool:
        """Whether a restart would begin further on, and skip records, if nothing is committed."""
        return self.rule is AutoOffsetReset.LATEST or self.truncated


@final
@attrs.frozen
class SearchResult:
    """What one search has found; a partition that is in neither is searched for again.

    Attributes:
        found: the positions.
        refused: what a leader would answer again.
    """

    found: Mapping[TopicPartition, StartPosition]
    refused: Mapping[TopicPartition, Failure]


_FROM_ZERO: Final = StartPosition(
    0,
    AutoOffsetReset.EARLIEST,
    "no offset is committed and its leader does not answer, so from the beginning",
)


@final
class StartFinder:
    """Finds where the partitions of one generation start, for `Positions` and the record source.

    Attributes:
        requests: sends what is requested for that.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        committer: Committer,
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self.requests = OffsetRequests(member, lifecycle.membership)
        self._positions = positions
        self._committer = committer
        self._membership = lifecycle.membership
        self._rule = member.config.auto_offset_reset
        self._own_starts = OwnStarts(member, lifecycle)
        self._verifier = CommitVerifier(member, lifecycle)
        self._lost: dict[TopicPartition, OffsetOutOfRangeError] = {}
        """The partitions whose commits are not in their logs any more, for their first reader."""

    async def load_own(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The starts that the program's store has; see `OwnStarts.load`."""
        return await self._own_starts.load(partitions)

    async def begin(
        self, assignment: Assignment, own: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, StartPosition]:
        """Find where each partition starts, as far as it can be known soon, and begin with that.

        What no leader answers in time begins at 0 where the rule is ``earliest`` (if 0 is gone
        from the log, reading finds out), and is found when it is first read where the rule is
        ``latest``. A commit that no leader verifies in time is accepted.

        Args:
            assignment: the partitions.
            own: the starts that the program's store has.

        Returns:
            the positions that no commit gave, for `commit_initial`.

        Raises:
            BrokerError | TransportError: what the error policy does not retry.

        Cancellation: the offsets connection may be broken; nothing else.
        """
        # By the ids, the source learns that a topic was created again, also one that is kept.
        by_id = hasattr(self._member.source, "use_topic_ids")
        to_verify = assignment if by_id else [one for one in assignment.added if one not in own]
        self._verifier.begin({name.topic for name in to_verify})
        stored = await self.requests.committed([name for name in assignment if name not in own])
        self._committer.late.begin(assignment.kept, stored)
        committed = self._committer.late.corrected(stored)
        known = {name: at.offset for name, at in committed.items() if at is not None}
        known.update(own)
        missing = [name for name in assignment.partitions if name not in known]
        found: dict[TopicPartition, StartPosition] = {}
        if missing and self._rule is not AutoOffsetReset.ERROR:
            with trio.move_on_after(EAGER):
                await self.find_without_commit(missing, found)
        if self._rule is AutoOffsetReset.EARLIEST:
            found = {**dict.fromkeys(missing, _FROM_ZERO), **found}
        epochs = {
            name: at.leader_epoch
            for name, at in committed.items()
            if at is not None and at.leader_epoch >= 0
        }
        # If the member has kept a partition and read it up to the commit, librdkafka verifies it.
        read = self._positions.read_epochs
        unverified = {
            name: epoch
            for name, epoch in epochs.items()
            if name not in assignment.kept or not read.has_read(name, known[name], epoch)
        }
        for name, cut in (await self._verifier.not_in_log(known, unverified)).items():
            del known[name], epochs[name]
            self._positions.forget_read(name)
            if cut.end is None or self._rule is AutoOffsetReset.ERROR:
                self._lost[name] = cut.error
            else:
                found[name] = self._where_cut(cut.error.offset, cut.end)
        if by_id:
            await self._verifier.until_looked_up()
        self.emit(found)
        known |= {name: start.offset for name, start in found.items()}
        # With it, the record source finds out if the log is truncated before a record arrives.
        epochs |= {
            name: start.leader_epoch for name, start in found.items() if start.leader_epoch >= 0
        }
        self._positions.begin(assignment, known, epochs)
        # A partition whose position is still unknown gets one before its first stream opens it.
        epoch, source = self._membership.epoch, self._member.source
        starts = {name: known.get(name, 0) for name in assignment}
        source.assign(epoch, starts, epochs, assignment.added)
        # Without a committed offset, the topic may have been deleted and created again. What was
        # fetched of a kept partition may then be records of the old topic.
        for name in sorted(set(missing).difference(assignment.added)):
            source.seek(epoch, name, known.get(name, 0))
        return found

    def check_rule(
        self, partitions: Collection[TopicPartition], error: OffsetOutOfRangeError | None = None
    ) -> None:
        """Check that ``auto_offset_reset`` allows to search for positions.

        Args:
            partitions: whose position is not known.
            error: the offset that a log does not have.

        Raises:
            OffsetOutOfRangeError: it does not; the error that was given, or that of a commit.
            NoOffsetError: it does not, and nothing is committed.
        """
        if self._rule is not AutoOffsetReset.ERROR or not partitions:
            return
        lost = [self._lost[name] for name in sorted(partitions) if name in self._lost]
        for one in (error, *lost):
            if one is not None:
                raise one
        names = ", ".join(map(str, sorted(partitions)))
        raise NoOffsetError(
            f"{self._membership}: no offset is committed for {names}, and auto_offset_reset is"
            " 'error'; commit an offset first, or set it to 'earliest' or 'latest'"
        )

    async def choose(
        self, wanted: Mapping[TopicPartition, OffsetOutOfRangeError | None]
    ) -> Mapping[TopicPartition, StartRule | StartPosition]:
        """Choose by which rules positions are searched for, after the hand-over.

        If a log was truncated, the position is the point where it was cut, by either rule: all
        before it has been read, and nothing of what the log has after it.

        Args:
            wanted: the partitions, each with the error that names an offset which its log does not
                have; None where the start is not known.

        Raises:
            Exception: with ``latest``, what the error policy does not retry, or what the program's
                store raises.

        Cancellation: nothing changes.
        """
        chosen: dict[TopicPartition, StartRule | StartPosition] = {}
        without_commit = []
        for name, error in wanted.items():
            if error is None:
                if (lost := self._lost.get(name)) is None:
                    without_commit.append(name)
                else:
                    chosen[name] = self._after_loss(
                        f"what was read before offset {lost.offset}", lost.offset
                    )
            elif error.divergent_offset is not None:
                end = EpochEnd(error.divergent_offset, _NO_EPOCH)
                chosen[name] = self._where_cut(error.offset, end)
            else:
                at = f"offset {error.offset}" if error.offset >= 0 else "its position"
                chosen[name] = self._after_loss(at, error.offset)
        chosen.update(await self._rules_without_commit(without_commit))
        return chosen

    def is_lost(self, partition: TopicPartition, offset: int) -> bool:
        """Whether this is the committed offset that the partition's log has no more."""
        lost = self._lost.get(partition)
        return lost is not None and lost.offset == offset

    def by_leader(self, partitions: Collection[TopicPartition]) -> list[list[TopicPartition]]:
        """Partitions in groups that one leader can be asked for together, as far as is known."""
        return self._member.cluster.by_leader(partitions)

    async def search(
        self, chosen: Mapping[TopicPartition, StartRule | StartPosition]
    ) -> SearchResult:
        """Search for positions once, by the rules that `choose` has returned.

        Cancellation: requests that were sent break their connections; nothing else changes.
        """
        rules = {name: rule for name, rule in chosen.items() if isinstance(rule, StartRule)}
        listed, failed = await self._list_once(rules, use_cached=True)
        known = {name: at for name, at in chosen.items() if isinstance(at, StartPosition)}
        return SearchResult({**known, **listed}, self.requests.report(failed))

    async def commit_initial(self, starts: Mapping[TopicPartition, StartPosition]) -> None:
        """Commit those positions without which a restart would skip records.

        They are the end of a log, where a log was truncated, and any position before one that its
        log did not have: the log may grow past what is committed.
        """
        needed = {
            name: OffsetAndMetadata(start.offset, start.leader_epoch)
            for name, start in starts.items()
            if start.skips_unless_committed
        }
        if not needed or not self._member.config.commit_initial_position:
            return
        try:
            await self._committer.commit(needed)
        except (CommitFailedError, CommitUnknownError, StaleGenerationError, TransportError):
            # The committer has reported it; the first commit of the program has the same effect.
            return

    async def find_without_commit(
        self, partitions: Collection[TopicPartition], found: dict[TopicPartition, StartPosition]
    ) -> None:
        """Find the positions where nothing is committed, however long it takes.

        Args:
            partitions: whose.
            found: gets the positions, as the leaders answer.

        Raises:
            NoOffsetError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses the request, and would refuse it again.

        Cancellation: requests that were sent break their connections; ``found`` has what was found.
        """
        self.check_rule(partitions)
        rules = await self._rules_without_commit(partitions)
        knows_leaders = self._verifier.knows_leaders

        async def send() -> None:
            nonlocal knows_leaders
            use_cached, knows_leaders = knows_leaders, False
            left = {name: rule for name, rule in rules.items() if name not in found}
            listed, failed = await self._list_once(left, use_cached=use_cached)
            found.update(listed)
            if failed:
                raise min(failed.values(), key=can_be_retried)

        await until_answered(
            Request.LIST_OFFSETS,
            send,
            find=None,
            backoff=self._member.new_backoff(),
            report=self._member.emitter.failed,
        )

    async def _rules_without_commit(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, StartRule]:
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        late: Collection[TopicPartition] = ()
        if self._rule is AutoOffsetReset.LATEST:
            late = await self._added_later(partitions)
        usual = StartRule(
            self._rule,
            f"no offset is committed, so auto_offset_reset chose the {self._rule.value} offset",
        )
        added = StartRule(
            AutoOffsetReset.EARLIEST,
            "no offset is committed, and the partition was added later, so all of it is read",
        )
        return {name: added if name in late else usual for name in partitions}

    def _after_loss(self, absent: str, lost: int) -> StartRule:
        """The rule for a position that is not in the log."""
        reason = f"is not in the log, so auto_offset_reset chose the {self._rule.value} offset"
        return StartRule(self._rule, f"{absent} {reason}", skipped=True, lost=lost)

    def _where_cut(self, offset: int, end: EpochEnd) -> StartPosition:
        """The position at the end of what a truncated log still has of the records before one."""
        reason = (
            f"the log was truncated there; what was read from there up to {offset} is no longer in"
            " it"
        )
        return StartPosition(
            end.offset,
            self._rule,
            reason,
            truncated=True,
            skipped=True,
            leader_epoch=end.leader_epoch,
        )

    async def _added_later(
        self, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Those of topics of which the group, or the program's store, has other partitions."""
        topics = {name.topic for name in partitions}
        # What is refused for one topic must not keep the others from being found.
        known = await self.requests.metadata(topics, foreign=topics)
        everything = [
            TopicPartition(topic.name, number)
            for topic in known.topics.values()
            for number in range(topic.partitions)
        ]
        begun = {name.topic for name in await self.load_own(everything)}
        others = [name for name in everything if name.topic not in begun]
        committed = await self.requests.committed(others)
        begun.update(name.topic for name, offset in committed.items() if offset is not None)
        return frozenset(name for name in partitions if name.topic in begun)

    async def _list_once(
        self, rules: Mapping[TopicPartition, StartRule], *, use_cached: bool = False
    ) -> tuple[dict[TopicPartition, StartPosition], dict[TopicPartition, Failure]]:
        """Request the offsets that rules choose, once; what was found, and what failed."""
        offsets, failed = await self.requests.offsets_at(
            {name: _TIMESTAMPS[chosen.rule] for name, chosen in rules.items()},
            use_cached=use_cached,
        )
        found = {
            name: StartPosition(
                at.offset,
                rules[name].rule,
                rules[name].reason,
                truncated=at.offset < rules[name].lost,
                skipped=rules[name].skipped,
                leader_epoch=_epoch_before(at, rules[name].rule),
            )
            for name, at in offsets.items()
        }
        return found, failed

    def emit(self, starts: Mapping[TopicPartition, StartPosition]) -> None:
        """Report positions that no commit gave."""
        for name, start in sorted(starts.items()):
            self._member.emitter.emit(
                OffsetReset,
                partition=name,
                offset=start.offset,
                reason=start.reason,
                skipped=start.skipped,
            )


def _epoch_before(at: EpochEnd, rule: AutoOffsetReset) -> int:
    """The leader epoch before an offset that was listed, where a log may be cut below that."""
    return at.leader_epoch if rule is AutoOffsetReset.LATEST else _NO_EPOCH
