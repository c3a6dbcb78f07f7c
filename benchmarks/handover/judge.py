"""Finds gaps and faults in the journals of a group's workers; it does no I/O.

A *gap* is a time in which a partition had a record to read and none of it was processed. It begins
when the record was produced or, if that is later, when the partition's record before it had been
processed; it ends when a record of the partition is processed. A gap that never ends counts until
the end of the observation, so that a group that stands still does not look good.

Time is divided into *windows*, one for each event. A gap belongs to the window that contains most
of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import attrs

WORDS: Final = 4
"""Words in a line of a journal; a worker that was killed leaves a part of a line."""


@final
@attrs.frozen
class Record:
    """One line of a journal: a record, when it was produced, and when it was processed."""

    partition: int
    offset: int
    sent: float
    done: float


@final
@attrs.frozen(order=True)
class Gap:
    """A time in which a partition had a record to read and none of it was processed."""

    partition: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


@final
@attrs.frozen(kw_only=True)
class Faults:
    """What went wrong in one window.

    Attributes:
        lost: records that were passed over and never processed.
        twice: times that a record was processed again.
        back: times that a worker processed an offset not above its last one of the partition.
    """

    lost: int = 0
    twice: int = 0
    back: int = 0


def read_journal(text: str) -> list[Record]:
    """The records of a journal, in the order of the worker."""
    lines = (line.split() for line in text.splitlines())
    return [
        Record(int(line[0]), int(line[1]), float(line[2]), float(line[3]))
        for line in lines
        if len(line) == WORDS
    ]


def gaps_of(records: Iterable[Record], ends: Mapping[int, int], until: float) -> list[Gap]:
    """All gaps in the order of their ends.

    Args:
        records: what all workers have processed.
        ends: for each partition the offset after its last record.
        until: when the observation ended.
    """
    found = list[Gap]()
    last, highest = dict[int, float](), dict[int, int]()
    first = until
    for one in sorted(records, key=lambda one: one.done):
        first = min(first, one.sent)
        began = max(one.sent, last.get(one.partition, one.sent))
        if one.done > began:
            found.append(Gap(one.partition, began, one.done))
        last[one.partition] = one.done
        highest[one.partition] = max(highest.get(one.partition, -1), one.offset)
    for partition, end in ends.items():
        if highest.get(partition, -1) + 1 < end:
            found.append(Gap(partition, last.get(partition, first), until))
    return found


def unread(records: Iterable[Record], ends: Mapping[int, int]) -> int:
    """How many records after the last one processed were left at the end."""
    highest = dict[int, int]()
    for one in records:
        highest[one.partition] = max(highest.get(one.partition, -1), one.offset)
    return sum(end - 1 - highest.get(partition, -1) for partition, end in ends.items())


def window_of(gap: Gap, begins: Sequence[float]) -> int:
    """The window that contains most of a gap, -1 if that is before the first one."""
    first, last = bisect_right(begins, gap.began) - 1, bisect_right(begins, gap.ended) - 1

    def within(window: int) -> float:
        began = begins[window] if window >= 0 else gap.began
        ended = begins[window + 1] if window + 1 < len(begins) else gap.ended
        return min(ended, gap.ended) - max(began, gap.began)

    return max(range(first, last + 1), key=within)


def longest(gaps: Iterable[Gap], begins: Sequence[float]) -> list[dict[int, float]]:
    """For each window, the longest gap of each partition in seconds."""
    found: list[dict[int, float]] = [{} for _ in begins]
    for gap in gaps:
        if (window := window_of(gap, begins)) >= 0:
            so_far = found[window].get(gap.partition, 0.0)
            found[window][gap.partition] = max(so_far, gap.seconds)
    return found


def faults_of(journals: Sequence[Sequence[Record]], begins: Sequence[float]) -> list[Faults]:
    """The faults of each window.

    A lost record counts when a later one of its partition is processed first, one that is processed
    again when that happens.
    """
    counts = {name: [0] * len(begins) for name in ("lost", "twice", "back")}

    def count(name: str, at: float, number: int = 1) -> None:
        if (window := bisect_right(begins, at) - 1) >= 0:
            counts[name][window] += number

    first = dict[tuple[int, int], float]()
    for one in sorted((one for journal in journals for one in journal), key=lambda one: one.done):
        if (one.partition, one.offset) in first:
            count("twice", one.done)
        else:
            first[one.partition, one.offset] = one.done
    expected: dict[int, int] = defaultdict(int)
    for partition, offset in sorted(first):
        if offset > expected[partition]:
            count("lost", first[partition, offset], offset - expected[partition])
        expected[partition] = offset + 1
    for journal in journals:
        last = dict[int, int]()
        for one in journal:
            if one.offset <= last.get(one.partition, -1):
                count("back", one.done)
            last[one.partition] = one.offset
    return [
        Faults(lost=lost, twice=twice, back=back)
        for lost, twice, back in zip(counts["lost"], counts["twice"], counts["back"], strict=True)
    ]


def after_waking(frozen: Iterable[Record], others: Iterable[Record], woke: float) -> int:
    """How many records a frozen worker processed after it woke that another one processed, too."""
    theirs = {(one.partition, one.offset) for one in others}
    return sum(one.done >= woke and (one.partition, one.offset) in theirs for one in frozen)
