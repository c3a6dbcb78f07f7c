"""The table of state coverage."""

from __future__ import annotations

from kgroup.testing.simulation import Summary, generate_plan, simulate
from kgroup.testing.simulation.coverage import lines
from kgroup.testing.simulation.fault_generation import KINDS
from kgroup.testing.simulation.targeted_faults import CELLS
from tests.testing.simulation.samples import SMALL


def test_what_was_visited_is_counted_and_what_was_not_is_named() -> None:
    """Visits are counted by states, and the cells without any are named."""
    table = list(lines(((("Crash", "running", "Stable"), 3), (("Stop", "running", "Stable"), 1))))
    assert f": 2 of {len(CELLS)} combinations" in table[0]
    (row,) = [line for line in table if line.startswith("  running ")]
    assert row.endswith(f"2/{len(KINDS)} 4")
    assert "    joining, Preparing: every fault" in table
    (named,) = [line for line in table if line.startswith("    running, Stable: ")]
    assert "Freeze" in named
    assert "Crash" not in named


def test_a_campaign_that_visited_all_names_nothing() -> None:
    """If all cells were visited there is only the table."""
    table = list(lines(tuple((cell, 1) for cell in CELLS)))
    assert f": {len(CELLS)} of {len(CELLS)} combinations" in table[0]
    assert not any("never visited" in line for line in table)


def test_a_simulation_counts_its_cells() -> None:
    """Each fault counts once for every member that it affects."""
    outcome = simulate(generate_plan(SMALL, 4))
    summary = Summary.of(outcome.history)
    assert sum(number for _, number in summary.visits) >= sum(n for _, n in summary.faults) > 0
    assert {cell[0] for cell, _ in summary.visits} == {name for name, _ in summary.faults}
    assert (summary + summary).visits == tuple((cell, 2 * n) for cell, n in summary.visits)
