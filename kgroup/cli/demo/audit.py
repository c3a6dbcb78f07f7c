"""From the journals to the account: what they say, held against what was produced.

Without I/O, and without asking kgroup. A record that was processed twice is excused where a worker
that was killed or frozen had processed it in the generation in which that befell it, and had not
committed it. Every other repetition is counted as one of planned rebalances, of which there must
be none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

import attrs

from kgroup.cli.demo.audit_report import AuditReport
from kgroup.cli.demo.journal import (
    CommitDone,
    Committing,
    Entry,
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
    """What the conductor did to a worker without telling it; times of the monotonic clock.

    Attributes:
        worker: its name.
        time: when it was killed or frozen.
        woken: when it was woken, if it was.
    """

    worker: str
    time: float
    woken: float = float("inf")


@final
@attrs.frozen(kw_only=True)
class Evidence:
    """What the account is made from.

    Attributes:
        lines: the text.
        placed: partition and offset of every acknowledged line -> its number in ``lines``.
        journals: by worker.
        kill: who was killed.
        freeze: who was frozen.
        committed: by partition, what the group has committed in the end, as the cluster says;
            None if it was not asked.
        problems: what kept the demo from its course.
        seconds: how long it took.
    """

    lines: Sequence[str]
    placed: Mapping[Record, int]
    journals: Mapping[str, Sequence[Entry]]
    kill: Disturbance | None
    freeze: Disturbance | None
    committed: Mapping[int, int] | None
    problems: Sequence[str]
    seconds: float


@final
@attrs.frozen(kw_only=True, eq=False)
class _Processing:
    """One processing of a record, and the blow that excuses that there is another one."""

    record: Record
    entry: RecordProcessed
    by: tuple[str, int]
    excuse: Disturbance | None


@final
@attrs.frozen(kw_only=True)
class _Waking:
    """What the woken worker did in its old generation."""

    processed: int = 0
    beyond: int = 0
    accepted: int = 0


def audit(evidence: Evidence) -> AuditReport:
    """Count."""
    processings = sorted(_processings(evidence), key=lambda one: one.entry.time)
    first: dict[Record, _Processing] = {}
    for one in processings:
        first.setdefault(one.record, one)
    repeated = _repeated(processings)
    woken = _waking(evidence)
    counted = _total(one.entry.words for one in first.values())
    direct = _total(words_of(evidence.lines[number]) for number in evidence.placed.values())
    entries = [entry for journal in evidence.journals.values() for entry in journal]
    return AuditReport(
        produced=len(evidence.placed),
        processed=len(first),
        lost=len(evidence.placed.keys() - first.keys()),
        never_produced=len(first.keys() - evidence.placed.keys()),
        repeated_planned=repeated[None],
        repeated_after_kill=_of(evidence.kill, repeated),
        repeated_by_frozen=_of(evidence.freeze, repeated),
        uncommitted_at_kill=_of(evidence.kill, Counter(one.excuse for one in processings)),
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


def _of(blow: Disturbance | None, counts: Mapping[Disturbance | None, int]) -> int:
    return 0 if blow is None else counts[blow]


def _processings(evidence: Evidence) -> Iterator[_Processing]:
    blows = {blow.worker: blow for blow in (evidence.kill, evidence.freeze) if blow is not None}
    for worker, journal in evidence.journals.items():
        blow = blows.get(worker)
        struck = _epoch_at(blow.time, journal) if blow is not None else None
        safe: dict[int, int] = defaultdict(int)
        for entry in journal:
            if isinstance(entry, CommitDone) and entry.epoch == struck:
                safe[entry.partition] = entry.next
        for entry in journal:
            if isinstance(entry, RecordProcessed):
                excused = entry.epoch == struck and entry.offset >= safe[entry.partition]
                yield _Processing(
                    record=(entry.partition, entry.offset),
                    entry=entry,
                    by=(worker, entry.epoch),
                    excuse=blow if excused else None,
                )


def _epoch_at(time: float, journal: Iterable[Entry]) -> int | None:
    """The generation that a worker had then, by its own number."""
    epochs = [e.epoch for e in journal if isinstance(e, Started) and e.time <= time]
    return epochs[-1] if epochs else None


def _repeated(processings: Iterable[_Processing]) -> Counter[Disturbance | None]:
    """How many processings were one too many, by what excuses them."""
    by_record: defaultdict[Record, list[_Processing]] = defaultdict(list)
    for one in processings:
        by_record[one.record].append(one)
    repeated: Counter[Disturbance | None] = Counter()
    for several in by_record.values():
        # A generation that processes a record twice has no excuse for the second time.
        excuses: list[Disturbance | None] = list(
            {one.by: one.excuse for one in several if one.excuse is not None}.values()
        )
        without = len(several) - len(excuses)
        if without:
            repeated.update(excuses)
            repeated[None] += without - 1
        else:
            repeated.update(excuses[:-1])
    return repeated


def _out_of_order(processings: Iterable[_Processing], freeze: Disturbance | None) -> int:
    """Records that came after a later one, by first processings and within each generation.

    What the frozen worker had in hand when it woke may come at any time.
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


def _waking(evidence: Evidence) -> _Waking:
    freeze = evidence.freeze
    if freeze is None:
        return _Waking()
    journal = evidence.journals[freeze.worker]
    struck = _epoch_at(freeze.time, journal)
    processed = accepted = 0
    number: Counter[int] = Counter()
    batches: defaultdict[int, Counter[int]] = defaultdict(Counter)
    begun: dict[int, float] = {}
    for entry in journal:
        if entry.epoch != struck:
            continue
        match entry:
            case Received():
                number[entry.partition] += 1
            case RecordProcessed() if entry.time >= freeze.woken:
                processed += 1
                batches[entry.partition][number[entry.partition]] += 1
            case Committing():
                begun[entry.partition] = entry.time
            case CommitDone() if begun[entry.partition] >= freeze.woken:
                accepted += 1
    in_hand = sum(batch[min(batch)] for batch in batches.values())
    return _Waking(processed=processed, beyond=processed - in_hand, accepted=accepted)


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
