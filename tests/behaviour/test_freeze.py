"""A process that is frozen past its session and wakes: it stops by itself, or it is refused.

The frozen member is a process of its own, stopped with SIGSTOP in the middle of its batches, with
more records waiting behind them. The one that takes over is in the test's event loop.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import attrs
import pytest
import trio

from tests.behaviour import worker
from tests.behaviour.harness import EXPIRING, SOON, Harness, SteadyProducer, harness, in_thread
from tests.behaviour.worker import BLOCKING, TASKS, THREADS, Task
from tests.brokers import Kafka

Line = dict[str, Any]
BACKLOG: Final = 2000
"""Records of each partition before the members start."""
BATCH: Final = 15
SECONDS: Final = 0.01
"""How long the worker takes for a record: its backlog lasts until it is frozen, even if another
member takes several times as long as usual to join."""
REFUSALS: Final = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}


@final
class FrozenWorker:
    """A worker's process and its journal."""

    def __init__(self, task: Task) -> None:
        self._journal = Path(task.journal)
        command = [sys.executable, worker.__file__, json.dumps(attrs.asdict(task))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def lines(self) -> list[Line]:
        """The complete lines of the journal."""
        if not self._journal.exists():
            return []
        written = self._journal.read_bytes()
        return [json.loads(line) for line in written[: written.rfind(b"\n") + 1].splitlines()]

    async def until(self, *wanted: str, partitions: int | None = None) -> None:
        """Wait until the last generation has written these lines, with so many partitions."""
        with trio.move_on_after(SOON):
            while True:
                last = latest(self.lines())
                owned = [len(line["partitions"]) for line in last if line["what"] == "generation"]
                seen = {line["what"] for line in last}
                if seen.issuperset(wanted) and partitions in (None, *owned):
                    return
                assert self._process.poll() is None, self.lines()[-5:]
                await trio.sleep(0.01)
        raise AssertionError(f"the worker did not say {wanted}; last {self.lines()[-5:]}")

    async def freeze(self, handlers: int) -> list[Line]:
        """Stop the process while so many handlers are in the middle of a batch.

        Each of them has processed a part of its batch, and has more left than the record that it
        may have taken.

        Returns:
            what it has written until then.
        """
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline:
            self._process.send_signal(signal.SIGSTOP)
            _, status = await in_thread(os.waitpid, self._process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            lines = self.lines()
            held = in_hand(lines).values()
            if sum(1 < len(left) < BATCH for left in held) == handlers:
                return lines
            self.wake()
            await trio.sleep(0.02)
        raise AssertionError(f"never were {handlers} handlers in the middle of a batch")

    def wake(self) -> None:
        """Let it continue."""
        self._process.send_signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Wait for its end; returns the exit status."""
        with trio.fail_after(SOON):
            return await in_thread(self._process.wait)

    def end(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.communicate()


def latest(lines: list[Line]) -> list[Line]:
    """The lines since the last generation began."""
    begun = [number for number, line in enumerate(lines) if line["what"] == "generation"]
    return lines[begun[-1] :] if begun else []


def in_hand(lines: list[Line]) -> dict[int, list[int]]:
    """For each partition of the last generation the offsets received but not yet processed."""
    left: dict[int, list[int]] = {}
    for line in latest(lines):
        match line["what"]:
            case "received":
                left[line["partition"]] = list(line["offsets"])
            case "processed":
                left[line["partition"]].remove(line["offset"])
    return {partition: offsets for partition, offsets in left.items() if offsets}


@contextmanager
def frozen_worker(task: Task) -> Iterator[FrozenWorker]:
    """A worker that ends with the block."""
    process = FrozenWorker(task)
    try:
        yield process
    finally:
        process.end()


def task_of(here: Harness, journal: Path, *, work: str, lease: bool) -> Task:
    """The task of a worker for this harness."""
    config = {
        "group_id": here.group_id,
        "bootstrap_servers": here.bootstrap_servers,
        "topics": [here.topic],
        "heartbeat_interval": 0.25,
        "session_timeout": EXPIRING,
        "rebalance_timeout": 60.0,
        "client_id": "frozen",
    }
    return Task(
        journal=str(journal), config=config, batch=BATCH, seconds=SECONDS, lease=lease, work=work
    )


@final
@attrs.frozen
class Frozen:
    """What a frozen worker has written when it has ended."""

    before: list[Line]
    after: list[Line]
    took_over: dict[int, int]
    """For each partition of the frozen one the first offset that its new owner processed."""

    @property
    def left(self) -> dict[int, list[int]]:
        """For each partition the rest of the batch that its handler held when it was frozen."""
        return in_hand(self.before)

    @property
    def processed(self) -> dict[int, list[int]]:
        """For each partition the offsets that it processed after it woke."""
        processed: dict[int, list[int]] = {}
        for line in self.said("processed"):
            processed.setdefault(line["partition"], []).append(line["offset"])
        return processed

    def said(self, what: str) -> list[Line]:
        """What it wrote after it woke."""
        return [line for line in self.after if line["what"] == what]


async def freeze_and_wake(
    kafka: Kafka, journal: Path, *, work: str, handlers: int = 1, lease: bool = True
) -> Frozen:
    """Freeze a worker, which owns one half of the partitions, past its session.

    Another member takes over before the worker wakes.

    Args:
        kafka: the broker.
        journal: the path of the worker's journal.
        work: how the worker processes its partitions; see `Task`.
        handlers: how many partitions it owns when it is frozen.
        lease: whether it has a lease that ends.
    """
    count = 2 * handlers
    async with harness(kafka) as here:
        await here.create(count)
        for number in range(count):
            await here.produce([f"{number}/{n}" for n in range(BACKLOG)], number)
        producer = SteadyProducer(here, count, per_second=100)
        with frozen_worker(task_of(here, journal, work=work, lease=lease)) as frozen:
            await frozen.until("committed", partitions=count)
            other = here.start("other")
            await frozen.until("committed", partitions=handlers)
            producer.start()
            before = await frozen.freeze(handlers)
            owned = latest(before)[0]["partitions"]
            await here.processed.until(lambda: other.owned() == count, "no member took over")
            epoch = other.generation.epoch
            # The other member has read past the frozen one's position, and still reads.
            await here.processed.until(
                lambda: all(
                    len(here.processed.offsets(here.partition(number))) > 10 * BATCH
                    for number in owned
                ),
                "the new owner does not get on",
            )
            frozen.wake()
            assert await frozen.ended() == 0
            after = frozen.lines()[len(before) :]
        produced = await producer.stop()
        total = count * BACKLOG + produced
        ends = await here.ends(count)
        assert sum(ends) == total

        def everything() -> bool:
            return all(
                here.processed.offsets(here.partition(number))[-1:] == [ends[number] - 1]
                for number in range(count)
            )

        await here.processed.until(everything, "not everything was processed")
        # Nothing that the frozen one did disturbed the new owner.
        assert other.generation.epoch == epoch
        assert not other.generation.ending.is_set()
        await other.leave()
        assert not here.processed.repeated()
        assert await here.committed(count) == ends
        took_over = {}
        for number in owned:
            offsets = here.processed.offsets(here.partition(number))
            assert offsets == list(range(offsets[0], ends[number]))
            took_over[number] = offsets[0]
    return Frozen(before, after, took_over)


def check_account(frozen: Frozen) -> None:
    """Check what must hold with and without a lease: no loss, and no commit after the wake."""
    epoch = frozen.before[-1]["epoch"]
    # Commits whose answers lay waiting when it was stopped had been accepted before that.
    sent_before = [line for line in frozen.before if line["what"] == "committing"]
    for line in frozen.said("committed"):
        sent = {key: line[key] for key in ("epoch", "partition", "offset")}
        assert {"what": "committing", **sent} in sent_before
    accepted: dict[int, int] = {}
    for line in [*frozen.before, *frozen.said("committed")]:
        if line["what"] == "committed":
            accepted[line["partition"]] = line["offset"]
    for number, offset in frozen.took_over.items():
        assert offset == accepted.get(number, 0)
    assert {line["epoch"] for line in frozen.after} == {epoch}
    (ended,) = frozen.said("ended")
    assert ended["cause"] in {"membership lost", "coordinator lost"}


@pytest.mark.parametrize(("work", "handlers"), [(BLOCKING, 1), (TASKS, 3), (THREADS, 3)])
async def test_a_frozen_process_stops_by_its_lease(
    kafka: Kafka, tmp_path: Path, work: str, handlers: int
) -> None:
    """After the freeze each handler processes at most the one record that it had taken."""
    frozen = await freeze_and_wake(kafka, tmp_path / "journal", work=work, handlers=handlers)
    check_account(frozen)
    assert not frozen.said("received")
    assert not frozen.said("committing")
    assert len(frozen.left) == handlers
    for partition, offsets in frozen.processed.items():
        assert offsets == frozen.left[partition][:1]
    for line in frozen.said("failed"):
        assert line["error"] in {"LeaseExpiredError", "StaleGenerationError"}
        assert f"-{line['partition']} were not handed out" in line["why"]
    if work in (BLOCKING, THREADS):  # tasks may be cancelled first, by the end
        assert len(frozen.said("failed")) == handlers


async def test_without_a_lease_the_coordinator_refuses(kafka: Kafka, tmp_path: Path) -> None:
    """The coordinator refuses every commit of a member whose lease never ends."""
    frozen = await freeze_and_wake(kafka, tmp_path / "journal", work=BLOCKING, lease=False)
    check_account(frozen)
    assert frozen.processed == frozen.left
    (ended,) = frozen.said("ended")
    assert "UNKNOWN_MEMBER_ID" in ended["why"]
    failed = frozen.said("failed")
    assert failed
    for line in failed:
        assert line["error"] == "StaleGenerationError"
        assert "UNKNOWN_MEMBER_ID" in line["why"]
    refused = frozen.said("refused")
    assert refused
    assert {line["stale"] for line in refused} == {True}
    assert refused[0]["reason"] in REFUSALS


def test_a_batch_in_hand_is_recognized() -> None:
    """The test's own helper: a batch is in hand from its receipt to its last record."""
    begun = {"what": "generation", "epoch": 1, "partitions": [1, 2]}
    received = {"what": "received", "partition": 1, "offsets": [4, 5]}
    other = {"what": "received", "partition": 2, "offsets": [7]}
    four = {"what": "processed", "partition": 1, "offset": 4}
    five = {"what": "processed", "partition": 1, "offset": 5}
    assert in_hand([begun, received]) == {1: [4, 5]}
    assert in_hand([begun, received, other, four]) == {1: [5], 2: [7]}
    assert in_hand([begun, received, four, other, five]) == {2: [7]}
    assert in_hand([begun, received, begun]) == {}
    assert in_hand([]) == {}
