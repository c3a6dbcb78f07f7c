"""What a simulated program is given: its settings, its work, and a way to say what it has done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, final

import trio

from kgroup.config import GroupConfig
from kgroup.interfaces import Message
from kgroup.records.memory import ReadableLog
from kgroup.testing.simulation.observer import MemberObserver
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition


@final
class Process:
    """One life of a member's program.

    Attributes:
        name: of the program; "m1", "m2" and so on.
        life: counts its starts, from 1.
        bootstrap_servers: the simulated brokers.
        group_instance_id: of a static member, or None.
        slowness: by how much its work is slower than usual just now.
        habit: how the plan wants kgroup's own example worker to handle a partition.
        random: for what a program does at random, so that it is the same for the same seed.
        store: a store that all programs of the simulation share and that outlives them; empty at
            first.
    """

    def __init__(
        self,
        *,
        name: str,
        life: int,
        plan: Plan,
        bootstrap_servers: str,
        group_instance_id: str | None,
        random: Random,
        observer: MemberObserver,
        log: ReadableLog,
        store: dict[TopicPartition, int],
    ) -> None:
        self.name: Final = name
        self.life: Final = life
        self.bootstrap_servers: Final = bootstrap_servers
        self.group_instance_id: Final = group_instance_id
        self.slowness = 1.0
        self._plan = plan
        self.habit: Final = plan.habit
        self.random: Final = random
        self.store: Final = store
        self._log = log
        self._observer = observer

    def __repr__(self) -> str:
        return f"<Process {self.name}, life {self.life}>"

    def config(self, **settings: object) -> GroupConfig:
        """A configuration for the simulated cluster: what the plan says, and ``settings``.

        Raises:
            ConfigError: a setting is refused.
        """
        given: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": "group",
            "topics": sorted(self._plan.topics),
            "client_id": self.name,
            "group_instance_id": self.group_instance_id,
        }
        return GroupConfig(**{**given, **self._plan.config, **settings})

    async def process(self, message: Message) -> None:
        """Work on a record, for as long as the plan has it, and then say that it is done.

        Cancellation: the record is not done.
        """
        least, most = self._plan.work
        await trio.sleep(self.random.uniform(least, most) * self.slowness)
        self.processed(message)

    def processed(self, message: Message) -> None:
        """Say that a record is done: its effect is in the world.

        A program that does its work otherwise than by `process` calls this at that moment;
        whether a record was lost or repeated is judged by it.
        """
        self._observer.processed(message)

    def end_offset(self, partition: TopicPartition) -> int:
        """Where the log of a partition ends now."""
        return self._log.end_offset(partition)

    def skipped(self, partition: TopicPartition, offset: int) -> None:
        """Say that the records of a partition before this offset are passed on purpose.

        A program that seeks past records that nobody has processed calls this, or they count as
        lost.
        """
        self._observer.skipped(partition, offset)


Worker = Callable[[Process], Awaitable[object]]
"""A program: an async function that runs until its groups are closed."""
