"""The tests that are not measured exist, and the others are measured again after them."""

from __future__ import annotations

from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import coverage
import pytest

from tests import measuring
from tests.conftest import ROOT
from tests.measuring import STORIES, is_story


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_story_exists(story: PurePath) -> None:
    """A file that was renamed would be measured again."""
    assert (ROOT / story).exists()


@pytest.mark.parametrize("file", ["tests/schedules/test_schedules.py", "tests/test_config.py"])
def test_measuring_stops_for_a_story_only(
    file: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when the story has ended."""
    calls: list[str] = []
    current = SimpleNamespace(
        stop=lambda: calls.append("stop"), start=lambda: calls.append("start")
    )
    monkeypatch.setattr(coverage.Coverage, "current", lambda: current)
    item: Any = SimpleNamespace(path=ROOT / file, config=request.config)
    steps = measuring.pytest_runtest_protocol(item)
    next(steps)
    during = list(calls)
    with pytest.raises(StopIteration):
        steps.send(None)
    story = "schedules" in file
    assert (during, calls) == ((["stop"], ["stop", "start"]) if story else ([], []))


def test_only_stories_are_stories() -> None:
    """A folder counts with all its files, and a name is not taken for another's beginning."""
    assert is_story(PurePath("tests/broker/interop/test_groups.py"))
    assert not is_story(PurePath("tests/broker/test_apis.py"))
    assert not is_story(PurePath("tests/houses/test_measuring.py"))


@pytest.mark.parametrize(("workers", "measured"), [(4, False), (0, True), (None, True)])
def test_the_process_that_hands_tests_out_is_not_measured(
    workers: int | None, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker, and a process that runs the tests itself, are."""
    calls: list[str] = []
    current = SimpleNamespace(
        stop=lambda: calls.append("stop"), start=lambda: calls.append("start")
    )
    monkeypatch.setattr(coverage.Coverage, "current", lambda: current)
    config = SimpleNamespace(getoption=lambda name, default: {"numprocesses": workers}[name])
    session: Any = SimpleNamespace(config=config)
    steps = measuring.pytest_runtestloop(session)
    next(steps)
    during = list(calls)
    with pytest.raises(StopIteration):
        steps.send(None)
    assert (during, calls) == (([], []) if measured else (["stop"], ["stop", "start"]))
