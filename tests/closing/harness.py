"""One member, closed in one state, in one way, while one part is unavailable: in virtual time.

The network stands between the member and an embedded broker in memory, so that a fault can begin at
any moment. In most cases the member reaches its state because one of its requests is held back.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar, final

import attrs
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.broker.faults import InjectedFault
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import CommitUnknownError, StaleGenerationError
from kgroup.events import Event
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.records.buffered_source import OnFault
from kgroup.records.memory import MemorySource
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import TopicPartition
from kgroup.worker_thread import compute_inline

T = TypeVar("T")

LONG: Final = 10_000.0
"""Seconds for which a request is held; every close must take far less."""
SHIELDED: Final = 3.0
"""Seconds for which a handler may shield itself."""
LATER: Final = 0.7
"""Seconds from the beginning of a close until a fault that begins during it."""
EARLIER: Final = 13.0
"""Seconds before the close: longer than the short sessions, shorter than the default one."""
AT_ONCE: Final = {"group.initial.rebalance.delay.ms": "0"}
_STEP: Final = 0.2
_GROUP_APIS: Final = (
    "join_group",
    "sync_group",
    "heartbeat",
    "leave_group",
    "offset_commit",
    "offset_fetch",
)


class Boom(Exception):  # noqa: N818 # what it is called does not matter
    """The exception that the body of a program raises."""


@final
class Outage(enum.Enum):
    """What is unavailable."""

    NOTHING = "nothing"
    COORDINATOR = "the coordinator"
    REFUSING = "all brokers: connections are cut and refused"
    HALF_OPEN = "all brokers: connections open and stay, and nothing is answered"
    NEVER_OPENS = "all brokers: what is open is silent, and nothing opens"
    METADATA = "answers to Metadata, which watchers wait for"
    SOURCE = "the end of the source of records"


@final
class When(enum.Enum):
    """When the part becomes unavailable."""

    BEFORE = "just before the close"
    AMID = "amid the close"
    EARLIER = "long before the close"


@final
class Way(enum.Enum):
    """How a group is closed."""

    SHUTDOWN = "shutdown()"
    ACLOSE = "aclose()"
    LEAVE = "the block is left"
    RAISE = "the body raises"
    CANCEL = "the scope around it is cancelled"


@final
class Network:
    """Opens the member's connections, and can make them fail."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._outage = Outage.NOTHING
        self.connections: set[_Connection] = set()

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``."""
        if self._outage is Outage.NEVER_OPENS:
            await trio.sleep_forever()
        if self._outage is Outage.REFUSING:
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError("connection refused")
        connection = _Connection(await self._broker.open_stream(host, port), self)
        self.connections.add(connection)
        return connection

    def begin_outage(self, outage: Outage) -> None:
        """Make this unavailable from now on."""
        self._outage = outage
        if outage is Outage.REFUSING:
            self._broker.cut_connections()

    @property
    def silent(self) -> bool:
        """Whether no bytes arrive, in either direction."""
        return self._outage in (Outage.HALF_OPEN, Outage.NEVER_OPENS)


@final
class _Connection(trio.abc.Stream):
    """One connection of the member."""

    def __init__(self, inner: trio.abc.Stream, network: Network) -> None:
        self._inner = inner
        self._network = network

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._network.silent:
            await trio.lowlevel.checkpoint()
        else:
            await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._network.silent:
            received = await self._inner.receive_some(max_bytes)
            if not self._network.silent:
                return received
        await trio.sleep_forever()
        raise AssertionError

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self._network.connections.discard(self)
        await self._inner.aclose()


@final
class Source:
    """A source of records that begins, or ends, as slowly as the test wants."""

    def __init__(self, harness: Harness, config: GroupConfig, on_fault: OnFault) -> None:
        self._harness = harness
        self._records = MemorySource(config, on_fault, harness.broker.log)

    async def __aenter__(self) -> Source:
        if self._harness.state.source_never_begins:
            self._harness.reached = True
            await trio.sleep_forever()
        await self._records.__aenter__()
        self._harness.sources += 1
        return self

    async def __aexit__(self, *details: object) -> None:
        try:
            if self._harness.source_never_ends:
                await trio.sleep(LONG)
        finally:
            self._harness.sources -= 1
            await self._records.__aexit__(*details)

    def assign(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        added: Collection[TopicPartition] = (),
    ) -> None:
        """See ``RecordSource``."""
        self._records.assign(epoch, positions, leader_epochs, added)

    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self._records.open(epoch, partitions)

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """See ``RecordSource``."""
        return await self._records.receive(epoch, partitions, limit)

    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self._records.pause(epoch, partitions)

    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self._records.resume(epoch, partitions)

    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """See ``RecordSource``."""
        self._records.seek(epoch, partition, offset)

    def revoke(self, epoch: int) -> None:
        """See ``RecordSource``."""
        self._records.revoke(epoch)


Handler = Callable[[Generation], Awaitable[None]]


async def obeys(generation: Generation) -> None:
    """Finish at the generation's end, and commit under its id."""
    await generation.ending.wait()
    await generation.commit(dict.fromkeys(generation.assignment, 0))


async def blocks(_: Generation) -> None:
    """Wait for something else until it is cancelled."""
    await trio.sleep_forever()


async def swallows(_: Generation) -> None:
    """Swallow the cancellation once, and continue."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        await trio.sleep_forever()


async def shields(_: Generation) -> None:
    """Run behind a shield for a while after the cancellation."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(SHIELDED, shield=True):
            await trio.sleep_forever()


async def commits(generation: Generation) -> None:
    """Commit at once, and wait for the response."""
    await generation.commit(dict.fromkeys(generation.assignment, 0))


async def reads(generation: Generation) -> None:
    """Wait for records that never come."""
    async for _ in generation.records():
        raise AssertionError("there are none")


async def returns(_: Generation) -> None:
    """Return at once."""
    await trio.lowlevel.checkpoint()


@final
@attrs.frozen(kw_only=True)
class State:
    """A state of the member, and how it comes into it.

    Attributes:
        calls_next: whether the program calls `next()`.
        holds: the API whose first request is not answered; the member waits for it.
        handler: what runs in a generation.
        then: what happens once the generation was handed over.
        reached: whether an event shows that the state is reached, if no held request does.
        settings: of the group.
        shielded: seconds that the handler takes after it was cancelled.
        leaves: whether the member sends LeaveGroup, if nothing is unavailable.
        source_never_begins: whether entering the source of records takes for ever.
        entered: whether the group is entered before it is closed.
        closes_first: whether the program has closed the group itself.
        body: what the loop's body does with a generation, instead of waiting for its end.
        assignor_never_ends: whether dividing the partitions takes for ever.
        before: what happens on the broker before the member exists.
        silent: whether nothing is answered from the beginning.
        logs_in: whether the broker has a login, and so a user ``a`` with the password ``b``.
    """

    calls_next: bool = True
    holds: str | None = None
    handler: Handler | None = None
    then: Callable[[Harness, Generation], None] | None = None
    reached: Callable[[Event], bool] | None = None
    settings: Mapping[str, object] = attrs.field(factory=dict)
    shielded: float = 0.0
    leaves: bool = True
    source_never_begins: bool = False
    entered: bool = True
    closes_first: bool = False
    body: Callable[[Harness, Generation], Awaitable[object]] | None = None
    assignor_never_ends: bool = False
    before: Callable[[EmbeddedBroker], Awaitable[object]] | None = None
    silent: bool = False
    logs_in: bool = False


@final
@attrs.frozen
class Case:
    """One close."""

    state: State
    outage: Outage
    when: When
    way: Way
    session_timeout: float


@final
class Harness:
    """The broker, the network and the member of one case."""

    def __init__(self, case: Case, broker: EmbeddedBroker) -> None:
        self.case = case
        self.state = case.state
        self.broker = broker
        self.network = Network(broker)
        self.events: list[Event] = []
        self.reached = False
        self.sources = 0
        self.source_never_ends = False
        self.held: InjectedFault | None = None
        self.generation: Generation | None = None
        self.finished: list[float] = []
        self._body = trio.CancelScope()
        self._around = trio.CancelScope()
        self._left = trio.Event()
        settings: dict[str, object] = {
            "session_timeout": case.session_timeout,
            "heartbeat_interval": case.session_timeout / 3,
            "drain_timeout": 8.0,
            "close_timeout": 3.0,
            "rebalance_timeout": 20.0,
            "partition_watch_interval": 1.0,
            **case.state.settings,
        }
        runtime = attrs.evolve(
            memory_runtime(broker, seed=1),
            open_stream=self.network.open,
            random=random.Random(1),
            record_source=lambda config, on_fault: Source(self, config, on_fault),
            compute=lambda: self._compute,
        )
        self.group = ConsumerGroup(
            config_for(broker, **settings), runtime=runtime, on_event=self.events.append
        )

    async def play(self) -> float:
        """Bring the member into the state and close it; return the seconds that closing took.

        Raises:
            Boom: the body raised it.
        """
        if self.state.before is not None:
            await self.state.before(self.broker)
        if self.state.silent:
            self.network.begin_outage(Outage.HALF_OPEN)
        if self.state.holds is not None and self.state.then is None and not self._holds_later:
            self.hold()
        async with trio.open_nursery() as nursery:
            if self.state.entered:
                nursery.start_soon(self._run)
                await self._until(self._is_reached)
            elif self.case.when is not When.AMID:
                self.begin_outage()
            if self.state.entered and self.case.when is When.EARLIER:
                self.begin_outage()
                with trio.move_on_after(EARLIER):
                    await self.group.wait_closed()
            if self.state.entered and self.case.when is When.BEFORE:
                self.begin_outage()
            began = trio.current_time()
            if self.case.when is When.AMID:
                nursery.start_soon(self._begin_outage_later)
            await self._close(nursery)
            nursery.cancel_scope.cancel()
        (ended,) = self.finished
        return ended - began

    def hold(self) -> None:
        """Leave the requests of the state's API unanswered from now on."""
        self.held = self.broker.slow(LONG, self.state.holds)

    def begin_outage(self) -> None:
        """Make the part of the case unavailable."""
        match self.case.outage:
            case Outage.COORDINATOR:
                self.lose_coordinator()
            case Outage.METADATA:
                self.broker.slow(LONG, "metadata")
            case Outage.SOURCE:
                self.source_never_ends = True
            case Outage.NOTHING:
                pass
            case outage:
                self.network.begin_outage(outage)

    def lose_coordinator(self) -> None:
        """Leave the group without a coordinator."""
        self.broker.inject("find_coordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
        for api in _GROUP_APIS:
            self.broker.inject(api, ErrorCode.NOT_COORDINATOR, times=None)

    @property
    def _holds_later(self) -> bool:
        return self.state.handler is not None or self.state.closes_first

    def _is_reached(self) -> bool:
        if self.state.reached is not None:
            return any(map(self.state.reached, self.events))
        if self.held is not None:
            return self.held.seen > 0
        return self.reached or (self.state.silent and bool(self.network.connections))

    async def _until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(120):
            while not holds():  # noqa: ASYNC110 # many conditions, all cheap to check
                await trio.sleep(_STEP)

    async def _compute(self, work: Callable[[], T], name: str) -> T:
        if self.state.assignor_never_ends and name.startswith("kgroup-assign"):
            self.reached = True
            await trio.sleep_forever()
        return await compute_inline(work, name)

    async def _begin_outage_later(self) -> None:
        await trio.sleep(LATER)
        self.begin_outage()

    async def _run(self) -> None:
        try:
            with self._around:
                async with self.group:
                    with self._body:
                        await self._work()
                    if self.case.way is Way.RAISE and self._body.cancel_called:
                        raise Boom
        except Boom:
            assert self.case.way is Way.RAISE
        finally:
            self.finished.append(trio.current_time())
            self._left.set()

    async def _work(self) -> None:
        if not self.state.calls_next:
            self.reached = True
            await self.group.wait_closed()
        if self.state.closes_first:
            self.generation = await self.group.next()
            self.hold()
            self.group.release()
            self.group.shutdown()
            await self.group.wait_closed()
        async for generation in self.group:
            self.generation = generation
            if self.state.handler is not None:
                generation.start_soon(self._handle, self.state.handler)
                if self.state.holds is not None:
                    self.hold()
                else:
                    self.reached = True
            if self.state.then is not None:
                self.state.then(self, generation)
            if self.state.body is not None:
                self.reached = True
                await self.state.body(self, generation)
            await generation.wait_ended()

    async def _handle(self, handler: Handler) -> None:
        assert self.generation is not None
        try:
            await handler(self.generation)
        except (CommitUnknownError, StaleGenerationError):
            return

    async def _close(self, nursery: trio.Nursery) -> None:
        """Close the group in the way of the case, and wait until its block is left."""
        way = self.case.way
        if way is Way.SHUTDOWN:
            self.group.shutdown()
        elif way is Way.ACLOSE:
            await self.group.aclose()
        elif way is Way.CANCEL:
            self._around.cancel()
        else:
            self._body.cancel()
        if not self.state.entered:
            nursery.start_soon(self._run)
        await self._left.wait()

    def faults(self) -> Iterator[str]:
        """Yield what closing has left behind."""
        if self.network.connections:
            yield f"{len(self.network.connections)} connections are open"
        if self.sources:
            yield "the source of records has not ended"
        if "closed" not in repr(self.group):
            yield f"the group is {self.group!r}"

    async def members_left(self) -> int:
        """How many members the coordinator still has."""
        return sum(len(group.members) for group in await self.broker.groups())


@final
@attrs.frozen
class Outcome:
    """The result of a case: the seconds that closing took, their bound, and what is wrong."""

    seconds: float
    bound: float
    faults: tuple[str, ...]


def play(case: Case) -> Outcome:
    """Play a case in a virtual time of its own."""

    async def run() -> Outcome:
        security = BrokerSecurity(users={"a": "b"}) if case.state.logs_in else None
        async with in_memory(AT_ONCE, random=random.Random(2), security=security) as broker:
            await broker.create_topic("topic", 2)
            harness = Harness(case, broker)
            with trio.fail_after(5 * LONG):
                seconds = await harness.play()
            bound = harness.group.config.longest_close + case.state.shielded
            faults = list(harness.faults())
            if case.outage is Outage.NOTHING and case.state.leaves and await harness.members_left():
                faults.append("the coordinator still has the member")
            if seconds > bound:
                faults.append(f"closing took {seconds:.2f} s, and may take {bound:.2f} s")
            return Outcome(seconds, bound, tuple(faults))

    return trio.run(run, clock=MockClock(autojump_threshold=0))
