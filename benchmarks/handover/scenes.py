"""What happens to a group: planned changes, a killed and a frozen worker, slow handlers.

Scenes with the same ``Setting`` are played one after the other on one stage, in the order of
``SCENES``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, final

import attrs

from benchmarks.handover.stage import Stage

ADDED: Final = 6
FROZEN: Final = 4.0
"""Seconds beyond the session timeout for which a worker is frozen."""
BACKLOG: Final = 1000
"""Records of each partition that wait when a worker is frozen."""


@final
@attrs.frozen(kw_only=True)
class Setting:
    """What the workers of a stage do.

    Attributes:
        work: seconds that a handler spends on each batch.
        batch: the most records of a batch.
        rate: the part of the usual rate at which records are produced.
    """

    work: float = 0.01
    batch: int = 100
    rate: float = 1.0


USUAL: Final = Setting()
# A backlog that lasts for a second although each worker reads it as quickly as it can.
BUSY: Final = Setting(work=0.1, rate=0.1)
SLOW: Final = Setting(work=0.2, batch=10_000)
VERY_SLOW: Final = Setting(work=5.0, batch=10_000)


@final
@attrs.frozen
class Scene:
    """What happens, to how many workers, and in which setting."""

    workers: int
    act: Callable[[Stage], None]
    setting: Setting = USUAL


def scale_out(stage: Stage) -> None:
    """From one worker to three."""
    for _ in range(2):
        stage.mark("a worker joins")
        stage.join()
        stage.settle()


def nothing(stage: Stage) -> None:
    """What the measurement itself adds."""
    stage.mark("nothing")
    time.sleep(stage.pause)


def rolling_restart(stage: Stage) -> None:
    """Each of three workers is stopped, and started again."""
    for _ in range(3):
        restart(stage)


def restart(stage: Stage) -> None:
    """One worker is stopped, and started again."""
    stage.mark("a worker restarts")
    stage.join(like=stage.leave())
    stage.settle()


def added_partitions(stage: Stage) -> None:
    """Six partitions are added: the time until they are read, too."""
    stage.mark("partitions are added")
    stage.grow(ADDED)
    stage.settle(longer=5.0)


def scale_in(stage: Stage) -> None:
    """From three workers to one."""
    for _ in range(2):
        stage.mark("a worker leaves")
        stage.leave()
        stage.settle()


def kill(stage: Stage) -> None:
    """A worker is killed; the group notices at the end of its session."""
    stage.mark("kill -9")
    stage.kill()
    stage.settle(longer=stage.job.session)


def freeze(stage: Stage) -> None:
    """A worker with a backlog is frozen for longer than its session, and wakes."""
    stage.mark("frozen")
    stage.burst(BACKLOG * stage.job.partitions)
    time.sleep(2 * stage.job.work)
    stage.freeze(stage.job.session + FROZEN)
    stage.settle()


SCENES: Final[Mapping[str, Scene]] = {
    "scale-out": Scene(1, scale_out),
    "nothing": Scene(3, nothing),
    "rolling restart": Scene(3, rolling_restart),
    "kill -9": Scene(3, kill),
    "scale-in": Scene(3, scale_in),
    # The last on its stage: a client that does not notice must not spoil another scene.
    "added partitions": Scene(2, added_partitions),
    "frozen": Scene(3, freeze, BUSY),
    "restart, 200 ms a batch": Scene(3, restart, SLOW),
    "restart, 5 s a batch": Scene(3, restart, VERY_SLOW),
}
PLANNED: Final = ("scale-out", "nothing", "rolling restart", "scale-in", "added partitions")
