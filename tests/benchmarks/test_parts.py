"""The parts refuse what they cannot measure, show every fault, and leave no process behind."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import single
from benchmarks.__main__ import PARTS
from benchmarks.clients.job import Job
from benchmarks.clients.roster import CLIENTS, Present
from benchmarks.handover import part as handover
from benchmarks.handover.judge import Record
from benchmarks.handover.part import judged
from benchmarks.handover.stage import Mark
from benchmarks.latency import part as latency
from benchmarks.processes import FailedError
from benchmarks.records import part as records
from benchmarks.scripts import part as scripts
from benchmarks.security import part as security
from kgroup.testing.embedded import EmbeddedKafka


@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("handover", "--rounds 0"),
        ("handover", "--heartbeat 0"),  # to a client it would be its own default
        ("handover", "--session nan"),
        ("handover", "--clients confluent-raw"),
        ("records", "--records -1"),
        ("latency", "--seconds 0"),
        ("memory", "--clients kgroup-source"),
        ("idle", "--clients confluent-checked"),
        ("security", "--clients java"),  # it would read on the plain listener
        ("security", "--groups aiokafka"),
        ("security", "--groups misspelt"),
        ("history", "--seeds 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    part: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that would measure nothing, or something else than the table says, is an error."""
    parser = argparse.ArgumentParser()
    PARTS[part][1](parser)
    with pytest.raises(SystemExit):
        parser.parse_args(options.split())
    assert options.split(maxsplit=1)[0] in capsys.readouterr().err


def test_each_size_needs_its_number_of_records(tmp_path: Path) -> None:
    """It is an error before anything is started."""
    given = argparse.Namespace(sizes=[100], records=[1, 2])
    with pytest.raises(FailedError, match="--sizes has 1 values and --records 2"):
        records.run(given, tmp_path)


def test_a_part_without_clients_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If all clients are left out, the results say why, and no broker is started."""
    missing = Present((), {}, {"kafka-go": "there is no Go"})
    monkeypatch.setattr(handover, "present", lambda _: missing)
    monkeypatch.delattr(handover, "RealKafka")
    parser = argparse.ArgumentParser()
    handover.add_arguments(parser)
    found = handover.run(parser.parse_args(["--clients", "kafka-go"]), tmp_path)
    assert (found.rows, found.left_out) == ([], {"kafka-go": "there is no Go"})


def stage_of(journals: dict[str, list[Record]], marks: list[Mark]) -> Any:
    """A stage whose scenes are over; its partition 0 has records 0 to 9."""
    return SimpleNamespace(journals=lambda: journals, ends=lambda: {0: 10}, marks=marks, woken=[])


def test_a_fault_between_scenes_is_not_left_out() -> None:
    """One while the group gets another size is of the scene before, an early one of the first."""
    done = [(0, 1.0), (0, 2.0), (1, 11.0), (1, 15.0), (3, 21.0), (3, 25.0), (4, 31.0), (9, 35.0)]
    marks = [Mark(10.0, "a", "x"), Mark(12.0, None, ""), Mark(20.0, "b", "y"), Mark(22.0, None, "")]
    marks += [Mark(30.0, "c", "z"), Mark(40.0, None, "")]
    journals = {"w": [Record(0, offset, at, at + 0.1) for offset, at in done]}
    plays = {play["scene"]: play for play in judged(stage_of(journals, marks), ["c"])}
    assert [*plays] == ["a", "b"]
    assert [(plays[name]["lost"], plays[name]["twice"]) for name in "ab"] == [(0, 2), (1, 1)]


def given(offsets: list[int]) -> type:
    """A stage class whose worker reads these offsets of ten."""

    class Played:
        def __init__(self, *_: object) -> None:
            self.be = self.finish = lambda *_: None

        @contextmanager
        def running(self) -> Iterator[None]:
            yield

        def journals(self) -> dict[str, list[Record]]:
            return {"w": [Record(0, one, 0.5, 0.75) for one in offsets]}

        def ends(self) -> dict[int, int]:
            return {0: 10}

    return Played


@pytest.mark.parametrize(
    ("offsets", "words"),
    [([*range(8)], "left 2 records unread"), ([0, *range(2, 10)], "lost=1")],
)
def test_a_latency_is_that_of_every_record(
    monkeypatch: pytest.MonkeyPatch, offsets: list[int], words: str
) -> None:
    """A client that does not get all records has failed, however soon it gets the others."""
    monkeypatch.setattr(latency, "Stage", given(offsets))
    monkeypatch.setattr(time, "monotonic", iter((0.0, 1.0)).__next__)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    arguments = argparse.Namespace(partitions=1, rate=10, seconds=1.0)
    with pytest.raises(FailedError, match=words):
        latency.latencies("h:1", arguments, CLIENTS["kgroup"], "")


def test_a_restart_that_leaves_records_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If records are left unread after a restart, the measurement fails."""
    play = {"longest": [0.1], "lost": 0, "twice": 0, "back": 0, "unread": 3}
    monkeypatch.setattr(security, "plays_of", lambda *_: [play])
    job = Job(servers="h:1", topic="", group="")
    with pytest.raises(FailedError, match=r"'unread': 3"):
        security.restarting(job, Path("x"), argparse.Namespace(), CLIENTS["kgroup"], "plain text")


def test_a_broker_is_warm_before_the_first_client(embedded_kafka: EmbeddedKafka) -> None:
    """A group has joined, read and committed, as every client will."""
    seen = set[str]()
    topic_with = single.topic_with

    def noted(*given: Any) -> str:
        seen.add(topic_with(*given))
        return next(iter(seen))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single, "topic_with", noted)
        patch.setattr(single, "uuid4", lambda: SimpleNamespace(hex="12345678"))
        single.warm_up(embedded_kafka.bootstrap_servers)
    assert [one.offset for one in embedded_kafka.committed("warm-up-12345678").values()] == [1]


PROGRAM = """
import os, pathlib, signal, sys, time
try:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(600)
finally:
    pathlib.Path(sys.argv[1]).touch()
"""


def test_a_terminated_part_ends_its_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program of "assignors" or "spark" cleans up, and is waited for, when SIGTERM comes."""
    (tmp_path / "assignors.py").write_text(PROGRAM)
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    arguments = argparse.Namespace(options=[str(tmp_path / "cleaned")])
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with pytest.raises(SystemExit):
            scripts.run("assignors", arguments, tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "cleaned").exists()
