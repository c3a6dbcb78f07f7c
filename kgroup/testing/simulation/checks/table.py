"""All invariants, by number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kgroup.testing.simulation.checks.answers import Answers
from kgroup.testing.simulation.checks.assignments import Assignments
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.commits import AcceptedCommits, OwnCommits
from kgroup.testing.simulation.checks.endings import Endings
from kgroup.testing.simulation.checks.failover import Failover
from kgroup.testing.simulation.checks.generations import Generations
from kgroup.testing.simulation.checks.handovers import Handovers
from kgroup.testing.simulation.checks.instances import Instances
from kgroup.testing.simulation.checks.losses import Losses
from kgroup.testing.simulation.checks.repetitions import Repetitions
from kgroup.testing.simulation.checks.starts import StartPositions
from kgroup.testing.simulation.checks.transactions import Transactions
from kgroup.testing.simulation.checks.views import Kind, Views, kind_of
from kgroup.testing.simulation.history import Fact
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
)


def check(
    plan: Plan, facts: Iterable[Fact], checks: Sequence[type[Check]] = CHECKS
) -> Iterator[Violation]:
    """Everything that is wrong, in the order in which it was found.

    Args:
        plan: what was run.
        facts: what was seen, all of it, in order.
        checks: the invariants to look at.
    """
    found: list[Violation] = []
    views = Views()
    judges = [one(plan, views, found.append) for one in checks]
    reactions: defaultdict[Kind, list[Reaction]] = defaultdict(list)
    for table in (*views.reactions, *(one.reactions for one in judges)):
        for kind, reaction in table.items():
            reactions[kind].append(reaction)
    for fact in facts:
        for react in reactions.get(kind_of(fact), ()):
            react(fact)
        if found:
            yield from found
            found.clear()
