"""All checks, ordered by the number of their invariant, and the function that runs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kgroup.testing.simulation.checks.answers import Answers
from kgroup.testing.simulation.checks.assertions import Assertions
from kgroup.testing.simulation.checks.assignments import Assignments
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.commits import AcceptedCommits, OwnCommits
from kgroup.testing.simulation.checks.endings import Endings
from kgroup.testing.simulation.checks.failover import Failover
from kgroup.testing.simulation.checks.generations import Generations
from kgroup.testing.simulation.checks.handovers import Handovers
from kgroup.testing.simulation.checks.instances import Instances
from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.checks.once import ProcessedOnce
from kgroup.testing.simulation.checks.repetitions import Repetitions
from kgroup.testing.simulation.checks.starts import StartPositions
from kgroup.testing.simulation.checks.transactions import Transactions
from kgroup.testing.simulation.checks.views import Kind, Views, kind_of
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.plan import Plan

CHECKS: Final[tuple[type[Check], ...]] = (
    Assignments,
    Handovers,
    Generations,
    AcceptedCommits,
    OwnCommits,
    StartPositions,
    Losses,
    Repetitions,
    Failover,
    Endings,
    Instances,
    Answers,
    Transactions,
    Assertions,
    ProcessedOnce,
)


def check(
    plan: Plan, entries: Iterable[HistoryEntry], checks: Sequence[type[Check]] = CHECKS
) -> Iterator[Violation]:
    """Check a history; yield the violations in the order in which they are found.

    Args:
        plan: the plan that was run.
        entries: the whole history.
        checks: the checks to make.
    """
    found: list[Violation] = []
    views = Views()
    instances = [one(plan, views, found.append) for one in checks]
    handlers: defaultdict[Kind, list[EntryHandler]] = defaultdict(list)
    for table in (*views.handlers, *(one.handlers for one in instances)):
        for kind, handler in table.items():
            handlers[kind].append(handler)
    for entry in entries:
        for handle in handlers.get(kind_of(entry), ()):
            handle(entry)
        if found:
            yield from found
            found.clear()
