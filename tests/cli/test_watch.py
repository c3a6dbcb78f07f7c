"""``--watch``: the same again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from kgroup.cli.admin_client import ClusterError, LoginRefusedError
from kgroup.cli.watch import show


class EndOfTestError(Exception):
    """Raised in place of the wait that would never end."""


def fetches(*results: str | ClusterError) -> Any:
    """A function that returns or raises these in turn."""
    left: Iterator[str | ClusterError] = iter(results)

    def fetch() -> tuple[dict[str, Any], Any]:
        found = next(left)
        if isinstance(found, ClusterError):
            raise found

        def printed(console: Console) -> None:
            console.print(found)

        return {"found": found}, printed

    return fetch


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between the calls; the third is the last."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise EndOfTestError

    monkeypatch.setattr("kgroup.cli.watch.time.sleep", sleep)
    return waited


def test_without_watch_it_is_shown_once(
    capsys: pytest.CaptureFixture[str], waits: list[float]
) -> None:
    """There is no time beside it, and no wait."""
    show(fetches("one"), as_json=False, every=None)
    assert capsys.readouterr().out == "one\n"
    assert waits == []


def test_a_later_failure_does_not_end_it(
    capsys: pytest.CaptureFixture[str], waits: list[float]
) -> None:
    """The failure is reported on standard error, the next attempt follows, and lines have times."""
    with pytest.raises(EndOfTestError):
        show(fetches("one", ClusterError("no answer"), "two"), as_json=True, every=2.5)
    said = capsys.readouterr()
    shown = [json.loads(line) for line in said.out.splitlines()]
    assert [one["found"] for one in shown] == ["one", "two"]
    assert all(datetime.fromisoformat(one["at"]).tzinfo == UTC for one in shown)
    assert said.err.endswith(": no answer\n")
    assert waits == [2.5] * 3


@pytest.mark.parametrize(("every", "waited"), [(2.0, [2, 4, 8]), (200.0, [200, 300, 300])])
def test_refused_logins_become_rare(waits: list[float], every: float, waited: list[float]) -> None:
    """A service may lock the account after some of them; the longest wait is that of a group."""
    refused = [LoginRefusedError("no")] * 2
    with pytest.raises(EndOfTestError):
        show(fetches("one", *refused), as_json=True, every=every)
    assert waits == waited


def test_after_an_answer_the_waits_are_short_again(waits: list[float]) -> None:
    """The same after another failure: the login was not refused."""
    for then in ("two", ClusterError("no answer")):
        waits.clear()
        with pytest.raises(EndOfTestError):
            show(fetches("one", LoginRefusedError("no"), then), as_json=True, every=2.0)
        assert waits == [2, 4, 2]


def test_each_refresh_has_its_time(capsys: pytest.CaptureFixture[str], waits: list[float]) -> None:
    """Where the output is no terminal, the refreshes follow each other."""
    with pytest.raises(EndOfTestError):
        show(fetches("one", "two", "three"), as_json=False, every=1.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1::3] == ["one", "two", "three"]
    assert all(line[:2] == "20" for line in lines[::3])


def test_a_first_failure_ends_it(waits: list[float]) -> None:
    """An address that is wrong will not become right."""
    with pytest.raises(ClusterError, match="no answer"):
        show(fetches(ClusterError("no answer")), as_json=False, every=1.0)
