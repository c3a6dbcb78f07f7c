"""The changes of docs/history.md: their figures are those that docs/ has, and are read right."""

from __future__ import annotations

import pytest

from benchmarks.history import change, part, report
from benchmarks.report.page import NAME
from benchmarks.report.results import Results
from kgroup.testing.simulation.schemes import SCHEMES
from tests.conftest import ROOT

KEPT = Results.read(ROOT / "docs" / NAME / "history.json")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_figures_in_docs_are_those_of_this_code(scheme: str) -> None:
    """A small change has the figures that the page shows; if not, run the part again."""
    (kept,) = [
        row
        for row in KEPT.rows
        if (row["client"], row["case"]) == (scheme, change.JOIN)
        and (row["members"], row["partitions"]) == (10, 10)
    ]
    assert kept.items() >= part.change(scheme, change.JOIN, 10, 10).items()


def test_nothing_failed() -> None:
    """Every change of the page was measured."""
    assert KEPT.failures() == {}


def test_a_change_is_drawn_until_it_is_over() -> None:
    """Each member has a lane; the new one owns something at the end, and nothing before."""
    found = part.picture("broker")
    lanes = {lane["name"]: lane for lane in found["lanes"]}
    assert list(lanes) == ["m0001", "m0002", "m0003", "m0004"]
    begin, end, words = lanes["m0004"]["spans"][-1]
    assert 0.0 < begin < end == found["seconds"]
    assert words == "6-7"
    assert {what for _, what in lanes["m0001"]["marks"]} == {"received", "sent"}


def test_tables_are_put_between_their_marks() -> None:
    """Text around them stays, and what was there is replaced."""
    text = "a\n<!-- figures: broken -->\nold\n<!-- end of figures -->\nb\n"
    made = report.with_figures(text, KEPT)
    assert made.startswith("a\n<!-- figures: broken -->\n\n| ")
    assert made.endswith("\n<!-- end of figures -->\nb\n")
    assert "old" not in made
    assert report.with_figures(made, KEPT) == made
