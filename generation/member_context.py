"""What a generation receives from its member: the parts that outlive it, and what came before it.

`MemberContext` is made once for a member and given to each of its generations.
`PreviousGenerations` is a value that changes with each generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar, final

import attrs
import trio

from kgroup.client.backoff import Backoff, RateLimit
from kgroup.client.beat import Beat
from kgroup.client.cluster import Cluster
from kgroup.client.subscription import Subscription
from kgroup.config import GroupConfig
from kgroup.event_emitter import EventEmitter
from kgroup.generation.late_commits import PendingCommits
from kgroup.generation.read_epochs import ReadEpochs
from kgroup.interfaces import Clock, Compute, Coordinator, JoinResult, RecordSource
from kgroup.retry_policy import OpenRecords
from kgroup.runtime import Runtime
from kgroup.types import Assignment, Claim, TopicPartition

T = TypeVar("T")

MANY: Final = 5_000
"""From so many items on, a thread looks at them, and not the event loop."""
_WITHOUT_GAP: Final = (0, 1)
"""How far the id of a member's generation is from that of its last one, if it has missed none: it
is the same where a follower joins a stable group again."""


@final
@attrs.frozen(kw_only=True, eq=False)
class MemberContext:
    """The parts of a member that outlive its generations, and that each generation uses.

    Attributes:
        config: the group's settings.
        runtime: the network, the clock and the random numbers.
        emitter: makes the member's events.
        source: fetches records.
        coordinator: the group's coordinator.
        cluster: the brokers and the leaders of partitions.
        beat: when the group's members send their heartbeats.
        search_limit: limits the searches for positions after the hand-overs.
        subscription: the topics to which the member subscribes; the program may replace them.
        group: the `ConsumerGroup`. Tasks of its generations are marked with it, so that a call to
            `next()` from one of them can be refused.
        assignor_thread: where the assignor of the program is called.
        checking_thread: where long assignments and many names are checked, compared and sorted. It
            is a thread of its own because an assignor that was given up may occupy the other one
            for ever.
        starts_thread: where the function of ``GroupConfig.starts`` is called.
    """

    config: GroupConfig
    runtime: Runtime
    emitter: EventEmitter
    source: RecordSource
    coordinator: Coordinator
    cluster: Cluster
    beat: Beat
    search_limit: RateLimit
    subscription: Subscription
    group: object
    assignor_thread: Compute
    checking_thread: Compute
    starts_thread: Compute

    async def call_in_thread_if_long(self, work: Callable[[], T], items: int, thread: str) -> T:
        """Call a function; if it looks at `MANY` items or more, in `checking_thread`.

        Args:
            work: the function.
            items: how many.
            thread: the name of the thread, without the group.

        Cancellation: a thread that has begun continues.
        """
        if items < MANY:
            await trio.lowlevel.checkpoint()
            return work()
        return await self.checking_thread(work, f"{thread} {self.config.group_id}")

    @property
    def clock(self) -> Clock:
        """The clock that counts suspended time."""
        return self.runtime.clock

    def new_backoff(self) -> Backoff:
        """Waits between attempts, from the shortest on."""
        config = self.config
        return Backoff(config.rejoin_backoff, config.rejoin_backoff_max, self.runtime.random)


@final
@attrs.frozen(kw_only=True)
class CompletedJoin:
    """A JoinGroup that was answered without an error.

    Attributes:
        answer: the answer.
        topics: the topics that the member joined with.
        sent_at: when the request was sent, by the runtime's clock. The lease begins then.
        returning: whether this is a static member whose JoinGroup carried no member id, so that
            the coordinator may have put it in the place of its earlier process.
    """

    answer: JoinResult
    topics: frozenset[str]
    sent_at: float
    returning: bool = False


@final
@attrs.frozen(kw_only=True)
class PreviousGenerations:
    """What a member remembers of its generations when the next one begins.

    Attributes:
        assignment: the partitions of the last generation that the program was given.
        retained: those of them that this member has owned in every generation since then, without a
            loss: no other member can have read them.
        claim: what the member was assigned last, which its JoinGroup reports to assignors.
        read: for each partition the offset after the last record that was handed out, where the
            last generation ended without a loss.
        read_epochs: the leader epochs of what the last generation has handed out.
        open_records: the records that have failed, and are to be tried again.
        ids: the member id and the generation id of the last generation; None before the first.
        unanswered: whether the coordinator may yet receive a commit of the last generation.
        late_commits: the commits without an answer that may have overwritten later ones.
        rebalance_requested: whether the member has just requested a rebalance because an assignment
            did not fit.
    """

    assignment: Assignment = attrs.field(factory=lambda: Assignment(()))
    retained: frozenset[TopicPartition] = frozenset()
    claim: Claim | None = None
    read: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    read_epochs: ReadEpochs = attrs.field(factory=ReadEpochs)
    open_records: OpenRecords | None = None
    ids: tuple[str, int] | None = None
    unanswered: bool = False
    late_commits: Mapping[TopicPartition, PendingCommits] = attrs.field(factory=dict)
    rebalance_requested: bool = False

    def lost(self) -> PreviousGenerations:
        """The same, after others may have been given the partitions."""
        claim = None if self.claim is None else attrs.evolve(self.claim, lost=True)
        return attrs.evolve(self, retained=frozenset(), claim=claim, late_commits={})

    def followed_by(self, answer: JoinResult) -> PreviousGenerations:
        """The same, for the generation of this answer to a JoinGroup.

        A coordinator counts a member in once its JoinGroup has arrived. If the answer was lost, the
        others may have had a generation of which the member knows nothing, and in which they owned
        its partitions. Each generation of a group raises the id by one, so another step shows that.
        What the JoinGroup has claimed stays claimed.

        Source: Kafka's ``ClassicGroup.initNextGeneration``.
        """
        if self.ids is None or answer.generation_id - self.ids[1] in _WITHOUT_GAP:
            return self
        return attrs.evolve(self, retained=frozenset(), read={}, late_commits={})

    def repeated_by(self, answer: JoinResult) -> bool:
        """Whether a JoinGroup was answered with the very generation that ended last."""
        return self.ids == (answer.member_id, answer.generation_id)
