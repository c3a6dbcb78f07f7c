"""The audit: compares the workers' journals with what was produced.

It does no I/O and uses nothing of kgroup's own bookkeeping.

A record may be processed twice only because of a disturbance: a worker was killed or frozen in the
generation in which it had processed the record, and had not committed it. Another worker may then
process it again, and so may the woken worker if it still held the record. Every other repetition
counts against the planned rebalances, which must repeat nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from kgroup.cli.demo.journal import (
    CommitDone,
    Committing,
    Ended,
    JournalEntry,
    Received,
    RecordProcessed,
    Refused,
    Started,
)
from kgroup.cli.demo.text import words_of

Record = tuple[int, int]
"""Partition and offset."""


@final
@attrs.frozen(kw_only=True)
class Disturbance:
    """A worker was killed or frozen; times are those of the monotonic clock.

    Attributes:
        worker: the worker's name.
        time: when it was killed or frozen.
        woken: when it was woken; infinity if it never was.
    """

    worker: str
    time: float
    woken: float = float("inf")


@final
@attrs.frozen(kw_only=True)
class Evidence:
    """The input of the audit.

    Attributes:
        lines: the text.
        sent: how many lines were sent.
        placed: for each acknowledged line, its partition and offset -> its index in ``lines``.
        journals: each worker's entries, by the worker's name.
        kill: the worker that was killed, if any.
        freeze: the worker that was frozen, if any.
        committed: the group's final committed offset of each partition, fetched from the cluster;
            None if it was not fetched.
        problems: why the demo did not run as planned.
        seconds: how long the demo took.
    """

    lines: Sequence[str]
    sent: int
    placed: Mapping[Record, int]
    journals: Mapping[str, Sequence[JournalEntry]]
    kill: Disturbance | None
    freeze: Disturbance | None
    committed: Mapping[int, int] | None
    problems: Sequence[str]
    seconds: float


@final
@attrs.frozen(kw_only=True)
class AuditReport:
    """The result of the audit.

    Attributes:
        produced: lines that the cluster acknowledged.
        unplaced: lines that were sent and have no offset of their own: the cluster did not
            acknowledge them, did not say where it stored them, or stored another one there.
        processed: lines that were processed, each counted once.
        lost: lines that were produced and never processed.
        never_produced: records that were processed but do not belong to any line.
        repeated_planned: repetitions that neither the kill nor the freeze explains.
        repeated_after_kill: repetitions of what the killed worker had not committed.
        repeated_by_frozen: repetitions of what the frozen worker had not committed.
        uncommitted_at_kill: records that the killed worker had processed and not committed.
        processed_after_waking: records of its old generation that the frozen worker processed
            after it woke.
        beyond_batch_in_hand: how many of these were not in the batch that it already held.
        out_of_order: records that were first processed after a later record of their partition.
        generations: the number of generations.
        stale_commits_refused: commits that were refused because their generation had ended.
        stale_commits_accepted: commits that the woken worker began in its old generation and that
            were accepted.
        offsets_wrong: partitions whose committed offset is not the end of what was produced.
        counts_equal: whether the workers' word counts equal a direct count of the lines.
        words: the number of words.
        seconds: how long the demo took.
        problems: why the demo did not run as planned.
    """

    produced: int
    unplaced: int
    processed: int
    lost: int
    never_produced: int
    repeated_planned: int
    repeated_after_kill: int
    repeated_by_frozen: int
    uncommitted_at_kill: int
    processed_after_waking: int
    beyond_batch_in_hand: int
    out_of_order: int
    generations: int
    stale_commits_refused: int
    stale_commits_accepted: int
    offsets_wrong: int
    counts_equal: bool
    words: int
    seconds: float
    problems: tuple[str, ...]

    @property
    def faults(self) -> list[str]:
        """Everything that is wrong, one sentence each; empty if the group behaved correctly."""
        wrong = [text.format(getattr(self, name)) for name, text in FAULTS if getattr(self, name)]
        if not self.counts_equal:
            wrong.append("the workers' word counts differ from a direct count of the lines")
        return [*self.problems, *wrong]


FAULTS: Final = (
    ("unplaced", "{} lines were sent and have no offset of their own, so they may be lost"),
    ("lost", "{} lines were produced and never processed"),
    ("never_produced", "{} records were processed that were never produced"),
    ("repeated_planned", "{} lines were processed again although no kill or freeze explains it"),
    ("beyond_batch_in_hand", "the woken worker processed {} lines beyond the batches it held"),
    ("out_of_order", "{} lines were processed before an earlier line of their partition"),
    ("stale_commits_accepted", "{} commits of the woken worker's old generation were accepted"),
    ("offsets_wrong", "{} partitions are not committed up to the end of what was produced"),
)
"""The figures that must be 0, and the sentence to print when one is not."""


@final
@attrs.frozen(kw_only=True, eq=False)
class _Processing:
    """One processing of a record, and the disturbance that explains why another may follow."""

    record: Record
    entry: RecordProcessed
    by: tuple[str, int]
    excuse: Disturbance | None


@final
@attrs.frozen(kw_only=True)
class _AfterWaking:
    """The frozen worker's actions in its old generation after it woke."""

    processed: int = 0
    beyond: int = 0
    accepted: int = 0


def audit(evidence: Evidence) -> AuditReport:
    """Compare what was processed and committed with what was produced.

    Args:
        evidence: the lines, where they were placed, and what the workers wrote down.
    """
    processings = sorted(_processings(evidence), key=lambda one: one.entry.time)
    first: dict[Record, _Processing] = {}
    for one in processings:
        first.setdefault(one.record, one)
    repeated = _repeated(processings)
    woken = _after_waking(evidence)
    counted = _total(one.entry.words for one in first.values())
    direct = _total(words_of(evidence.lines[number]) for number in evidence.placed.values())
    entries = [entry for journal in evidence.journals.values() for entry in journal]
    return AuditReport(
        produced=len(evidence.placed),
        unplaced=evidence.sent - len(set(evidence.placed.values())),
        processed=len(first),
        lost=len(evidence.placed.keys() - first.keys()),
        never_produced=len(first.keys() - evidence.placed.keys()),
        repeated_planned=repeated[None],
        repeated_after_kill=_count_of(evidence.kill, repeated),
        repeated_by_frozen=_count_of(evidence.freeze, repeated),
        uncommitted_at_kill=_count_of(evidence.kill, Counter(one.excuse for one in processings)),
        processed_after_waking=woken.processed,
        beyond_batch_in_hand=woken.beyond,
        out_of_order=_out_of_order(processings, evidence.freeze),
        generations=len({e.generation for e in entries if isinstance(e, Started)}),
        stale_commits_refused=sum(isinstance(entry, Refused) for entry in entries),
        stale_commits_accepted=woken.accepted,
        offsets_wrong=_offsets_wrong(evidence),
        counts_equal=counted == direct,
        words=direct.total(),
        seconds=round(evidence.seconds, 1),
        problems=tuple(evidence.problems),
    )


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return total


def _count_of(disturbance: Disturbance | None, counts: Mapping[Disturbance | None, int]) -> int:
    return 0 if disturbance is None else counts[disturbance]


def _processings(evidence: Evidence) -> Iterator[_Processing]:
    disturbances = {
        disturbance.worker: disturbance
        for disturbance in (evidence.kill, evidence.freeze)
        if disturbance is not None
    }
    for worker, journal in evidence.journals.items():
        disturbance = disturbances.get(worker)
        epoch = _epoch_at(disturbance.time, journal) if disturbance is not None else None
        committed: dict[int, int] = defaultdict(int)
        for entry in journal:
            if isinstance(entry, CommitDone) and entry.epoch == epoch:
                committed[entry.partition] = entry.next
        for entry in journal:
            if isinstance(entry, RecordProcessed):
                excused = entry.epoch == epoch and entry.offset >= committed[entry.partition]
                yield _Processing(
                    record=(entry.partition, entry.offset),
                    entry=entry,
                    by=(worker, entry.epoch),
                    excuse=disturbance if excused else None,
                )


def _epoch_at(time: float, journal: Iterable[JournalEntry]) -> int | None:
    """The epoch of the generation that a worker was in at a time; None if it was in none.

    A generation that had ended by then had finished its drain: what it left uncommitted is not
    explained by what happened later.
    """
    changes = [e for e in journal if isinstance(e, Started | Ended) and e.time <= time]
    return changes[-1].epoch if changes and isinstance(changes[-1], Started) else None


def _repeated(processings: Iterable[_Processing]) -> Counter[Disturbance | None]:
    """Count the repeated processings by the disturbance that explains them; None: nothing does."""
    by_record: defaultdict[Record, list[_Processing]] = defaultdict(list)
    for one in processings:
        by_record[one.record].append(one)
    repeated: Counter[Disturbance | None] = Counter()
    for several in by_record.values():
        repeated.update(_explanations(several))
    return repeated


def _explanations(several: Iterable[_Processing]) -> Iterator[Disturbance | None]:
    """For each processing of a record but the first, the disturbance that explains it.

    An uncommitted processing explains one later processing, by another generation. It does not
    explain an earlier one: a worker that repeats what others have processed had begun at a wrong
    offset, even if it is killed later. Only the batch that a frozen worker held when it woke comes
    after what others did meanwhile. No generation may process a record twice.
    """
    unused: list[Disturbance] = []
    seen: set[tuple[str, int]] = set()
    for one in several:
        again = one.by in seen
        in_hand = one.excuse is not None and one.entry.time >= one.excuse.woken
        if again:
            yield None
        elif seen and in_hand:
            yield one.excuse
        else:
            if seen:
                yield unused.pop(0) if unused else None
            if one.excuse is not None:
                unused.append(one.excuse)
        seen.add(one.by)


def _out_of_order(processings: Iterable[_Processing], freeze: Disturbance | None) -> int:
    """Count the records that were processed after a later record of their partition.

    This is checked for the first processing of each record over all workers, and for every
    processing within a generation. The batch that the frozen worker held when it woke is exempt
    from the first rule: its partitions have moved on meanwhile.
    """
    wrong: set[Record] = set()
    seen: set[Record] = set()
    furthest: dict[int, int] = {}
    reached: dict[tuple[str, int, int], int] = {}
    for one in processings:
        partition, offset = one.record
        lane = (*one.by, partition)
        if offset <= reached.get(lane, -1):
            wrong.add(one.record)
        reached[lane] = offset
        late = freeze is not None and one.excuse == freeze and one.entry.time >= freeze.woken
        if late or one.record in seen:
            continue
        seen.add(one.record)
        if offset < furthest.get(partition, -1):
            wrong.add(one.record)
        furthest[partition] = max(offset, furthest.get(partition, -1))
    return len(wrong)


def _after_waking(evidence: Evidence) -> _AfterWaking:
    freeze = evidence.freeze
    if freeze is None:
        return _AfterWaking()
    journal = evidence.journals[freeze.worker]
    epoch = _epoch_at(freeze.time, journal)
    processed = accepted = 0
    batch_numbers: Counter[int] = Counter()
    batches: defaultdict[int, Counter[int]] = defaultdict(Counter)
    commit_began: dict[int, float] = {}
    for entry in journal:
        if entry.epoch != epoch:
            continue
        match entry:
            case Received():
                batch_numbers[entry.partition] += 1
            case RecordProcessed() if entry.time >= freeze.woken:
                processed += 1
                batches[entry.partition][batch_numbers[entry.partition]] += 1
            case Committing():
                commit_began[entry.partition] = entry.time
            case CommitDone() if commit_began[entry.partition] >= freeze.woken:
                accepted += 1
    # The first batch of each partition after waking is the one that the worker already held.
    in_hand = sum(batch[min(batch)] for batch in batches.values())
    return _AfterWaking(processed=processed, beyond=processed - in_hand, accepted=accepted)


def _offsets_wrong(evidence: Evidence) -> int:
    if evidence.committed is None:
        return 0
    ends: Counter[int] = Counter()
    for partition, offset in evidence.placed:
        ends[partition] = max(ends[partition], offset + 1)
    return sum(
        ends[partition] != evidence.committed.get(partition, 0)
        for partition in ends.keys() | evidence.committed.keys()
    )
