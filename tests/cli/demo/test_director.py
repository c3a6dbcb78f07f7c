"""The conductor's waiting: what does not happen in time, and what must not happen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

from kgroup.cli.demo import director as conducting
from kgroup.cli.demo.cluster import DemoCluster
from kgroup.cli.demo.director import DemoPlan, DemoStage, Director
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.errors import DemoError
from kgroup.cli.demo.journal import JournalReader
from kgroup.cli.demo.processes import Child, Children
from kgroup.cli.demo.producer import LineProducer
from kgroup.cli.demo.progress import Condition, Worker
from kgroup.cli.demo.schedule import SECONDS, STAGES

LINES = 10_000


@attrs.define
class FakeFeed:
    """In place of a producer: counts, and knows when how many were sent."""

    left: int = LINES
    sent: int = 0
    portions: list[tuple[float, int]] = attrs.field(factory=list)
    placed: dict[tuple[int, int], int] = attrs.field(factory=dict)

    async def spread_over(self, partitions: int) -> None:
        """As `LineProducer`'s."""
        await trio.lowlevel.checkpoint()
        assert partitions == 6

    def send(self, number: int) -> None:
        """As `LineProducer`'s."""
        self.left -= number
        self.sent += number
        self.portions.append((trio.current_time(), number))

    async def flush(self) -> None:
        """As `LineProducer`'s."""
        await trio.lowlevel.checkpoint()


@attrs.define
class FakeChild:
    """In place of a process."""

    name: str = "worker-1"
    status: int | None = None

    def terminate(self) -> None:
        """As `Child`'s; it ends badly."""
        self.status = 3

    def last_words(self) -> str:
        """As `Child`'s."""
        return "alas"


@pytest.fixture
def feed() -> FakeFeed:
    """The lines."""
    return FakeFeed()


@pytest.fixture
def conductor(feed: FakeFeed, tmp_path: Path) -> Director:
    """A conductor without a cluster."""
    return Director(
        DemoPlan(lines=["a"] * LINES, workers=3, partitions=6, bootstrap_servers=None),
        tmp_path,
        cast("DemoCluster", None),
        cast("LineProducer", feed),
        cast("Children", None),
        Display(Console(file=io.StringIO())),
        SECONDS,
    )


def add_worker(conductor: Director, folder: Path) -> Worker:
    """A worker that writes nothing."""
    reader = JournalReader(folder / "none")
    worker = Worker(child=cast("Child", FakeChild()), journal=reader)
    conductor.watch.workers.append(worker)
    return worker


async def test_what_does_not_happen_in_time_is_named(
    conductor: Director, autojump_clock: MockClock
) -> None:
    """The error says what, and how long it was waited for."""
    assert autojump_clock.autojump_threshold == 0
    with pytest.raises(DemoError, match="no worker had a batch half done within 45 s"):
        await conductor.one_halfway()
    with pytest.raises(DemoError, match="did not come to share 6 partitions within 45 s"):
        await conductor.settled()


async def test_a_worker_that_ends_by_itself_is_named(conductor: Director, tmp_path: Path) -> None:
    """At once, whatever is being waited for; one that is to end may."""
    worker = add_worker(conductor, tmp_path)
    cast("Any", worker.child).status = 1
    with pytest.raises(DemoError, match="worker-1 ended by itself with status 1: alas"):
        await conductor.settled()
    worker.condition = Condition.KILLED
    await conductor.until(lambda: True, "")


async def test_a_worker_that_ends_badly_when_told_to_is_named(
    conductor: Director, tmp_path: Path
) -> None:
    """A graceful stop has status 0."""
    worker = add_worker(conductor, tmp_path)
    with pytest.raises(DemoError, match="worker-1 ended with status 3 after SIGTERM: alas"):
        await conductor.stop_worker(worker)


async def test_lines_last_through_stages_that_take_longer(
    conductor: Director, feed: FakeFeed, autojump_clock: MockClock
) -> None:
    """As many as come each second in the first stage, and some in the last, however late."""
    assert autojump_clock.autojump_threshold == 0
    takes = {stage.title: stage.seconds * 3 for stage in STAGES[:-1]}

    async def play(conductor: Director) -> None:
        over = trio.current_time() + takes.popitem()[1]
        await conductor.until(lambda: trio.current_time() >= over, "time stands still", 1000)

    stages = [DemoStage(stage.title, stage.seconds, play) for stage in STAGES[:-1]]
    await conductor.run([*stages, STAGES[-1]])
    portions = [number for _, number in feed.portions]
    assert portions[0] == pytest.approx(LINES / SECONDS, rel=0.1)
    assert all(number > 0 for number in portions)
    assert feed.left == 0


async def test_nothing_goes_on_any_more(
    conductor: Director, feed: FakeFeed, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Lines that nobody processes are waited for no longer than a stall lasts."""
    assert autojump_clock.autojump_threshold == 0
    monkeypatch.setattr(conducting, "STALLED", 5.0)
    feed.placed = {(0, 0): 0}
    began = trio.current_time()
    await conductor.all_lines_done()
    assert 5.0 <= trio.current_time() - began < 7.0
