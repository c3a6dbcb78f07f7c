"""Closing ends within its bound: in every state, in every way, whatever is unavailable."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final

import pytest

from tests.closing.harness import Case, Outage, Way, When, play
from tests.closing.states import STATES

SESSIONS: Final = (6.0, 10.0, 30.0)
#: How many ways of closing are tried for each moment; the states take turns, so all ways occur.
WAYS: Final = {When.BEFORE: len(Way), When.AMID: 2, When.EARLIER: 2}


def cases(name: str, outage: Outage) -> Iterator[Case]:
    """Cases in one state while one part is unavailable."""
    turn = list(STATES).index(name) + list(Outage).index(outage)
    number = turn
    for when, ways in WAYS.items():
        if outage is Outage.NOTHING and when is When.AMID:
            continue
        for way in islice(cycle(Way), turn, turn + ways):
            yield Case(STATES[name], outage, when, way, SESSIONS[number % len(SESSIONS)])
            number += 1


@pytest.mark.parametrize("outage", Outage, ids=lambda outage: outage.name.lower())
@pytest.mark.parametrize("name", STATES)
def test_closing_ends(name: str, outage: Outage) -> None:
    """Closing ends within ``longest_close``; connections and record source are closed."""
    played = [(case, play(case)) for case in cases(name, outage)]
    wrong = {
        f"{case.way.value}, {case.when.value}, {case.session_timeout:g} s": outcome.faults
        for case, outcome in played
        if outcome.faults
    }
    assert wrong == {}


def test_the_walk_has_every_combination() -> None:
    """Each state occurs with each unavailable part, way, moment and session time-out."""
    for name in STATES:
        met = [case for outage in Outage for case in cases(name, outage)]
        assert {case.outage for case in met} == set(Outage)
        assert {(case.when, case.way) for case in met} == {
            (when, way) for when in When for way in Way
        }
        assert {case.session_timeout for case in met} == set(SESSIONS)
