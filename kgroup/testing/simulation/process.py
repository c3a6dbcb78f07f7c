"""What a simulated program gets: its settings, its work, and a way to report what it has done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, final

import trio

from kgroup.config import GroupConfig
from kgroup.interfaces import Message, StreamOpener
from kgroup.records.memory import ReadableLog
from kgroup.security.settings import Security
from kgroup.testing.simulation.observer import MemberObserver
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

_LONG: Final = 0.02
"""The probability that a record takes long, in a plan with long work."""


@final
class Process:
    """One run of a member's program.

    Attributes:
        name: the program's name: "m1", "m2" and so on.
        life: which start of the program this is, from 1.
        bootstrap_servers: the addresses of the simulated brokers.
        security: how to log in there.
        group_instance_id: the instance id of a static member, or None.
        slowness: the factor by which its work is slower than usual now.
        partition_handler: how the plan wants kgroup's own example worker to handle a partition.
        random: a generator for the program's random choices, seeded by the plan.
        store: what ``setup`` has made for this simulation. By default it is a dict, empty at first,
            that all programs of the simulation share and that outlives them.
        observer: records what the program does; with ``log`` and ``open_stream`` it is for programs
            with a group protocol of their own.
        log: the brokers' logs, to be read.
        open_stream: opens connections on the simulated network.
    """

    def __init__(
        self,
        *,
        name: str,
        life: int,
        plan: Plan,
        bootstrap_servers: str,
        security: Security,
        group_instance_id: str | None,
        random: Random,
        observer: MemberObserver,
        log: ReadableLog,
        open_stream: StreamOpener,
        store: Any,
    ) -> None:
        self.name: Final = name
        self.life: Final = life
        self.bootstrap_servers: Final = bootstrap_servers
        self.security: Final = security
        self.group_instance_id: Final = group_instance_id
        self.slowness = 1.0
        self._plan = plan
        self._lengths = Random(f"{plan.seed} long work of {name}, life {life}")
        self.partition_handler: Final = plan.partition_handler
        self.random: Final = random
        self.store: Final = store
        self.log: Final = log
        self.observer: Final = observer
        self.open_stream: Final = open_stream

    def __repr__(self) -> str:
        return f"<Process {self.name}, life {self.life}>"

    def config(self, **settings: object) -> GroupConfig:
        """A configuration for the simulated cluster: the plan's settings, then ``settings``.

        Raises:
            ConfigError: a setting is refused.
        """
        given: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security": self.security,
            "group_id": "group",
            "topics": sorted(self._plan.topics),
            "client_id": self.name,
            "group_instance_id": self.group_instance_id,
        }
        return GroupConfig(**{**given, **self._plan.config, **settings})

    async def process(self, message: Message) -> None:
        """Spend the plan's time for a record, then report it as processed.

        Raises:
            UsageError: see `processed`.

        Cancellation: the record does not count as processed.
        """
        least, most = self._plan.work
        seconds = self.random.uniform(least, most) * self.slowness
        if self._plan.long_work and self._lengths.random() < _LONG:
            seconds += self._lengths.uniform(0, self._plan.long_work)
        await trio.sleep(seconds)
        self.processed(message)

    def processed(self, message: Message) -> None:
        """Report that a record is processed: its effect has happened.

        A program that does its work without `process` calls this when the work is done. The
        checks for lost and repeated records rely on it.

        Raises:
            UsageError: it is a copy, and several groups of the program read its partition.
        """
        self.observer.processed(message)

    def end_offset(self, partition: TopicPartition) -> int:
        """The end offset of a partition's log now."""
        return self.log.end_offset(partition)

    def skipped(self, partition: TopicPartition, offset: int, group_id: str | None = None) -> None:
        """Report that the program skips the records before this offset on purpose.

        A program that seeks past records that are not processed yet calls this; otherwise they
        count as lost.

        Args:
            partition: the partition.
            offset: the first record that is not skipped.
            group_id: the group that skips, if several groups of the program read the partition.

        Raises:
            UsageError: several do, and none is named.
        """
        self.observer.skipped(partition, offset, group_id)


Worker = Callable[[Process], Awaitable[object]]
"""A program: an async function that runs until its groups are closed."""
