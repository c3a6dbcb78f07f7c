"""Members of a group that are other clients' consumers, each a process of its own.

``ProcessedRecords`` (``tests.behaviour.harness``) has what they process, as for kgroup's own
members. They can leave, be killed, and be started again as the same instance.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

import attrs
import pytest
import trio

from kgroup.testing.java import program_command
from kgroup.testing.tools import TOOLS
from kgroup.types import TopicPartition
from tests.behaviour.harness import SOON, Harness, Processed

PROGRAM: Final = Path(__file__).resolve().parent / "member_program.py"
HEARTBEAT_MS: Final = 300
SESSION_MS: Final = 120_000
"""Long enough for a Java program to start again on a busy machine; no test waits for its end."""
SHORT_SESSION_MS: Final = 10_000
"""The session of the member that a test kills: the others wait for its end."""
JAVA_ASSIGNORS: Final[Mapping[str, str]] = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
CONSOLE: Final = re.compile(rb"Partition:(\d+)\tOffset:(\d+)\t(\d+)")
"""The properties of a record that Java's console consumer prints."""
HEAP: Final = "96m"
"""Java's largest heap: several run at once, and each has little to remember."""


HANGING: Final = (
    "not shared by",
    "not all process",
    "nothing is processed",
    "0 records of",
    "its rebalance does not end",
)
KAFKA_PYTHON: Final = pytest.mark.flaky(reruns=3, only_rerun=HANGING)
"""For tests with kafka-python: consumers of its 3.0.12 hang now and then while they join, on Apache
Kafka as well, so a test that waited for one runs again. Any other failure is a failure."""
CLOSING: Final = (
    "rd_kafka_cgrp_terminated: assert",
    "Commit failed: Local: Broker handle destroyed for termination",
)
LIBRDKAFKA: Final = pytest.mark.flaky(reruns=3, only_rerun=CLOSING)
"""For tests with confluent-kafka: if a consumer is closed in a rebalance, librdkafka now and then
takes its group for ended while the callback still commits. It ends the process (its issue 4792), or
gives that commit an error of its own. Any other failure is a failure."""
BOTH: Final = pytest.mark.flaky(reruns=3, only_rerun=(*HANGING, *CLOSING))
"""For tests with kafka-python and confluent-kafka."""


@final
@attrs.frozen(kw_only=True)
class Client:
    """A client and the way in which its members share.

    Attributes:
        name: which client; ``java`` is VerifiableConsumer, ``java-console`` ConsoleConsumer.
        assignor: how partitions are assigned, by its protocol name; to Java several can be given,
            with commas between them.
    """

    name: str
    assignor: str = "range"

    def __str__(self) -> str:
        return f"{self.name} {self.assignor}"

    @property
    def assignors(self) -> list[str]:
        """What it offers, in order of preference."""
        return self.assignor.split(",")

    @property
    def patience(self) -> float:
        """Seconds after which its members are taken to hang; fewer if the test can run again."""
        return 45.0 if self.name == "kafka-python" else SOON

    def command(self, here: Harness, settings: Mapping[str, Any]) -> list[str]:
        """The command that runs a member."""
        if self.name == "java":
            return self._java(here, settings)
        if self.name == "java-console":
            return self._console(here, settings)
        given = {
            **settings,
            "bootstrap_servers": here.bootstrap_servers,
            "group_id": here.group_id,
            "assignor": self.assignor,
        }
        return [sys.executable, str(PROGRAM), self.name, here.topic, json.dumps(given)]

    def _java(self, here: Harness, settings: Mapping[str, Any]) -> list[str]:
        arguments = {
            "--bootstrap-server": here.bootstrap_servers,
            "--topic": here.topic,
            "--group-id": here.group_id,
            "--group-instance-id": settings["instance_id"],
            "--session-timeout": str(settings["session_timeout_ms"]),
            "--assignment-strategy": ",".join(map(JAVA_ASSIGNORS.__getitem__, self.assignors)),
            "--command-config": settings["properties"],
        }
        words = [word for name, value in arguments.items() if value for word in (name, value)]
        return program_command(TOOLS["kafka-verifiable-consumer"], "--verbose", *words, heap=HEAP)

    def _console(self, here: Harness, settings: Mapping[str, Any]) -> list[str]:
        arguments = [
            ("--bootstrap-server", here.bootstrap_servers),
            ("--topic", here.topic),
            ("--group", here.group_id),
            ("--from-beginning",),
            ("--command-config", settings["properties"]),
            ("--formatter-property", "print.partition=true"),
            ("--formatter-property", "print.offset=true"),
        ]
        words = [word for argument in arguments for word in argument]
        return program_command(TOOLS["kafka-console-consumer"], *words, heap=HEAP)


class Node(Protocol):
    """A member of any kind."""

    def owned(self) -> int:
        """How many partitions it has; -1 while it does not know."""
        ...


@final
class ForeignMember:
    """A running member; ``start_member`` makes one.

    Attributes:
        name: its name in the processed.
        partitions: the partitions that it owns.
        revocations: how often it gave partitions up.
        refused: for each partition with a refused commit, the offset that was committed before;
            the next owner repeats the records from there on.
    """

    def __init__(self, here: Harness, name: str) -> None:
        self.name = name
        self.partitions: set[int] = set()
        self.revocations = 0
        self.refused: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._here = here
        self._errors = bytearray()
        self._process: trio.Process | None = None
        self._left = trio.Event()

    @property
    def errors(self) -> str:
        """Its output on standard error."""
        return self._errors.decode()

    def owned(self) -> int:
        """How many partitions it has; -1 when it has ended."""
        return -1 if self._left.is_set() else len(self.partitions)

    async def leave(self) -> None:
        """Let it close its consumer, and wait until it has ended without an error."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it, so that it sends nothing any more."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> None:
        assert self._process is not None  # it has been started
        self._process.send_signal(number)
        with trio.move_on_after(SOON):
            await self._left.wait()
            return
        raise AssertionError(f"{self.name} did not end within {SOON:g} s; it said: {self.errors}")

    async def run(self, command: list[str], *, task_status: trio.TaskStatus[None]) -> None:
        """Start the program, and read its events until it ends."""
        start = partial(
            trio.run_process,
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            deliver_cancel=_kill,
        )
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(start)
            self._process = process
            assert process.stdout is not None  # they are pipes
            assert process.stderr is not None
            task_status.started()
            nursery.start_soon(self._keep_errors, process.stderr)
            rest = b""
            async for data in process.stdout:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(line)
                self._here.processed.wake()
        self._left.set()
        self._here.processed.wake()
        wanted = (0, 128 + signal.SIGTERM, -signal.SIGKILL)
        assert process.returncode in wanted, f"{self.name} ended badly: {self.errors}"

    async def _keep_errors(self, stream: trio.abc.ReceiveStream) -> None:
        async for data in stream:
            self._errors += data

    def _hear(self, line: bytes) -> None:
        printed = CONSOLE.fullmatch(line)
        if printed is not None:
            partition, offset, value = (text.decode() for text in printed.groups())
            self._note_record(partition, offset, value, time.time())
            return
        event = json.loads(line)
        named = {one["partition"] for one in event.get("partitions", ())}
        if event["name"] == "partitions_assigned":
            self.partitions |= named
        elif event["name"] == "partitions_revoked":
            self.partitions -= named
            self.revocations += bool(named)
        elif event["name"] == "record_data":
            self._note_record(
                event["partition"], event["offset"], event["value"], event["timestamp"] / 1000
            )
        elif event["name"] == "offsets_committed":
            self._hear_of_commit(event)

    def _note_record(self, partition: int | str, offset: int | str, value: str, at: float) -> None:
        named = TopicPartition(self._here.topic, int(partition))
        self._here.processed.add(Processed(self.name, 0, named, int(offset), value, at))

    def _hear_of_commit(self, event: dict[str, Any]) -> None:
        for one in event["offsets"]:
            number = one["partition"]
            if event["success"]:
                self._committed[number] = one["offset"]
            else:
                before = self._committed.get(number, 0)
                self.refused[number] = min(before, self.refused.get(number, before))


async def _kill(process: trio.Process) -> None:
    process.kill()


def refused(*members: ForeignMember) -> dict[int, int]:
    """The offsets from which partitions may be repeated because of these members' refused commits.

    A cooperative member continues reading in a rebalance that refuses its commits.
    """
    offsets: dict[int, int] = {}
    for member in members:
        for number, offset in member.refused.items():
            offsets[number] = min(offset, offsets.get(number, offset))
    return offsets


async def start_member(
    here: Harness,
    client: Client,
    name: str,
    properties: Path,
    *,
    instance_id: str | None = None,
    session_timeout_ms: int = SESSION_MS,
) -> ForeignMember:
    """Start a member.

    Args:
        here: where it plays.
        client: what it is.
        name: what it is called in the processed.
        properties: a file in which Java finds its further settings.
        instance_id: for a static member.
        session_timeout_ms: its session time-out.
    """
    await trio.Path(properties).write_text(
        f"client.id={name}\nheartbeat.interval.ms={HEARTBEAT_MS}\nfetch.max.wait.ms=50\n"
    )
    settings = {
        "client_id": name,
        "instance_id": instance_id,
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "properties": str(properties),
    }
    member = ForeignMember(here, name)
    await here.nursery.start(partial(member.run, client.command(here, settings)))
    return member


async def until_shared(
    here: Harness, nodes: Mapping[str, Node], partitions: int, patience: float = SOON
) -> None:
    """Wait until all partitions are shared evenly, and each member processes its own.

    Args:
        here: the harness.
        nodes: the members, by name.
        partitions: how many there are.
        patience: seconds after which the members are taken to hang.
    """
    share = partitions // len(nodes)

    def owners() -> str:
        return f"{ {name: node.owned() for name, node in nodes.items()} }"

    await here.processed.until(
        lambda: all(node.owned() == share for node in nodes.values()),
        f"not shared by {list(nodes)}",
        patience,
    )
    begun = len(here.processed.entries)
    await here.processed.until(
        lambda: {entry.member for entry in here.processed.entries[begun:]} >= set(nodes),
        f"not all process; they own {owners()}",
        patience,
    )
