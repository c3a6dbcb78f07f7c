"""State coverage of a campaign: which faults were injected in which states, and which never."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from kgroup.testing.simulation.fault_generation import KINDS
from kgroup.testing.simulation.states import COORDINATOR_STATES, MEMBER_STATES
from kgroup.testing.simulation.targeted_faults import CELLS, Cell

Visits = tuple[tuple[Cell, int], ...]
"""For each cell how often it was visited."""

_SHORT: Final = {"PreparingRebalance": "Preparing", "CompletingRebalance": "Completing"}


def lines(visits: Visits) -> Iterator[str]:
    """A table of the cells that were visited, then the names of those that were not.

    There is a row for each state of a member and a column for each state of the coordinator. Each
    entry has how many kinds of faults were injected in these states, out of all kinds, and how
    many faults that were in total.
    """
    seen = Counter(dict(visits))
    never = [cell for cell in CELLS if not seen[cell]]
    yield (
        f"state coverage: {len(CELLS) - len(never)} of {len(CELLS)} combinations of a fault, a"
        " member's state and the coordinator's state"
    )
    rows = [
        ["", *(_SHORT.get(name, name) for name in COORDINATOR_STATES)],
        *(
            [member, *(_entry(seen, member, one) for one in COORDINATOR_STATES)]
            for member in MEMBER_STATES
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (one.rjust(width) for one, width in zip(others, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}"
    if never:
        yield "  never visited:"
        yield from _named(never)


def _entry(seen: Mapping[Cell, int], member: str, coordinator: str) -> str:
    cells = [cell for cell in CELLS if cell[1:] == (member, coordinator)]
    kinds = sum(seen[cell] > 0 for cell in cells)
    return f"{kinds}/{len(cells)} {sum(seen[cell] for cell in cells)}"


def _named(never: list[Cell]) -> Iterator[str]:
    by_states: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for fault, member, coordinator in never:
        by_states[member, coordinator].append(fault)
    for (member, coordinator), names in by_states.items():
        which = "every fault" if len(names) == len(KINDS) else ", ".join(names)
        yield f"    {member}, {_SHORT.get(coordinator, coordinator)}: {which}"
