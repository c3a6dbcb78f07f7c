"""The verdict: which figures make an account wrong."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kgroup.cli.demo.audit import audit
from kgroup.cli.demo.audit_report import FAULTS, AuditReport
from tests.cli.demo.story import told

RIGHT = audit(told().evidence())


@pytest.mark.parametrize("figure", [name for name, _ in FAULTS])
def test_a_figure_that_must_be_nought(figure: str) -> None:
    """Where it is not, the account is wrong and says how many."""
    assert RIGHT.faults == []
    figures: dict[str, Any] = {figure: 7}
    (fault,) = attrs.evolve(RIGHT, **figures).faults
    assert "7 " in fault


def test_every_figure_is_either_a_fault_or_a_fact() -> None:
    """A new figure has to be decided on."""
    facts = {
        "produced",
        "processed",
        "repeated_after_kill",
        "repeated_by_frozen",
        "uncommitted_at_kill",
        "processed_after_waking",
        "generations",
        "stale_commits_refused",
        "words",
        "seconds",
    }
    otherwise = {"counts_equal", "problems"}
    named = {field.name for field in attrs.fields(AuditReport)}
    assert named == facts | otherwise | {name for name, _ in FAULTS}


def test_unequal_counts_are_a_fault() -> None:
    """The words decide too."""
    (fault,) = attrs.evolve(RIGHT, counts_equal=False).faults
    assert "word counts" in fault


def test_a_problem_on_the_way_is_a_fault() -> None:
    """A demo that could not show everything is not right, whatever the figures say."""
    assert attrs.evolve(RIGHT, problems=("no worker came",)).faults == ["no worker came"]
