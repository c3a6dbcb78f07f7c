"""The tests that are not measured exist, and the others are measured again after them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import coverage
import pytest

from tests import measuring
from tests.conftest import ROOT
from tests.measuring import STORIES, is_story


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that stop and start the measuring."""
    calls: list[str] = []
    current = SimpleNamespace(
        stop=lambda: calls.append("stop"), start=lambda: calls.append("start")
    )
    monkeypatch.setattr(coverage.Coverage, "current", lambda: current)
    return calls


def during_and_after(hook: Generator[None, object, object], calls: list[str]) -> object:
    """The calls until a hook yields, and those until it has ended."""
    next(hook)
    during = list(calls)
    with pytest.raises(StopIteration):
        hook.send(None)
    return during, calls


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_story_exists(story: PurePath) -> None:
    """A file that was renamed would be measured again."""
    assert (ROOT / story).exists()


@pytest.mark.parametrize("file", ["tests/schedules/test_schedules.py", "tests/test_config.py"])
def test_measuring_stops_for_a_story_only(
    file: str, request: pytest.FixtureRequest, calls: list[str]
) -> None:
    """It goes on when the story has ended."""
    item: Any = SimpleNamespace(path=ROOT / file, config=request.config)
    found = during_and_after(measuring.pytest_runtest_protocol(item), calls)
    assert found == ((["stop"], ["stop", "start"]) if "schedules" in file else ([], []))


def test_only_stories_are_stories() -> None:
    """A folder counts with all its files, and a name is not taken for another's beginning."""
    assert is_story(PurePath("tests/broker/interop/test_groups.py"))
    assert not is_story(PurePath("tests/broker/test_apis.py"))
    assert not is_story(PurePath("tests/houses/test_measuring.py"))


@pytest.mark.parametrize(("workers", "measured"), [(4, False), (0, True), (None, True)])
def test_the_process_that_hands_tests_out_is_not_measured(
    workers: int | None, measured: bool, calls: list[str]
) -> None:
    """A worker, and a process that runs the tests itself, are."""
    config = SimpleNamespace(getoption=lambda name, default: {"numprocesses": workers}[name])
    session: Any = SimpleNamespace(config=config)
    found = during_and_after(measuring.pytest_runtestloop(session), calls)
    assert found == (([], []) if measured else (["stop"], ["stop", "start"]))
