"""A line is changed in one place only, in a process of its own, and a missing line is an error."""

from __future__ import annotations

import pytest

from tests.testing.simulation.mutations.hunting import Hunter, HuntError
from tests.testing.simulation.mutations.mutation import Mutation
from tests.testing.simulation.mutations.program import ChangeError, changed

SOURCE = """\
def one():
    return 1

def two():
    return 1
"""


def test_a_line_is_changed_and_its_indentation_kept() -> None:
    """Everything else, and the indentation, stays the same."""
    assert changed("if x:\n    y = 1\nz = 2\n", "y = 1", "y = 3", None) == (
        "if x:\n    y = 3\nz = 2\n"
    )


@pytest.mark.parametrize(
    ("within", "rest"),
    [
        ("def one():", "    return 2\n\ndef two():\n    return 1\n"),
        ("def two():", "    return 1\n\ndef two():\n    return 2\n"),
    ],
)
def test_of_several_lines_the_one_in_a_block_is_changed(within: str, rest: str) -> None:
    """``within`` selects one of several equal lines by its block."""
    assert changed(SOURCE, "return 1", "return 2", within) == f"def one():\n{rest}"


def test_a_block_continues_after_its_brackets() -> None:
    """A signature of several lines does not end its block."""
    source = "def one(\n    x,\n):\n    return x\n"
    assert changed(source, "return x", "pass", "def one(") == source.replace("return x", "pass")


@pytest.mark.parametrize(
    ("old", "within", "words"),
    [
        ("return 3", None, "'return 3' is there 0 times"),
        ("return 1", None, "'return 1' is there 2 times"),
        ("return 1", "def three():", "'def three\\(\\):' is there 0 times"),
        ("return 3", "def two():", "'return 3' is there 0 times"),
        ("def one():", "def two():", "'def one\\(\\):' is there 0 times"),
    ],
)
def test_a_line_that_is_not_there_once_is_an_error(
    old: str, within: str | None, words: str
) -> None:
    """A mutation that no longer fits the source raises, and changes nothing."""
    with pytest.raises(ChangeError, match=words):
        changed(SOURCE, old, "pass", within)


def mutation(module: str, old: str) -> Mutation:
    """A mutation that replaces a line by ``pass``."""
    return Mutation(breaks=1, description="", module=module, old=old, new="pass")


def test_a_hunt_for_a_line_that_is_gone_fails(hunter: Hunter) -> None:
    """The hunt for a missing line raises in the test."""
    with pytest.raises(HuntError, match="'no such line' is there 0 times"):
        hunter.hunt(mutation("kgroup.client.lease", "no such line"), seeds=())


def test_a_hunt_in_a_module_that_no_simulation_loads_fails(hunter: Hunter) -> None:
    """A change in a module that is never loaded is an error."""
    with pytest.raises(HuntError, match=r"kgroup\.cli\.demo\.text plays no part"):
        hunter.hunt(mutation("kgroup.cli.demo.text", "pass"), seeds=())


def test_a_change_that_stops_the_simulator_finds_nothing(hunter: Hunter) -> None:
    """An error of the simulator itself is no violation, and does not affect the next hunt."""
    change = Mutation(
        breaks=1,
        description="",
        module="kgroup.testing.simulation.run",
        old="recorder = Recorder()",
        new="raise MemoryError",
    )
    caught = hunter.hunt(change, seeds=(0,))
    assert caught.seed is None
    assert caught.failed == ["seed 0: MemoryError()"]
    assert hunter.hunt_unchanged(seeds=(0,)).failed == []
