"""Shrinks a plan that fails: to fewer and shorter faults, fewer members and less time.

The seed and everything else stay the same. A smaller plan counts only if it was run and broke the
same invariant, so the returned plan is known to fail. The caller gives the function that runs one.

Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (ddmin).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar, final

import attrs

from kgroup.testing.simulation.faults import LastingFault
from kgroup.testing.simulation.hanging import SimulationHangError
from kgroup.testing.simulation.history import FaultBegan
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.run import Outcome

T = TypeVar("T")

MOST_RUNS: Final = 100
"""The most runs; then the smallest plan found so far is the result."""
_LEAST_SECONDS: Final = 0.01
"""No fault is made shorter than this."""
_PARTS: Final = (0.1, 0.25, 0.5, 0.75)
"""The parts of its duration that a fault, or the whole plan, is tried with; shortest first."""


@final
@attrs.frozen(kw_only=True)
class Shrunk:
    """The result of shrinking.

    Attributes:
        outcome: the outcome of the smallest plan; it breaks the same invariant as the first plan.
        invariant: the number of that invariant.
        runs: how many plans were run.
        exhausted: whether the bound on runs ended the search; there may be a smaller plan then.
    """

    outcome: Outcome
    invariant: int
    runs: int
    exhausted: bool


def shrink(
    failed: Outcome, run: Callable[[Plan], Outcome], *, most_runs: int = MOST_RUNS
) -> Shrunk:
    """Find the shortest schedule of faults that breaks the same invariant.

    Faults are removed first, as many at once as possible. Those that remain get a fixed time
    instead of a state to wait for and are made shorter; then members are removed, and the plan is
    made shorter. All this is repeated until nothing more can be removed: every fault that is left
    is needed.

    Args:
        failed: an outcome with violations; smaller plans must break the invariant of the first.
        run: runs a plan, always with the same outcome for the same plan. If it raises an
            ``Exception``, the plan counts as one that does not break the invariant.
        most_runs: the most calls of ``run``.

    Raises:
        ValueError: ``failed`` has no violations.
    """
    if not failed.violations:
        raise ValueError(f"the simulation of seed {failed.plan.seed} broke no invariant")
    search = _Search(failed, run, most_runs)
    exhausted = False
    try:
        while _once(search):
            pass
    except _OutOfRunsError:
        exhausted = True
    return Shrunk(
        outcome=search.best,
        invariant=search.invariant,
        runs=search.runs,
        exhausted=exhausted,
    )


class _OutOfRunsError(Exception):
    """The bound on runs is reached."""


@final
class _Search:
    """The smallest failing plan so far, and the plans that were tried."""

    def __init__(self, failed: Outcome, run: Callable[[Plan], Outcome], most_runs: int) -> None:
        self.best = failed
        self.invariant: Final = failed.violations[0].number
        self.runs = 0
        self._run = run
        self._most_runs = most_runs
        self._tried: set[str] = {repr(failed.plan)}

    @property
    def plan(self) -> Plan:
        """The smallest plan so far."""
        return self.best.plan

    @property
    def broken_at(self) -> float:
        """When the invariant was found to be broken, in virtual seconds."""
        return next(one.at for one in self.best.violations if one.number == self.invariant)

    def smaller(self, **changes: Any) -> bool:
        """Try the plan with changes; returns whether it fails too and is the smallest now."""
        plan = attrs.evolve(self.plan, **changes)
        if (name := repr(plan)) in self._tried:
            return False
        if self.runs == self._most_runs:
            raise _OutOfRunsError
        self._tried.add(name)
        self.runs += 1
        try:
            outcome = self._run(plan)
        except SimulationHangError:
            raise _OutOfRunsError from None  # every other plan might take as long
        except Exception:  # noqa: BLE001 # another failure is not the one to shrink
            return False
        if all(one.number != self.invariant for one in outcome.violations):
            return False
        self.best = outcome
        return True


def _once(search: _Search) -> bool:
    """Try every step once; returns whether the plan became smaller."""
    before = search.plan
    for step in _STEPS:
        step(search)
    return search.plan != before


def _end_sooner(search: _Search) -> None:
    """End the plan right after the violation, and then even sooner if possible."""
    sooner = float(math.ceil(search.broken_at))
    if sooner < search.plan.duration:
        kept = tuple(one for one in search.plan.faults if one.at <= sooner)
        search.smaller(duration=sooner, faults=kept)
    last = max((one.at for one in search.plan.faults), default=0.0)
    for duration in _shorter(search.plan.duration):
        if duration >= last and search.smaller(duration=duration):
            return


def _fewer_faults(search: _Search) -> None:
    """Remove faults until none can be removed (delta debugging)."""
    if search.plan.faults and search.smaller(faults=()):
        return
    parts = 2
    while len(faults := search.plan.faults) > 1:
        pieces = list(_pieces(faults, min(parts, len(faults))))
        if any(search.smaller(faults=piece) for piece in pieces):
            parts = 2
        elif any(search.smaller(faults=_without(pieces, number)) for number in range(len(pieces))):
            parts = max(parts - 1, 2)
        elif parts >= len(faults):
            return
        else:
            parts *= 2


def _fixed_times(search: _Search) -> None:
    """Inject each fault that waited for a moment at the time at which the moment came."""
    began_at = {one.fault: one.at for one in search.best.history if isinstance(one, FaultBegan)}
    for fault in search.plan.faults:
        if fault.when is not None and fault in began_at:
            # The order of the faults changes when one gets another time.
            others = [one for one in search.plan.faults if one is not fault]
            fixed = attrs.evolve(fault, at=began_at[fault], when=None)
            search.smaller(faults=tuple(sorted([*others, fixed], key=lambda one: one.at)))


def _shorter_faults(search: _Search) -> None:
    """Make each fault as short as possible."""
    for number in range(len(search.plan.faults)):
        fault = search.plan.faults[number]
        if not isinstance(fault, LastingFault):
            continue
        for seconds in _shorter(fault.seconds):
            faults = list(search.plan.faults)
            faults[number] = attrs.evolve(fault, seconds=seconds)
            if search.smaller(faults=tuple(faults)):
                break


def _fewer_members(search: _Search) -> None:
    """Remove members, the last first."""
    for member in reversed(search.plan.members):
        members = tuple(one for one in search.plan.members if one is not member)
        if members:
            search.smaller(members=members)


def _no_logins(search: _Search) -> None:
    """Leave logins out; faults of logins have no effect then."""
    if search.plan.logins is not None:
        search.smaller(logins=None)


_STEPS: Final = (
    _no_logins,
    _end_sooner,
    _fewer_faults,
    _fixed_times,
    _shorter_faults,
    _fewer_members,
)


def _shorter(seconds: float) -> Iterator[float]:
    """Shorter times, the shortest first, rounded to be easy to read."""
    for part in _PARTS:
        shorter = seconds * part
        shorter = round(shorter, 2) if shorter < 1 else round(shorter, 1)
        if _LEAST_SECONDS <= shorter < seconds:
            yield shorter


def _pieces(whole: Sequence[T], number: int) -> Iterator[tuple[T, ...]]:
    """Cut into so many pieces of about the same length."""
    ends = [len(whole) * one // number for one in range(number + 1)]
    for begin, end in pairwise(ends):
        yield tuple(whole[begin:end])


def _without(pieces: Sequence[tuple[T, ...]], number: int) -> tuple[T, ...]:
    return tuple(one for at, piece in enumerate(pieces) if at != number for one in piece)
