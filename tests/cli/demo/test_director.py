"""The director: what it waits for, how it paces the lines, and the failures that it reports."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from kgroup.cli.demo import DemoError
from kgroup.cli.demo.cluster import DemoCluster, LineProducer
from kgroup.cli.demo.director import DemoPlan, DemoStage, Director
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.journal import JournalReader
from kgroup.cli.demo.processes import Child, Children
from kgroup.cli.demo.progress import Condition, Worker
from kgroup.cli.demo.run import STAGES, seconds_of

LINES = 10_000
SECONDS = seconds_of(STAGES)


@attrs.define
class FakeProducer:
    """Replaces `LineProducer`: records when how many lines were sent."""

    left: int = LINES
    sent: int = 0
    portions: list[tuple[float, int]] = attrs.field(factory=list)
    placed: dict[tuple[int, int], int] = attrs.field(factory=dict)

    async def spread_over(self, partitions: int) -> None:
        """See `LineProducer`."""
        await trio.lowlevel.checkpoint()
        assert partitions == 6

    def send(self, number: int) -> None:
        """See `LineProducer`."""
        self.left -= number
        self.sent += number
        self.portions.append((trio.current_time(), number))

    async def flush(self) -> None:
        """See `LineProducer`."""
        await trio.lowlevel.checkpoint()


@attrs.define
class FakeChild:
    """Replaces a process."""

    name: str = "worker-1"
    status: int | None = None

    def terminate(self) -> None:
        """See `Child`; the process ends with an error."""
        self.status = 3

    def last_error_line(self) -> str:
        """See `Child`."""
        return "alas"


@pytest.fixture
def producer() -> FakeProducer:
    """A producer of 10,000 lines."""
    return FakeProducer()


@pytest.fixture
def director(producer: FakeProducer, tmp_path: Path) -> Director:
    """A director without a cluster."""
    return Director(
        DemoPlan(lines=["a"] * LINES, workers=3, partitions=6, bootstrap_servers=None),
        tmp_path,
        cast("DemoCluster", None),
        cast("LineProducer", producer),
        cast("Children", None),
        Display(Console(file=io.StringIO())),
        SECONDS,
    )


def add_worker(director: Director, folder: Path) -> Worker:
    """A worker that writes nothing."""
    reader = JournalReader(folder / "none")
    worker = Worker(child=cast("Child", FakeChild()), journal=reader)
    director.progress.workers.append(worker)
    return worker


async def test_a_timeout_says_what_was_waited_for(
    director: Director, autojump_clock: MockClock
) -> None:
    """The error says what did not happen, and within how many seconds."""
    assert autojump_clock.autojump_threshold == 0
    with pytest.raises(DemoError, match="no worker had a batch half processed within 180 s"):
        await director.worker_halfway()
    with pytest.raises(DemoError, match="did not share all 6 partitions within 180 s"):
        await director.wait_until_settled()


async def test_the_error_names_a_worker_that_ended_by_itself(
    director: Director, tmp_path: Path
) -> None:
    """The error is raised at once, whatever the director waits for; a killed worker may end."""
    worker = add_worker(director, tmp_path)
    cast("Any", worker.child).status = 1
    with pytest.raises(DemoError, match="worker-1 ended by itself with status 1: alas"):
        await director.wait_until_settled()
    worker.condition = Condition.KILLED
    await director.wait_until(lambda: True, "")


async def test_the_error_names_a_worker_that_ended_badly_after_sigterm(
    director: Director, tmp_path: Path
) -> None:
    """A worker that is stopped must end with status 0."""
    worker = add_worker(director, tmp_path)
    with pytest.raises(DemoError, match="worker-1 ended with status 3 after SIGTERM: alas"):
        await director.stop_worker(worker)


async def test_lines_last_through_stages_that_take_longer(
    director: Director, producer: FakeProducer, autojump_clock: MockClock
) -> None:
    """The first stage sends the planned number each second; some lines are left for the last."""
    assert autojump_clock.autojump_threshold == 0
    takes = {stage.title: stage.seconds * 3 for stage in STAGES[:-1]}

    async def play(director: Director) -> None:
        end = trio.current_time() + takes.popitem()[1]
        await director.wait_until(lambda: trio.current_time() >= end, "time did not pass", 1000)

    stages = [DemoStage(stage.title, stage.seconds, play) for stage in STAGES[:-1]]
    await director.run([*stages, STAGES[-1]])
    portions = [number for _, number in producer.portions]
    assert portions[0] == pytest.approx(LINES / SECONDS, rel=0.1)
    assert all(number > 0 for number in portions)
    assert producer.left == 0


async def test_the_director_stops_waiting_when_workers_stall(
    director: Director,
    producer: FakeProducer,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    """If no worker processes a line, the director waits no longer than the stall timeout."""
    assert autojump_clock.autojump_threshold == 0
    monkeypatch.setattr("kgroup.cli.demo.director.STALL_TIMEOUT", 5.0)
    producer.placed = {(0, 0): 0}
    began = trio.current_time()
    await director.finish_lines()
    assert 5.0 <= trio.current_time() - began < 7.0
