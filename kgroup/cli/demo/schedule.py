"""What happens in the demo, and in which order.

Each stage makes one thing happen to the group, and returns when the workers have come to terms
with it and have worked on for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kgroup.cli.demo.director import DRIVERS, WORKERS, DemoStage, Director, Workers


async def workers_begin(conductor: Director) -> None:
    """The first workers join."""
    await conductor.start_first_workers()
    await conductor.settled()


async def one_joins(conductor: Director) -> None:
    """One more worker joins."""
    await conductor.start_worker()
    await conductor.settled()


async def one_stops(conductor: Director) -> None:
    """A worker is asked to stop; it finishes what it has in hand, commits, and leaves."""
    await conductor.stop_worker(await conductor.one_halfway())
    await conductor.settled()


async def topic_grows(conductor: Director) -> None:
    """The topic gets half as many partitions more."""
    await conductor.add_partitions(max(1, conductor.partitions // 2))
    await conductor.settled()


async def one_is_killed(conductor: Director) -> None:
    """A worker dies in the middle of a batch; its session has to run out."""
    conductor.kill_worker(await conductor.one_halfway())
    await conductor.settled()


async def one_is_frozen(conductor: Director) -> None:
    """A worker stands still until others have its partitions, and then goes on."""
    worker = await conductor.one_halfway()
    await conductor.freeze_worker(worker)
    await conductor.settled()
    await conductor.wake_worker(worker)
    await conductor.settled()


async def lines_end(conductor: Director) -> None:
    """The rest of the lines."""
    await conductor.all_lines_done()


STAGES: Final = (
    DemoStage("The first workers join.", 3.0, workers_begin),
    DemoStage("A worker is added.", 4.0, one_joins),
    DemoStage("A worker is stopped gracefully.", 3.0, one_stops),
    DemoStage("Partitions are added.", 4.0, topic_grows),
    DemoStage("A worker is killed.", 9.0, one_is_killed),
    DemoStage("A worker is frozen past its session, and woken.", 11.0, one_is_frozen),
    DemoStage("The rest of the lines.", 3.0, lines_end),
)
SPARK_STAGES: Final = (
    DemoStage("The first Spark drivers join.", 9.0, workers_begin),
    DemoStage("A driver is added.", 7.0, one_joins),
    DemoStage("A driver is stopped gracefully.", 3.0, one_stops),
    DemoStage("A driver is frozen past its session, and woken.", 12.0, one_is_frozen),
    DemoStage("A driver is killed.", 9.0, one_is_killed),
    DemoStage("The rest of the lines.", 3.0, lines_end),
)
"""Fewer come and go: each brings a JVM."""
SCHEDULES: Final[Mapping[Workers, Sequence[DemoStage]]] = {WORKERS: STAGES, DRIVERS: SPARK_STAGES}


def seconds_of(stages: Sequence[DemoStage]) -> float:
    """How long they take on a machine at rest."""
    return sum(stage.seconds for stage in stages)


SECONDS: Final = seconds_of(STAGES)
