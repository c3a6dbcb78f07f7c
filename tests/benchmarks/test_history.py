"""The changes of docs/history.md: their figures are those that docs/ has, and are read right."""

from __future__ import annotations

import json

import pytest

from benchmarks.history import part, report
from benchmarks.report.page import NAME
from benchmarks.report.results import Results
from kgroup.testing.simulation.schemes import SCHEMES
from tests.conftest import ROOT

KEPT = Results.read(ROOT / "docs" / NAME / "history.json")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_pictures_in_docs_are_those_of_this_code(scheme: str) -> None:
    """The change that is drawn goes as the page shows; if not, run the part again."""
    (kept,) = [row for row in KEPT.rows if (row["client"], row["case"]) == (scheme, part.PICTURE)]
    made = json.loads(json.dumps(part.picture(scheme)))
    assert kept.items() >= made.items()
    lanes = {lane["name"]: lane for lane in made["lanes"]}
    assert list(lanes) == ["m0001", "m0002", "m0003", "m0004"]
    begin, end, words = lanes["m0004"]["spans"][-1]
    assert 0.0 < begin < end == made["seconds"]
    assert words == "6-7"
    assert {what for _, what in lanes["m0001"]["marks"]} == {"received", "sent"}


def test_nothing_failed() -> None:
    """Every change of the page was measured."""
    assert KEPT.failures() == {}


def test_tables_are_put_between_their_marks() -> None:
    """Text around them stays, and what was there is replaced."""
    text = "a\n<!-- figures: broken -->\nold\n<!-- end of figures -->\nb\n"
    made = report.with_figures(text, KEPT)
    assert made.startswith("a\n<!-- figures: broken -->\n\n| ")
    assert made.endswith("\n<!-- end of figures -->\nb\n")
    assert "old" not in made
    assert report.with_figures(made, KEPT) == made
