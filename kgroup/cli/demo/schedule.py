"""What happens in the demo, and in which order.

Each stage makes one thing happen to the group, and returns when the workers have come to terms
with it and have worked on for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kgroup.cli.demo.conductor import DRIVERS, WORKERS, Conductor, Crew, Stage


async def workers_begin(conductor: Conductor) -> None:
    """The first workers join."""
    await conductor.start_first_workers()
    await conductor.settled()


async def one_joins(conductor: Conductor) -> None:
    """One more worker joins."""
    await conductor.start_worker()
    await conductor.settled()


async def one_stops(conductor: Conductor) -> None:
    """A worker is asked to stop; it finishes what it has in hand, commits, and leaves."""
    await conductor.stop_worker(await conductor.one_halfway())
    await conductor.settled()


async def topic_grows(conductor: Conductor) -> None:
    """The topic gets half as many partitions more."""
    await conductor.add_partitions(max(1, conductor.partitions // 2))
    await conductor.settled()


async def one_is_killed(conductor: Conductor) -> None:
    """A worker dies in the middle of a batch; its session has to run out."""
    conductor.kill_worker(await conductor.one_halfway())
    await conductor.settled()


async def one_is_frozen(conductor: Conductor) -> None:
    """A worker stands still until others have its partitions, and then goes on."""
    worker = await conductor.one_halfway()
    await conductor.freeze_worker(worker)
    await conductor.settled()
    await conductor.wake_worker(worker)
    await conductor.settled()


async def lines_end(conductor: Conductor) -> None:
    """The rest of the lines."""
    await conductor.all_lines_done()


STAGES: Final = (
    Stage("The first workers join.", 3.0, workers_begin),
    Stage("A worker is added.", 4.0, one_joins),
    Stage("A worker is stopped gracefully.", 3.0, one_stops),
    Stage("Partitions are added.", 4.0, topic_grows),
    Stage("A worker is killed.", 9.0, one_is_killed),
    Stage("A worker is frozen past its session, and woken.", 11.0, one_is_frozen),
    Stage("The rest of the lines.", 3.0, lines_end),
)
SPARK_STAGES: Final = (
    Stage("The first Spark drivers join.", 9.0, workers_begin),
    Stage("A driver is added.", 7.0, one_joins),
    Stage("A driver is stopped gracefully.", 3.0, one_stops),
    Stage("A driver is frozen past its session, and woken.", 12.0, one_is_frozen),
    Stage("A driver is killed.", 9.0, one_is_killed),
    Stage("The rest of the lines.", 3.0, lines_end),
)
"""Fewer come and go: each brings a JVM."""
SCHEDULES: Final[Mapping[Crew, Sequence[Stage]]] = {WORKERS: STAGES, DRIVERS: SPARK_STAGES}


def seconds_of(stages: Sequence[Stage]) -> float:
    """How long they take on a machine at rest."""
    return sum(stage.seconds for stage in stages)


SECONDS: Final = seconds_of(STAGES)
