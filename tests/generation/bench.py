"""What parts of a generation are tested beside: a coordinator that is told what to answer."""

# ruff: noqa: ARG002 # a fake takes all that the protocol gives
from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.error_policy import Reaction, Request
from kgroup.client.lease import Lease
from kgroup.clocks import TrioClock
from kgroup.errors import BrokerError, TransportError
from kgroup.generation.commit_bounds import CommitBounds
from kgroup.generation.commit_request import CommitContext
from kgroup.generation.commits import Committer
from kgroup.interfaces import DescribeResult, JoinResult
from kgroup.types import (
    Assignment,
    Claim,
    End,
    MemberAssignments,
    Membership,
    OffsetAndMetadata,
    TopicPartition,
)

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


@final
class FakeCoordinator:
    """Answers commits, heartbeats and looks for itself from lists; empty ones mean: well."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.replies: list[Reply] = []
        self.beats: list[float | Exception | Play] = []
        self.beaten: list[float] = []
        self.finds: list[Exception | Play] = []
        self.found = 0
        self.stable: dict[TopicPartition, int] = {}

    async def commit(
        self, membership: Membership, offsets: Offsets, on_sent: Callable[[], None]
    ) -> Mapping[TopicPartition, int]:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        self.commits.append(dict(offsets))
        reply = self.replies.pop(0) if self.replies else APPLIED
        if not isinstance(reply, Exception) or getattr(reply, "sent", False):
            on_sent()
        if isinstance(reply, Exception):
            raise reply
        if not isinstance(reply, Mapping):
            await reply()
            reply = APPLIED
        return {name: reply.get(name, 0) for name in offsets}

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
        reply = self.finds.pop(0) if self.finds else None
        if isinstance(reply, Exception):
            raise reply
        if reply is not None:
            await reply()

    async def fetch_offsets(
        self, membership: Membership, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """See ``Coordinator``."""
        await trio.lowlevel.checkpoint()
        return {
            name: OffsetAndMetadata(self.stable[name]) if name in self.stable else None
            for name in partitions
        }

    async def join(
        self, member_id: str, topics: Collection[str], reason: str, claim: Claim | None = None
    ) -> JoinResult:
        """Not asked here."""
        _not_asked()

    async def sync(
        self, membership: Membership, assignments: MemberAssignments
    ) -> tuple[TopicPartition, ...]:
        """Not asked here."""
        _not_asked()

    async def describe(self) -> DescribeResult:
        """Not asked here."""
        _not_asked()

    async def leave(self, member_id: str, group_instance_id: str | None, reason: str) -> None:
        """Not asked here."""
        _not_asked()


def _not_asked() -> NoReturn:
    raise AssertionError("nothing under test joins, syncs or leaves")


def backoff() -> Backoff:
    """Waits of 0.1 s and doubling, more or less."""
    return Backoff(0.1, 5.0, random.Random(1))


@attrs.define
class Bench:
    """A committer in its setting, and what it told."""

    coordinator: FakeCoordinator = attrs.field(factory=FakeCoordinator)
    positions: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    owned: Sequence[TopicPartition] = (P0, P1, P2)
    reports: list[tuple[Request, Reaction]] = attrs.field(factory=list)
    committed: list[dict[TopicPartition, int]] = attrs.field(factory=list)
    refused: list[tuple[dict[TopicPartition, int], str, bool]] = attrs.field(factory=list)
    ends: list[End] = attrs.field(factory=list)
    commit_timeout: float = 10.0
    session_timeout: float = 30.0
    floors: CommitBounds = attrs.field(init=False)
    lease: Lease = attrs.field(init=False)
    setting: CommitContext = attrs.field(init=False)
    committer: Committer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make what needs the rest."""
        self.floors = CommitBounds(MEMBERSHIP, Assignment(self.owned), self.positions)
        self.floors.lift(self.owned)  # nothing is read here
        self.lease = Lease(
            TrioClock(),
            session_timeout=self.session_timeout,
            rebalance_timeout=3600.0,
            joined_at=trio.current_time(),
            on_confirm=self.confirmed,
        )
        self.setting = CommitContext(
            membership=MEMBERSHIP,
            coordinator=self.coordinator,
            lease=self.lease,
            floors=self.floors,
            clock=TrioClock(),
            backoff=backoff,
            commit_timeout=self.commit_timeout,
            report=self.report,
            committed=lambda offsets: self.committed.append(dict(offsets)),
            refused=lambda offsets, why, stale: self.refused.append((dict(offsets), why, stale)),
            end=self.end,
            why=lambda: self.ends[0] if self.ends else None,
        )
        self.committer = Committer(self.setting)

    def confirmed(self) -> None:
        """The lease is longer again."""
        self.committer.wake()

    def report(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        """See ``Report``."""
        self.reports.append((request, reaction))

    def end(self, end: End) -> End:
        """The first end is the recorded one."""
        self.ends.append(end)
        return self.ends[0]

    async def commit(self, **offsets: int) -> None:
        """Check and commit, as a generation does: ``commit(p0=3)``."""
        named = {(P0, P1, P2)[int(name[1:])]: offset for name, offset in offsets.items()}
        await self.committer.commit(self.floors.check(named))

    async def commit_first(self) -> None:
        """The commit that others wait behind."""
        await self.commit(p2=1)


def at(**offsets: int) -> dict[TopicPartition, Any]:
    """Positions: ``at(p0=3)``."""
    return {
        (P0, P1, P2)[int(name[1:])]: OffsetAndMetadata(offset) for name, offset in offsets.items()
    }
