"""Runs many seeds with one group protocol and adds up what it breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

import attrs

from kgroup.testing.simulation.checks import Violation
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.plan import Scenario
from kgroup.testing.simulation.run import record
from kgroup.testing.simulation.schemes.judge import INVARIANTS, judge
from kgroup.testing.simulation.schemes.plans import comparable_plan
from kgroup.testing.simulation.schemes.table import Scheme
from kgroup.testing.simulation.watchdog import SEED_TIMEOUT


@final
@attrs.define(kw_only=True)
class Findings:
    """What a protocol did under the plans of some seeds.

    Attributes:
        scheme: the protocol's name.
        seeds: how many seeds were run.
        broken: by invariant in how many seeds it was broken.
        times: by invariant how often it was broken.
        first: by invariant the first seed that broke it, and how.
        processed: how many records were processed, counted each time.
        twice: how many of these had been processed before.
        shared: the seconds for which two programs acted as owner of one partition, added up.
    """

    scheme: str
    seeds: int = 0
    broken: Counter[int] = attrs.field(factory=Counter)
    times: Counter[int] = attrs.field(factory=Counter)
    first: dict[int, tuple[int, Violation]] = attrs.field(factory=dict)
    processed: int = 0
    twice: int = 0
    shared: float = 0.0

    def add(self, seed: int, entries: Iterable[HistoryEntry]) -> None:
        """Judge the history of a seed."""
        found = judge(entries)
        self.seeds += 1
        self.processed += found.processed
        self.twice += found.twice
        self.shared += sum(found.shared.values())
        times = Counter(one.number for one in found.violations)
        self.times.update(times)
        self.broken.update(times.keys())
        for one in found.violations:
            self.first.setdefault(one.number, (seed, one))

    def lines(self) -> Iterator[str]:
        """The findings as text."""
        again = 100 * self.twice / max(self.processed, 1)
        yield f"{self.scheme}: {self.seeds} seed{'s' * (self.seeds != 1)}"
        records = f"{self.processed} processed, {self.twice} of them again ({again:.2g}%)"
        yield f"  records         {records}"
        yield f"  two owners      {self.shared:.1f} s"
        for number, words in INVARIANTS.items():
            yield f"  invariant {number:<5} {words}"
            if number not in self.first:
                yield f"  {'':15} holds in every seed"
                continue
            seed, violation = self.first[number]
            seeds, times = self.broken[number], self.times[number]
            yield (
                f"  {'':15} broken in {seeds} seed{'s' * (seeds != 1)}, {times}"
                f" time{'s' * (times != 1)};"
                f" first in seed {seed}, at {violation.at:.3f} s: {violation.what}"
            )


DEFAULT: Final = Scenario(logins=False, deletes_topics=False)


def find(
    scheme: Scheme,
    seeds: Iterable[int],
    scenario: Scenario = DEFAULT,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    seed_timeout: float = SEED_TIMEOUT,
) -> Findings:
    """Run the seeds with a protocol.

    Args:
        scheme: the protocol.
        seeds: the seeds.
        scenario: what all seeds share.
        on_progress: called after each seed with how many were run.
        seed_timeout: see `check`.

    Raises:
        UsageError: see `simulate`.
    """
    findings = Findings(scheme=scheme.name)
    for seed in seeds:
        plan = comparable_plan(scenario, seed)
        entries = record(plan, scheme.worker, scheme.new_coordination, seed_timeout=seed_timeout)
        findings.add(seed, entries)
        on_progress(findings.seeds)
    return findings
