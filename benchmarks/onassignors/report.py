"""Prints the table and the goals that were missed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final, final

import attrs

from benchmarks.onassignors.cases import Case, Group, random_half
from benchmarks.onassignors.sides import Answer

MATTERS: Final = 0.050
"""A case counts for the comparison if Java needs at least this many seconds for it."""
SLOWER: Final = 2.0
FASTER: Final = 10.0
LONGEST: Final = 3.0
LARGEST: Final = 1 << 30
MEBIBYTE: Final = 1 << 20
PARTS: Final = ("decode", "assign", "check", "encode")


@final
@attrs.frozen
class Row:
    """The figures of one case: kgroup's and Java's runs, taken in turns."""

    case: Case
    ours: list[Answer]
    theirs: list[Answer]
    peak: int | None

    def seconds(self, answers: Sequence[Answer], part: str, clock: str) -> list[float]:
        """The seconds of a part, run by run."""
        return [answer[part][clock] for answer in answers if part in answer]

    def ratio(self, part: str, clock: str) -> float | None:
        """The ratio of the medians; below 1 kgroup is faster. None without Java."""
        if not self.theirs:
            return None
        ours, theirs = (
            statistics.median(self.seconds(answers, part, clock))
            for answers in (self.ours, self.theirs)
        )
        return ours / theirs

    def missed(self, clock: str) -> list[str]:
        """The goals that the row misses."""
        missed = []
        for part in ("assign", "encode"):
            ratio = self.ratio(part, clock)
            if ratio is not None:
                java = statistics.median(self.seconds(self.theirs, part, clock))
                if java > MATTERS and ratio > SLOWER:
                    missed.append(f"{part}: {ratio:.1f} times as long as Java")
        ratio = self.ratio("assign", clock)
        halves = self.case.group.choose is random_half and self.case.assignor.endswith("sticky")
        if halves and not self.case.leaving and ratio is not None and ratio * FASTER > 1:
            missed.append(f"only {1 / ratio:.1f} times as fast as Java")
        parts = (statistics.median(self.seconds(self.ours, part, clock)) for part in PARTS)
        if (longest := sum(parts)) > LONGEST:
            missed.append(f"{longest:.1f} s in all parts")
        if self.peak is not None and self.peak > LARGEST:
            missed.append(f"{self.peak / MEBIBYTE:.0f} MiB")
        return missed

    def unlike(self) -> str | None:
        """The difference of the two results in what every correct result shares, or None."""
        if not self.theirs or self.ours[0]["given"] == self.theirs[0]["given"]:
            return None
        return f"given in all, least, most: {self.ours[0]['given']}, Java {self.theirs[0]['given']}"


def heading(clock: str) -> str:
    """The heading of the table."""
    return (
        f"Milliseconds ({clock}): median (lowest-highest); ratio: kgroup / Java\n"
        f"{'':47}{'assign':^42} {'encode':^42} {'decode':^13}\n"
        f"{'members x partitions, assignor':47}{'kgroup':>18}{'Java':>18}{'ratio':>6}"
        f" {'kgroup':>18}{'Java':>18}{'ratio':>6} {'kgroup':>6}{'Java':>7}"
        f"{'check':>7}{'MiB':>6}"
    )


def line(row: Row, clock: str) -> str:
    """One row of the table."""

    def spread(answers: Sequence[Answer], part: str) -> str:
        taken = [seconds * 1000 for seconds in row.seconds(answers, part, clock)]
        if not taken:
            return "-"
        return f"{_short(statistics.median(taken))} ({_short(min(taken))}-{_short(max(taken))})"

    def median(answers: Sequence[Answer], part: str) -> str:
        taken = row.seconds(answers, part, clock)
        return _short(statistics.median(taken) * 1000) if taken else "-"

    def ratio(part: str) -> str:
        found = row.ratio(part, clock)
        return "-" if found is None else f"{found:.2f}"

    peak = "" if row.peak is None else f"{row.peak / MEBIBYTE:.0f}"
    return (
        f"{row.case.name:47}"
        f"{spread(row.ours, 'assign'):>18}{spread(row.theirs, 'assign'):>18}{ratio('assign'):>6}"
        f" {spread(row.ours, 'encode'):>18}{spread(row.theirs, 'encode'):>18}"
        f"{ratio('encode'):>6} {median(row.ours, 'decode'):>6}{median(row.theirs, 'decode'):>7}"
        f"{median(row.ours, 'check'):>7}{peak:>6}"
    )


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:.0f}"


def is_large(group: Group) -> bool:
    """Whether memory is measured."""
    return group.topics * group.partitions >= 1_000_000
