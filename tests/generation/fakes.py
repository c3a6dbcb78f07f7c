"""Fakes for tests of the parts of a generation: a coordinator, a source, an emitter."""

# ruff: noqa: ARG002 # a fake takes all that the protocol gives
from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NoReturn, Self, final

import attrs
import trio

from kgroup.client.backoff import Backoff, RateLimit
from kgroup.client.beat import Beat
from kgroup.client.error_policy import Reaction, Request
from kgroup.client.lease import Lease
from kgroup.clocks import TrioClock
from kgroup.config import GroupConfig
from kgroup.errors import BrokerError, OffsetOutOfRangeError, TransportError
from kgroup.events import CommitRefused, Committed, Event
from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.positions import Positions
from kgroup.interfaces import Batch, DescribeResult, JoinResult
from kgroup.runtime import Runtime
from kgroup.types import (
    Assignment,
    Claim,
    MemberAssignments,
    Membership,
    OffsetAndMetadata,
    TopicPartition,
)
from kgroup.worker_thread import compute_inline

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
MEMBERSHIP: Final = Membership(
    group_id="g",
    member_id="m-1",
    group_instance_id=None,
    generation_id=7,
    epoch=3,
    assignor="range",
    leader=False,
)
APPLIED: Final[Mapping[TopicPartition, int]] = {}
"""An answer without an error for any partition."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Play = Callable[[], Awaitable[None]]
#: Error codes by partition, an exception, or something to wait for before all is applied.
Reply = Mapping[TopicPartition, int] | Exception | Play


async def _play_next(replies: list[Exception | Play]) -> None:
    reply = replies.pop(0) if replies else None
    if isinstance(reply, Exception):
        raise reply
    if reply is not None:
        await reply()


@final
class FakeCoordinator:
    """Answers commits, heartbeats and finds from lists; after the last entry, without an error."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.replies: list[Reply] = []
        self.openings: list[Play] = []
        """What commits wait for before they are sent, such as a connection."""
        self.reopenings: list[Play] = []
        """What commits that were sent wait for before they are sent again, their connections having
        been found closed."""
        self.sent_again = 0
        self.beats: list[float | Exception | Play] = []
        self.beaten: list[float] = []
        self.finds: list[Exception | Play] = []
        self.syncs: list[Exception | Play] = []
        self.synced = 0
        self.found = 0
        self.stable: dict[TopicPartition, int] = {}
        self.stores = False
        """Whether commits change what is stored."""
        self.epochs: dict[TopicPartition, int] = {}
        self.fetched: list[tuple[TopicPartition, ...]] = []

    async def commit(
        self,
        membership: Membership,
        offsets: Offsets,
        on_sent: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> Mapping[TopicPartition, int]:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        if self.openings:
            await self.openings.pop(0)()
        self.commits.append(dict(offsets))
        reply = self.replies.pop(0) if self.replies else APPLIED
        if not isinstance(reply, Exception) or getattr(reply, "sent", False):
            on_sent()
        if self.reopenings:
            on_lost()
            await self.reopenings.pop(0)()
            on_sent()
            self.sent_again += 1
        if isinstance(reply, Exception):
            raise reply
        if not isinstance(reply, Mapping):
            await reply()
            reply = APPLIED
        codes = {name: reply.get(name, 0) for name in offsets}
        if self.stores:
            self.stable.update({name: offsets[name].offset for name in offsets if not codes[name]})
        return codes

    async def heartbeat(self, membership: Membership) -> float:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        self.beaten.append(trio.current_time())
        reply = self.beats.pop(0) if self.beats else 0.0
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, int | float):
            return float(reply)
        await reply()
        return 0.0

    async def find(self) -> None:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        self.found += 1
        await _play_next(self.finds)

    async def fetch_offsets(
        self, membership: Membership, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        self.fetched.append(tuple(partitions))
        return {
            name: OffsetAndMetadata(self.stable[name], self.epochs.get(name, -1))
            if name in self.stable
            else None
            for name in partitions
        }

    async def join(
        self, member_id: str, topics: Collection[str], reason: str, claim: Claim | None = None
    ) -> JoinResult:
        """Not called here."""
        _not_called()

    async def sync(
        self, membership: Membership, assignments: MemberAssignments
    ) -> tuple[TopicPartition, ...]:
        """See ``Coordinator``; as a member asks that already has its assignment."""
        await trio.lowlevel.checkpoint()
        assert not assignments
        self.synced += 1
        await _play_next(self.syncs)
        return ()

    async def describe(self) -> DescribeResult:
        """Not called here."""
        _not_called()

    async def leave(self, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """Not called here."""
        _not_called()


def _not_called() -> NoReturn:
    raise AssertionError("nothing under test joins, syncs or leaves")


def backoff() -> Backoff:
    """Waits of 0.1 s that double, with jitter."""
    return Backoff(0.1, 5.0, random.Random(1))


@final
@attrs.define
class FakeSource:
    """Hands out one offset at a time, or raises an error that the test gave."""

    position: int = 0
    end: int = 1000
    error: Exception | None = None
    lost: TopicPartition | None = None
    pause_between: float = 0.0
    log: list[Any] = attrs.field(factory=list)
    opened: set[TopicPartition] = attrs.field(factory=set)
    leader_epochs: dict[TopicPartition, int] = attrs.field(factory=dict)
    added: list[TopicPartition] = attrs.field(factory=list)
    grown: trio.Event = attrs.field(factory=trio.Event)

    async def __aenter__(self) -> Self:
        """See ``RecordSource``."""
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *details: object) -> None:
        """See ``RecordSource``."""
        await trio.lowlevel.checkpoint()

    def assign(
        self,
        epoch: int,
        positions: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        added: Collection[TopicPartition] = (),
    ) -> None:
        """See ``RecordSource``."""
        self.leader_epochs = dict(leader_epochs)
        self.added = sorted(added)
        self.log.append(("assign", epoch, dict(positions)))

    def open(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self.log.append(("open", epoch, sorted(partitions)))
        self.opened.update(partitions)

    async def receive(
        self, epoch: int, partitions: Collection[TopicPartition], limit: int
    ) -> Batch:
        """See ``RecordSource``."""
        assert limit > 0
        assert self.opened.issuperset(partitions)
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.lost in partitions:
            raise OffsetOutOfRangeError("gone", P0, 7)
        await trio.sleep(self.pause_between)
        while self.position >= self.end:
            await self.grown.wait()
        number = self.position
        self.position += 1
        message: Any = SimpleNamespace(offset=lambda: number)
        return Batch(
            partition=min(partitions), messages=[message], next_offset=number + 1, epoch=epoch
        )

    def pause(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self.log.append(("pause", epoch, sorted(partitions)))

    def resume(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """See ``RecordSource``."""
        self.log.append(("resume", epoch, sorted(partitions)))

    def seek(self, epoch: int, partition: TopicPartition, offset: int) -> None:
        """See ``RecordSource``."""
        self.log.append(("seek", epoch, partition, offset))
        self.position = offset

    def revoke(self, epoch: int) -> None:
        """See ``RecordSource``."""
        self.log.append(("revoke", epoch))


class RecordingEmitter:
    """An emitter that keeps its events, and each reported failure with its reaction."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reports: list[tuple[Request, Reaction]] = []
        self.monitored = True
        self.batches: list[tuple[TopicPartition, int, float | None]] = []
        """Batches that were handed out, and with their seconds those that were processed."""
        self.errors: list[BaseException] = []
        """What was raised for batches."""

    def handed_out(self, partition: TopicPartition, records: int) -> None:
        """Record a batch."""
        self.batches.append((partition, records, None))

    def processed(
        self, partition: TopicPartition, records: int, seconds: float, error: BaseException | None
    ) -> None:
        """Record the end of a batch."""
        self.batches.append((partition, records, seconds))
        if error is not None:
            self.errors.append(error)

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        """See ``EventEmitter``."""
        self.events.append(kind(group_id="g", **fields))

    def failed(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        """See ``EventEmitter``."""
        self.reports.append((request, reaction))


def member_context(**parts: Any) -> MemberContext:
    """The parts of a member that outlive its generations: fakes, except for those that are given.

    Args:
        parts: attributes of `MemberContext`, and settings of its `GroupConfig`.
    """
    made: dict[str, Any] = {
        "emitter": RecordingEmitter(),
        "source": FakeSource(),
        "coordinator": FakeCoordinator(),
        "cluster": None,
        "beat": Beat(TrioClock(), "g"),
        "search_limit": RateLimit(10, 1.0),
        "subscription": None,
        "group": object(),
        "assignor_thread": compute_inline,
        "checking_thread": compute_inline,
        "starts_thread": compute_inline,
    }
    made |= {name: parts.pop(name) for name in made if name in parts}
    given: dict[str, Any] = {
        "group_id": "g",
        "bootstrap_servers": "a:1",
        "topics": ["t"],
        "rejoin_backoff": 0.1,
        "rejoin_backoff_max": 5.0,
        **parts,
    }
    runtime = Runtime(
        open_stream=_no_network,
        clock=TrioClock(),
        random=random.Random(1),
        record_source=lambda *_: made["source"],
        compute=lambda: compute_inline,
    )
    return MemberContext(config=GroupConfig(**given), runtime=runtime, **made)


async def _no_network(host: str, port: int) -> NoReturn:
    raise AssertionError("nothing under test connects")


@attrs.define
class FakeGeneration:
    """A committer with the parts that it uses, and the events that were emitted."""

    coordinator: FakeCoordinator = attrs.field(factory=FakeCoordinator)
    start: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    owned: Sequence[TopicPartition] = (P0, P1, P2)
    commit_timeout: float = 10.0
    session_timeout: float = 30.0
    cluster: Any = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    emitter: RecordingEmitter = attrs.field(factory=RecordingEmitter)
    source: FakeSource = attrs.field(factory=FakeSource)
    member: MemberContext = attrs.field(init=False)
    lifecycle: Lifecycle = attrs.field(init=False)
    positions: Positions = attrs.field(init=False)
    committer: Committer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the parts that need other parts."""
        self.member = member_context(
            coordinator=self.coordinator,
            emitter=self.emitter,
            source=self.source,
            commit_timeout=self.commit_timeout,
            session_timeout=self.session_timeout,
            rebalance_timeout=3600.0,
            cluster=self.cluster,
            **self.settings,
        )
        self.lifecycle = Lifecycle(self.member, MEMBERSHIP, trio.current_time())
        self.positions = Positions(MEMBERSHIP)
        self.positions.begin(Assignment(self.owned), self.start)
        self.positions.lift_upper_bounds(self.owned)  # nothing is read here
        self.committer = Committer(self.member, self.lifecycle, self.positions)

    @property
    def lease(self) -> Lease:
        """The generation's lease."""
        return self.lifecycle.lease

    @property
    def reports(self) -> list[tuple[Request, Reaction]]:
        """The failures that were reported."""
        return self.emitter.reports

    @property
    def committed(self) -> list[dict[TopicPartition, int]]:
        """The offsets that were committed, by event."""
        return [
            dict(event.offsets) for event in self.emitter.events if isinstance(event, Committed)
        ]

    @property
    def refused(self) -> list[tuple[dict[TopicPartition, int], str, bool]]:
        """The commits refused, by event: the offsets, the reason, and whether they were stale."""
        return [
            (dict(event.offsets), event.reason, event.stale)
            for event in self.emitter.events
            if isinstance(event, CommitRefused)
        ]

    async def commit(self, **offsets: int) -> None:
        """Check and commit offsets, as a generation does: ``commit(p0=3)``."""
        named = {(P0, P1, P2)[int(name[1:])]: offset for name, offset in offsets.items()}
        await self.committer.commit(self.positions.check(named))

    async def commit_first(self) -> None:
        """Send the commit that later ones wait behind."""
        await self.commit(p2=1)


def at(**offsets: int) -> dict[TopicPartition, Any]:
    """Positions: ``at(p0=3)``."""
    return {
        (P0, P1, P2)[int(name[1:])]: OffsetAndMetadata(offset) for name, offset in offsets.items()
    }


async def find(
    searches: PositionSearches, wanted: Mapping[TopicPartition, OffsetOutOfRangeError | None]
) -> None:
    """Search for positions until all are known, and raise what a search raises."""
    left, over = dict(wanted), trio.Event()
    failures: list[Exception] = []

    def on_over(partition: TopicPartition, error: Exception | None) -> None:
        del left[partition]
        if error is not None:
            failures.append(error)
        if not left:
            over.set()

    for name, error in wanted.items():
        searches.begin(name, error, partial(on_over, name))
    if left:
        await over.wait()
    if failures:
        raise failures[0]
