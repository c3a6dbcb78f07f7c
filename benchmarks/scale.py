"""Measures one change in a group of 10, 100 and 1,000 members; see docs/scale.md.

    python -m benchmarks.scale                              in simulation, every assignor
    python -m benchmarks.scale --real --members 10 100      on a real Kafka that it starts
    python -m benchmarks.scale --json build/scale.json      keeps the figures

A group of N members is stable. Then one more member joins, and the change is over when each of them
has its next generation. All members run in this process and read nothing: what is measured is the
group protocol. In simulation the time is virtual, with a fixed latency of the network. So durations
are those of a group whose members and coordinator have processors enough, and the processor times
beside them say how much that is.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast
from unittest import mock
from uuid import uuid4

import attrs
import psutil
import trio

from benchmarks.arguments import count
from kgroup.broker import in_memory
from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.clocks import SuspendAwareClock, TrioClock, WallClock
from kgroup.config import GroupConfig
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch, Clock, StreamOpener
from kgroup.notifier import Notifier
from kgroup.runtime import Runtime
from kgroup.testing import admin
from kgroup.testing.kafka import RealKafka
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.types import TopicPartition
from kgroup.wire import codec
from kgroup.wire.byte_streams import open_tcp

ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")
MEMBERS: Final = (10, 100, 1000)
PARTITIONS_EACH: Final = 20
LATENCY: Final = 0.001
"""Seconds for which each message is under way in the simulated network."""
SETTLE: Final = 8.0
"""Seconds for the quick heartbeats at the beginning of a generation to pass."""
LARGEST_TOPIC: Final = 5000
"""A larger number of partitions is divided among several topics."""
PATIENCE: Final = 900.0
LONGEST: Final = 7200.0
"""Real seconds that a case may take in simulation; a thousand members compute for minutes."""
SETTINGS: Final[Mapping[str, Any]] = {
    "session_timeout": 45.0,
    "rebalance_timeout": 60.0,
    "request_timeout": 60.0,
    "drain_timeout": 1.0,
}
JOIN_DELAY: Final = 3000
"""Milliseconds for which the coordinator lets the first members gather: Kafka's default."""

T = TypeVar("T")


class Meter:
    """What is counted while it runs: requests, bytes and processor time."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self._subscriptions: dict[str, int] = {}
        self._assignments = 0

    def clear(self) -> None:
        """Begin again; what the group's record has is kept."""
        for counter in (self.requests, self.sent, self.received):
            counter.clear()
        self.cpu.clear()

    @property
    def group_bytes(self) -> int:
        """The bytes of all subscriptions and assignments, which are in the group's record."""
        return sum(self._subscriptions.values()) + self._assignments

    def encode(self, api: str, version: int, fields: Mapping[str, Any], **named: Any) -> bytes:
        """As ``encode_request``."""
        body = codec.encode_request(api, version, fields, **named)
        self.requests[api] += 1
        self.sent[api] += len(body)
        if api == "join_group":
            metadata = fields["protocols"][0]["metadata"]
            self._subscriptions[fields["member_id"] or "new"] = len(metadata)
        elif api == "sync_group" and fields["assignments"]:
            self._assignments = sum(len(one["assignment"]) for one in fields["assignments"])
        return body

    def decode(self, api: str, version: int, body: bytes, **named: Any) -> tuple[int, Any]:
        """As ``decode_response``."""
        self.received[api] += len(body)
        return codec.decode_response(api, version, body, **named)

    def timed(self, what: str, work: Callable[[], T]) -> T:
        """Call a function, and count its processor time."""
        began = time.process_time()
        try:
            return work()
        finally:
            self.cpu[what] += time.process_time() - began

    async def compute(self, work: Callable[[], T], name: str) -> T:
        """As ``compute_inline``; the name's first word says what it is for."""
        await trio.lowlevel.checkpoint()
        return self.timed(name.split(maxsplit=1)[0], work)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Count what all members of this process do."""
        handle = GroupCoordinatorService.handle

        def handled(service: GroupCoordinatorService, *given: Any) -> Any:
            return self.timed("coordinator", lambda: handle(service, *given))

        with (
            mock.patch("kgroup.wire.connection.encode_request", self.encode),
            mock.patch("kgroup.wire.connection.decode_response", self.decode),
            mock.patch.object(GroupCoordinatorService, "handle", handled),
        ):
            yield


class NoRecords:
    """A ``RecordSource`` of members that read nothing."""

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *details: object) -> None:
        await trio.lowlevel.checkpoint()

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """See ``RecordSource``."""
        del epoch, partitions, limit
        await trio.sleep_forever()

    def _ignore(self, *given: object) -> None:
        """Nothing is read."""

    assign = open = pause = resume = seek = revoke = _ignore


@attrs.frozen
class ShiftedClock:
    """A wall clock that is wrong by some seconds; members with such clocks have no common beat."""

    clock: Clock
    shift: float

    def now(self) -> float:
        """See ``Clock``."""
        return self.clock.now() + self.shift


@attrs.frozen
class DelayedStream(trio.abc.Stream):
    """A stream whose messages are under way for a while."""

    stream: trio.abc.Stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See ``trio.abc.SendStream``."""
        await trio.sleep(LATENCY)
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See ``trio.abc.SendStream``."""
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ``trio.abc.ReceiveStream``."""
        received = await self.stream.receive_some(max_bytes)
        await trio.sleep(LATENCY)
        return bytes(received)

    async def aclose(self) -> None:
        """See ``trio.abc.AsyncResource``."""
        await self.stream.aclose()


@attrs.frozen(kw_only=True)
class Case:
    """One group and one change.

    Attributes:
        members: how many members it has before the change.
        partitions: how many partitions its topics have.
        assignor: their only assignor.
        beat: whether the members' wall clocks agree, so that their heartbeats beat together.
    """

    members: int
    partitions: int
    assignor: str
    beat: bool

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics, with their numbers of partitions."""
        count = -(-self.partitions // LARGEST_TOPIC)
        return {
            f"orders{number}": len(range(number, self.partitions, count)) for number in range(count)
        }


@attrs.define
class Members:
    """The members of a group, and when each has had which generation.

    Attributes:
        held: for each member how many generations it has been given.
        assigned: for each member how many partitions it has.
        waits: the seconds between the end of a generation and the next, since `waits` was cleared.
    """

    case: Case
    servers: str
    group_id: str
    opener: StreamOpener
    clock: Clock
    wall_clock: Clock
    meter: Meter
    held: Counter[int] = attrs.field(factory=Counter)
    assigned: dict[int, int] = attrs.field(factory=dict)
    waits: list[float] = attrs.field(factory=list)
    changed: Notifier = attrs.field(factory=Notifier)

    async def run(self, number: int) -> None:
        """Run one member."""
        draw = random.Random(number)
        shift = 0.0 if self.case.beat else draw.uniform(0, 60)
        config = GroupConfig(
            bootstrap_servers=self.servers,
            group_id=self.group_id,
            topics=[*self.case.topics],
            assignors=[self.case.assignor],
            **SETTINGS,
        )
        runtime = Runtime(
            open_stream=self._opener_of_one(),
            clock=self.clock,
            wall_clock=ShiftedClock(self.wall_clock, shift),
            random=draw,
            record_source=lambda _, __: cast("Any", NoRecords()),
            compute=lambda: self.meter.compute,
        )
        async with ConsumerGroup(config, runtime=runtime) as group:
            ended: float | None = None
            async for generation in group:
                if ended is not None:
                    self.waits.append(trio.current_time() - ended)
                self.held[number] += 1
                self.assigned[number] = len(generation.assignment)
                self.changed.notify()
                if ended is None and generation.assignment:
                    # As in a group that has read: nothing has to ask leaders for start offsets.
                    await generation.commit(dict.fromkeys(generation.assignment, 0))
                await generation.ending.wait()
                ended = trio.current_time()

    def _opener_of_one(self) -> StreamOpener:
        """An opener of this member's own, so that members share nothing."""

        async def opened(host: str, port: int) -> trio.abc.Stream:
            return await self.opener(host, port)

        return opened

    async def until_settled(self, count: int) -> float:
        """Wait until members own all partitions for good; return when the last one was given its.

        With a cooperative assignor a change takes two generations.
        """
        while len(self.held) < count or sum(self.assigned.values()) != self.case.partitions:
            await self.changed.wait()
        return trio.current_time()


async def measured(members: Members, cpu_of_broker: Callable[[], float]) -> dict[str, Any]:
    """Begin the group, let one more member join, and return what that took."""
    case, meter = members.case, members.meter
    with meter.attached(), trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for number in range(case.members):
                nursery.start_soon(members.run, number)
            await members.until_settled(case.members)
            await trio.sleep(SETTLE)
            meter.clear()
            members.waits.clear()
            broker, process = cpu_of_broker(), time.process_time()
            began = trio.current_time()
            before = members.held.copy()
            nursery.start_soon(members.run, case.members)
            while any(members.held[number] == before[number] for number in before):
                await members.changed.wait()
            over = await members.until_settled(case.members + 1)
            found = {
                **attrs.asdict(case),
                "seconds": round(over - began, 3),
                "longest_wait": round(max(members.waits, default=0.0), 3),
                "requests": dict(meter.requests),
                "sent": dict(meter.sent),
                "received": dict(meter.received),
                "cpu": {name: round(used, 3) for name, used in meter.cpu.items()},
                "broker_cpu": round(cpu_of_broker() - broker, 3),
                "process_cpu": round(time.process_time() - process, 3),
                "group_bytes": meter.group_bytes,
            }
            nursery.cancel_scope.cancel()
    return found


def simulated(case: Case) -> dict[str, Any]:
    """Measure in virtual time."""
    meter = Meter()

    async def main() -> dict[str, Any]:
        settings = {
            "group.initial.rebalance.delay.ms": JOIN_DELAY,
            "group.max.session.timeout.ms": 1_800_000,
        }
        async with in_memory(settings=settings) as broker:
            for name, partitions in case.topics.items():
                await broker.create_topic(name, partitions)

            async def opened(host: str, port: int) -> trio.abc.Stream:
                return DelayedStream(await broker.open_stream(host, port))

            members = Members(
                case, broker.bootstrap_servers, "g", opened, TrioClock(), TrioClock(), meter
            )
            return await measured(members, lambda: meter.cpu["coordinator"])

    return run_virtual(1, main, seed_timeout=LONGEST)


def on_kafka(case: Case, kafka: RealKafka) -> dict[str, Any]:
    """Measure on a real broker, in a group of its own."""
    group_id = f"g-{uuid4().hex[:8]}"
    broker = psutil.Process(kafka.pid)

    def cpu() -> float:
        times = broker.cpu_times()
        return times.user + times.system

    async def main() -> dict[str, Any]:
        members = Members(
            case,
            kafka.bootstrap_servers,
            group_id,
            open_tcp,
            SuspendAwareClock(),
            WallClock(),
            Meter(),
        )
        return await measured(members, cpu)

    return trio.run(main)


LEADER: Final = ("kgroup-read", "kgroup-assign", "kgroup-encode", "kgroup-decode")
COLUMNS: Final = (
    "members",
    "partitions",
    "assignor",
    "beat",
    "change, s",
    "longest wait, s",
    "requests",
    "KB to the coordinator",
    "KB to the members",
    "leader's CPU, s",
    "coordinator's CPU, s",
    "the group's record, KB",
)
PER_MEMBER: Final = 90
"""About the bytes of a member in the group's record besides its subscription and assignment: two
int32, the member id (44), client id, host, and their lengths."""


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The line of the table."""
    leader = sum(found["cpu"].get(name, 0.0) for name in LEADER)
    record = found["group_bytes"] + PER_MEMBER * (found["members"] + 1)
    return (
        f"{found['members']:,}",
        f"{found['partitions']:,}",
        found["assignor"],
        "yes" if found["beat"] else "no",
        f"{found['seconds']:.2f}",
        f"{found['longest_wait']:.2f}",
        f"{sum(found['requests'].values()):,}",
        f"{sum(found['sent'].values()) / 1000:,.0f}",
        f"{sum(found['received'].values()) / 1000:,.0f}",
        f"{leader:.2f}",
        f"{found['broker_cpu']:.2f}",
        f"{record / 1000:,.0f}",
    )


def phases(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """For each kind of request how many there were, and their bytes."""
    for api, number in sorted(found["requests"].items()):
        sent, received = found["sent"][api], found["received"].get(api, 0)
        yield f"{found['members']:,}", api, f"{number:,}", f"{sent:,}", f"{received:,}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=count, nargs="+", default=MEMBERS)
    parser.add_argument("--partitions-each", type=count, default=PARTITIONS_EACH)
    parser.add_argument("--assignors", nargs="+", choices=ASSIGNORS, default=ASSIGNORS)
    parser.add_argument("--real", action="store_true", help="on a real Kafka")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    chosen = parser.parse_args()
    logging.disable()
    cases = [
        Case(
            members=members,
            partitions=members * chosen.partitions_each,
            assignor=assignor,
            beat=beat,
        )
        for members in chosen.members
        for assignor in chosen.assignors
        for beat in ((True, False) if assignor == chosen.assignors[0] else (True,))
    ]
    results = list(_on_a_kafka(cases) if chosen.real else map(_said, map(simulated, cases)))
    print(table(COLUMNS, [row(found) for found in results]), end="\n\n")
    first = [one for one in results if one["beat"] and one["assignor"] == chosen.assignors[0]]
    head = ("members", "request", "number", "bytes sent", "bytes received")
    print(table(head, [line for found in first for line in phases(found)]))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _on_a_kafka(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    settings = {"group.initial.rebalance.delay.ms": JOIN_DELAY}
    for case in cases:  # each on a broker of its own: a topic of the last case costs the next one
        with RealKafka(settings, java_options=()) as kafka:
            for name, partitions in case.topics.items():
                admin.create_topic(kafka.bootstrap_servers, name, partitions)
            yield _said(on_kafka(case, kafka))


def _said(found: dict[str, Any]) -> dict[str, Any]:
    print(*row(found), sep=" | ", flush=True)
    return found


if __name__ == "__main__":
    main()
