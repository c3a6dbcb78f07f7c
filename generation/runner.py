"""One generation from the answer of its Join to its last task: assign, sync, start, hand over.

INVARIANT: whatever goes wrong on the way to the hand-over ends the generation like anything else
does; nobody is given a generation that is over, or whose lease is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, final

import attrs
import trio

from kgroup.assignors import all_cooperative, call_on_assignment, resolve
from kgroup.client.backoff import Backoff
from kgroup.client.cluster import Cluster
from kgroup.client.error_policy import Request, decide, row_of
from kgroup.client.lease import Lease
from kgroup.client.subscription import Subscription
from kgroup.config import DRAIN_MARGIN, GroupConfig
from kgroup.errors import BrokerError, TransportError
from kgroup.event_emitter import EventEmitter
from kgroup.events import (
    Assigned,
    AssignmentRefused,
    CommitRefused,
    Committed,
    GenerationDraining,
    LoopBlocked,
    PartitionsNotRead,
)
from kgroup.generation.commit_bounds import CommitBounds
from kgroup.generation.commit_request import CommitContext
from kgroup.generation.commits import Committer
from kgroup.generation.generation import Generation
from kgroup.generation.leader_assignment import GroupTopics, LeaderAssignment
from kgroup.generation.lifecycle import Hooks, Lifecycle, State
from kgroup.generation.received_assignment import (
    MANY,
    Ask,
    InheritedAssignment,
    TakenOver,
    Verdict,
    take_over,
)
from kgroup.generation.record_stream import StreamContext
from kgroup.generation.start_offsets import PositionLookup, StartOffsets
from kgroup.interfaces import Compute, Coordinator, JoinResult, RecordSource
from kgroup.runtime import Runtime
from kgroup.types import (
    Assignment,
    Cause,
    Claim,
    End,
    MemberAssignments,
    Membership,
    TopicInfo,
    TopicPartition,
)
from kgroup.watchers.heartbeat import Heartbeats, Pace
from kgroup.watchers.partitions import partition_watcher
from kgroup.watchers.processing import processing_watcher
from kgroup.watchers.subscription import subscription_watcher

_UNREAD_AFTER: Final = 5.0
"""Seconds after which partitions that nobody reads are told of."""

T = TypeVar("T")


@final
@attrs.frozen
class ReadyGeneration:
    """A generation that is ready, and its life."""

    generation: Generation
    lifecycle: Lifecycle


@final
class GenerationRunner:
    """Runs one generation. After `run`, its attributes say how it went."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        runtime: Runtime,
        emitter: EventEmitter,
        source: RecordSource,
        coordinator: Coordinator,
        cluster: Cluster,
        subscription: Subscription,
        membership: Membership,
        answer: JoinResult,
        topics: frozenset[str],
        joined_at: float,
        previous: Assignment,
        claim: Claim | None,
        owner: object,
        new_backoff: Callable[[], Backoff],
        compute: Compute,
        beside: Compute,
        returning: bool,
        repeated: bool,
        asked: bool,
        read_before: Mapping[TopicPartition, int],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._emitter = emitter
        self._source = source
        self._coordinator = coordinator
        self._subscription = subscription
        self._membership = membership
        self._topics = topics
        self._previous = previous
        self._assignors = resolve(config.assignors)
        self.claim = claim
        self._new_backoff = new_backoff
        self._beside = beside
        self._committer: Committer | None = None
        self._confirmed = trio.Event()
        self._began = trio.current_time()
        self._lease = Lease(
            runtime.clock,
            session_timeout=config.session_timeout,
            rebalance_timeout=config.rebalance_timeout,
            joined_at=joined_at,
            on_confirm=self._lease_confirmed,
        )
        self._leader = LeaderAssignment(
            config=config,
            cluster=cluster,
            emitter=emitter,
            membership=membership,
            answer=answer,
            new_backoff=new_backoff,
            compute=compute,
            deadline=self._began + config.rebalance_timeout,
        )
        self._inherited = InheritedAssignment(
            leader=self._leader,
            coordinator=coordinator,
            topics=topics,
            returning=returning,
            repeated=repeated,
            asked=asked,
        )
        self._known: Mapping[str, TopicInfo] = {}
        self._read_before = read_before
        self._floors: CommitBounds | None = None
        self._starts = StartOffsets(
            PositionLookup(
                coordinator,
                cluster,
                membership,
                config.auto_offset_reset,
                backoff=new_backoff,
                report=emitter.failed,
            ),
            emitter,
            config.auto_offset_reset,
            commit_latest=config.commit_initial_position,
            seek=partial(source.seek, membership.epoch),
        )
        self.lifecycle = Lifecycle(
            owner,
            Hooks(
                drain_limit=self._drain_limit,
                draining=lambda end, limit: emitter.emit(
                    GenerationDraining, end=end, deadline=limit
                ),
                revoked=self._revoked,
                lost=self._lost,
                bound=self._bound,
            ),
        )
        self.assignment = Assignment((), previous)
        self.handed_over = False
        self.failure: tuple[Request, BrokerError | TransportError] | None = None
        self.fatal: Exception | None = None
        self.ask: Ask | None = None
        self.lived = 0.0

    @property
    def end(self) -> End:
        """Why the generation ended."""
        assert self.lifecycle.why is not None  # `run` returns only after the end
        return self.lifecycle.why

    @property
    def read(self) -> Mapping[TopicPartition, int]:
        """How far each partition was handed out; what counted before where none was assigned."""
        return self._read_before if self._floors is None else self._floors.read

    @property
    def unanswered(self) -> bool:
        """Whether the coordinator may yet receive a commit that was sent under this generation."""
        return self._committer is not None and self._committer.unanswered

    async def run(self, offer: Callable[[ReadyGeneration], None]) -> None:
        """Run until every task has ended."""
        try:
            await self.lifecycle.run(self._open, offer)
        finally:
            # Once more: an end may have come just before the source was told to begin.
            self._source.revoke(self._membership.epoch)
            self.lived = trio.current_time() - self._began

    # From the Join's answer to the hand-over.

    async def _open(self, offer: Callable[[ReadyGeneration], None]) -> End | None:
        self.lifecycle.start_service(self._keep_membership)
        try:
            generation = await self._prepare()
        except _PartitionsRevokedError as given_up:
            return End(Cause.REBALANCE, str(given_up))
        except _OutdatedAssignmentError as misfit:
            self.ask = misfit.verdict.ask
            return End(misfit.verdict.cause, str(misfit))
        except _StepError as step:
            self.failure = (step.request, step.error)
            if step.request is Request.DESCRIBE:
                self.ask = self._inherited.ask
            cause = decide(*self.failure).cause or Cause.MEMBERSHIP_LOST
            return End(cause, str(step.error), step.error)
        # What an assignor raises is the program's to see, from next().
        except Exception as error:  # noqa: BLE001
            self.fatal = error
            return End(Cause.TASK_RAISED, f"no assignment could be made: {error}", error)
        if self.lifecycle.state is State.RUNNING:
            self.handed_over = True
            self.lifecycle.start_service(self._watch_unread, generation)
            if self._config.max_processing_time is not None:
                self.lifecycle.start_service(
                    processing_watcher,
                    lambda: [stream.held_for for stream in generation.streams],
                    self._config.max_processing_time,
                )
            offer(ReadyGeneration(generation, self.lifecycle))
        return None

    async def _prepare(self) -> Generation:
        assignments: MemberAssignments = {}
        if self._membership.leader:
            assignments = await self._lead()
        assigned = await self._step(Request.SYNC, partial(self._sync, assignments))
        taken = await self._take_over(assigned)
        if taken.admitted.left_out:
            self._emitter.emit(AssignmentRefused, entries=taken.admitted.left_out)
        self.assignment = taken.assignment
        mine = taken.admitted.partitions
        self._assigned(taken.given_up)
        if self._inherited.in_question:
            await self._check_inherited({*self.assignment.topics(), *taken.admitted.foreign})
        positions = await self._step(
            Request.FETCH_OFFSETS, partial(self._starts.before_hand_over, mine)
        )
        generation, committer = self._make(positions)
        with self.lifecycle.working():
            await self._starts.commit_found(committer)
        # A member that stood still since its Join may read answers that were sent long before: it
        # owns what they say only once a heartbeat confirms it.
        await self._wait_for_lease()
        if self.lifecycle.state is State.RUNNING:
            self._emitter.emit(
                Assigned,
                assignment=self.assignment,
                positions=positions,
            )
        if self._subscription.has_patterns:
            self.lifecycle.start_service(
                subscription_watcher,
                self._subscription.resolve,
                self._topics,
                self._config.partition_watch_interval,
                self._emitter.failed,
            )
        return generation

    async def _take_over(self, assigned: Sequence[TopicPartition]) -> TakenOver:
        """Check and sort it, beside the event loop where it is long: another member wrote it."""
        before = self.claim
        owned: Collection[TopicPartition] = ()
        if before is not None and not before.lost and all_cooperative(self._assignors.values()):
            owned = before.owned
        work = partial(take_over, assigned, self._topics, self._previous, owned)
        if max(len(assigned), len(owned)) < MANY:
            return work()
        return await self._beside(work, f"kgroup-assigned {self._membership.group_id}")

    def _assigned(self, given_up: Collection[TopicPartition]) -> None:
        """Tell the assignor, and join again at once if it is to give something up.

        Nothing of what was owned is in work: every task ended before the Join. Not to have been
        assigned it is to have given it up, which the next Join says.

        Raises:
            _PartitionsRevokedError: the group waits for what this member owned.
        """
        membership = self._membership
        mine = self.assignment.partitions
        self.claim = Claim(mine, membership.generation_id)
        if (assignor := self._assignors.get(membership.assignor)) is not None:
            call_on_assignment(assignor, mine, membership.generation_id)
        if given_up:
            raise _PartitionsRevokedError(f"gave up {', '.join(map(str, given_up))}")

    async def _lead(self) -> MemberAssignments:
        """Compute the assignment, and watch what it is computed from."""
        wanted = self._leader.topics_of(self._topics)
        known = await self._step(Request.METADATA, partial(self._leader.look, wanted))
        self._known = known
        # What an inherited assignment was computed from is not known before it is looked at.
        if not self._inherited.in_question:
            self._watch(wanted, known)
        return await self._leader.assign(known)

    def _watch(self, topics: GroupTopics, baseline: Mapping[str, TopicInfo]) -> None:
        if self._config.watch_partition_changes:
            self.lifecycle.start_service(
                partition_watcher,
                partial(self._leader.look_once, topics),
                baseline,
                self._config.partition_watch_interval,
                self._emitter.failed,
            )

    async def _check_inherited(self, assigned: Collection[str]) -> None:
        """Compare an assignment that this member did not see being made with today's topics.

        Args:
            assigned: the topics of what this member was given, also those that it does not
                subscribe to.

        Raises:
            _OutdatedAssignmentError: the group needs a rebalance, for which this member has to ask.
        """
        check = partial(self._inherited.check, assigned, self._known)
        verdict = await self._step(Request.DESCRIBE, check)
        if verdict.faults:
            raise _OutdatedAssignmentError(verdict)
        if verdict.watched is not None and verdict.wanted is not None:
            self._watch(verdict.wanted, verdict.watched)

    async def _sync(self, assignments: MemberAssignments) -> Sequence[TopicPartition]:
        try:
            return await self._coordinator.sync(self._membership, assignments)
        except (BrokerError, TransportError) as error:
            reaction = decide(Request.SYNC, error)
            if reaction.cause is not Cause.REBALANCE:  # which is no failure
                self._emitter.failed(Request.SYNC, error, reaction)
            raise

    async def _step(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """One step on the way to the hand-over; its failure is for the recovery table."""
        try:
            return await send()
        except (BrokerError, TransportError) as error:
            raise _StepError(row_of(error, request), error) from error

    # The generation and what it is told.

    def _make(self, positions: Mapping[TopicPartition, int]) -> tuple[Generation, Committer]:
        config, membership = self._config, self._membership
        observer = self._runtime.observer
        floors = CommitBounds(membership, self.assignment, positions, self._read_before)
        self._floors = floors
        committer = Committer(
            CommitContext(
                membership=membership,
                coordinator=self._coordinator,
                lease=self._lease,
                floors=floors,
                clock=self._runtime.clock,
                backoff=self._new_backoff,
                commit_timeout=config.commit_timeout,
                report=self._emitter.failed,
                committed=lambda offsets: self._emitter.emit(Committed, offsets=offsets),
                refused=lambda offsets, reason, stale: self._emitter.emit(
                    CommitRefused, offsets=offsets, reason=reason, stale=stale
                ),
                end=self.lifecycle.end,
                why=lambda: self.lifecycle.why,
            )
        )
        self._committer = committer
        # A position that is yet to be found is sought before its partition is opened.
        self._source.assign(
            membership.epoch, {name: positions.get(name, 0) for name in self.assignment}
        )
        # Where nothing is committed, the topic may have been deleted and created again: records of
        # a kept partition that were fetched before are not the ones that are there now.
        for name in sorted(self._starts.without_commit.intersection(self.assignment)):
            self._source.seek(membership.epoch, name, positions.get(name, 0))
        generation = Generation(
            membership=membership,
            assignment=self.assignment,
            positions=positions,
            lifecycle=self.lifecycle,
            lease=self._lease,
            floors=floors,
            committer=committer,
            source=self._source,
            feed=StreamContext(
                epoch=membership.epoch,
                source=self._source,
                running=lambda: self.lifecycle.state is State.RUNNING,
                ending=self.lifecycle.ending,
                lease_valid=lambda: self._lease.left > 0,
                lease_confirmed=self._wait_for_lease,
                locate=partial(
                    self._starts.locate,
                    lifecycle=self.lifecycle,
                    floors=floors,
                    committer=committer,
                ),
                look=self._starts.look,
                emit=self._emitter.emit,
                serve=self.lifecycle.start_service,
                config=config,
                clock=self._runtime.clock,
                backoff=self._new_backoff,
                handed_out=None if observer is None else partial(observer.handed_out, membership),
                sought=None if observer is None else partial(observer.sought, membership),
            ),
        )
        return generation, committer

    async def _wait_for_lease(self) -> None:
        while self._lease.left <= 0 and self.lifecycle.state is State.RUNNING:
            await self._confirmed.wait()

    # What ends it.

    async def _keep_membership(self) -> End:
        config = self._config
        heartbeats = Heartbeats(
            self._coordinator,
            self._membership,
            self._lease,
            Pace(
                interval=config.heartbeat_interval,
                session_timeout=config.session_timeout,
                request_timeout=config.request_timeout,
                clock=self._runtime.clock,
                backoff=self._new_backoff,
            ),
            report=self._emitter.failed,
            blocked=lambda seconds: self._emitter.emit(LoopBlocked, seconds=seconds),
        )
        end = await heartbeats.until_rebalance()
        if end.can_commit:
            self.lifecycle.end(end)
            end = await heartbeats.until_lost()
        return end

    async def _watch_unread(self, generation: Generation) -> None:
        await trio.sleep(_UNREAD_AFTER)
        read = frozenset[TopicPartition]().union(
            *(stream.partitions for stream in generation.streams)
        )
        if unread := set(self.assignment) - read:
            self._emitter.emit(PartitionsNotRead, partitions=tuple(sorted(unread)))

    def _drain_limit(self) -> float:
        rebalance = self._config.rebalance_timeout - self._lease.unconfirmed_for - DRAIN_MARGIN
        return min(self._config.drain_timeout, rebalance)

    def _lease_confirmed(self) -> None:
        self._wake()

    def _revoked(self) -> None:
        self._source.revoke(self._membership.epoch)
        self._wake()

    def _lost(self, end: End) -> None:
        if self._committer is not None:
            self._committer.stop(end)

    def _bound(self, deadline: float) -> None:
        if self._committer is not None:
            self._committer.bound(deadline)

    def _wake(self) -> None:
        self._confirmed.set()
        self._confirmed = trio.Event()
        if self._committer is not None:
            self._committer.wake()


@final
class _PartitionsRevokedError(Exception):
    """A partition that the member owned was not assigned to it: the group waits for its Join."""


@final
class _OutdatedAssignmentError(Exception):
    """An assignment that was taken over does not fit the group's topics."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__("; ".join(verdict.faults))
        self.verdict = verdict


@final
class _StepError(Exception):
    """A step before the hand-over failed."""

    def __init__(self, request: Request, error: BrokerError | TransportError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error
