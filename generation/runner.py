"""One generation of one member, from the answered JoinGroup to the end of its last task.

The steps of a rebalance within a generation, in their order. Most steps have a file of their own,
which is named below; ``lifecycle`` says how a generation ends and drains. The steps between two
generations are in ``kgroup.member``.

1. `run` opens the generation's tasks. From here on, heartbeats are sent until the last task has
   ended, because every step below may take longer than the session.
2. The leader computes the assignment (``leader_assignment``); SyncGroup brings each member its own.
3. The assignment is checked (``received_assignment``). If a partition that the member owned is
   missing from it, another member waits for that partition: the generation ends, and the next
   JoinGroup gives it up.
4. Start offsets are loaded from the program's store (``own_starts``) or fetched
   (``start_finder``), and the record source is given them.
5. Once a valid lease confirms the membership, the program is handed the `Generation`.
6. The first of these ends it: a task of the program, a heartbeat that reports a rebalance or a
   loss, a watcher, a refused commit, or the group that closes.
7. The drain: tasks finish, and commit under this generation's id. Then nothing is left, and
   `Member` joins again.

INVARIANT: a failure before the hand-over ends the generation in the same way as a later one, and
the program is never handed a generation that has ended or whose lease is over.

Source: kafka-go's ``ConsumerGroup.nextGeneration``; Kafka's ``AbstractCoordinator``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, final

import trio

from kgroup.assignors import all_cooperative, call_on_assignment, resolve
from kgroup.client.error_policy import Request, failed_request, reaction_to
from kgroup.client.retry import until_answered
from kgroup.errors import BrokerError, RequestTimeoutError, TransportError, in_one_line, short_list
from kgroup.events import (
    Assigned,
    AssignmentRefused,
    CommitsMissing,
    PartitionsLeaderless,
    PartitionsNotRead,
)
from kgroup.functions import is_program_error
from kgroup.generation.commits import Committer
from kgroup.generation.generation import Generation
from kgroup.generation.late_commits import PendingCommits
from kgroup.generation.leader_assignment import GroupTopics, LateTopicsError, LeaderAssignment
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import CompletedJoin, MemberContext, PreviousGenerations
from kgroup.generation.missing_commits import never_committed, report_missing_commits
from kgroup.generation.missing_topics import report_missing_topics, report_unmatched_patterns
from kgroup.generation.pauses import Pauses
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.positions import Positions
from kgroup.generation.read_epochs import ReadEpochs
from kgroup.generation.received_assignment import (
    AcceptedAssignment,
    InheritedAssignment,
    RebalanceRequest,
    Verdict,
    accept,
)
from kgroup.generation.start_finder import StartFinder
from kgroup.generation.states import State
from kgroup.generation.streams import GenerationParts
from kgroup.retry_policy import OpenRecords
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
from kgroup.watchers.leaderless import LeaderlessPartitions
from kgroup.watchers.partitions import partition_watcher
from kgroup.watchers.processing import processing_watcher
from kgroup.watchers.subscription import subscription_watcher

_SHORTEST_PATTERN_WATCH: Final = 5.0
"""The shortest interval at which patterns are resolved: every member that has some requests the
metadata of all topics of the cluster for it."""
_UNREAD_AFTER: Final = 5.0
"""Seconds after which partitions that no stream reads are reported."""

T = TypeVar("T")


@final
class GenerationRunner:
    """Runs one generation. After `run`, its attributes say how it went.

    Args:
        member: the parts of the member that outlive this generation.
        membership: the member's, in this generation.
        join: the answered JoinGroup.
        previous: what came before this generation.

    Attributes:
        lifecycle: its state and its tasks.
        assignment: its partitions, once they are known.
        claim: what the next JoinGroup reports as owned.
        open_records: the records that have failed, and are to be tried again.
        generation: what the program was offered, or None.
        failure: the request that failed before the hand-over, and its error.
        fatal: what a function of the program raised; it ends the group.
        has_others: whether the group may have other members in this generation.
        rebalance_request: how the member has to request a rebalance, if the assignment did not
            fit.
        lived: seconds from the JoinGroup's answer to the end of the last task.
    """

    def __init__(
        self,
        member: MemberContext,
        membership: Membership,
        join: CompletedJoin,
        previous: PreviousGenerations,
    ) -> None:
        self._member = member
        self._membership = membership
        self._join = join
        self._previous = previous
        self._assignors = resolve(member.config.assignors)
        self._began = trio.current_time()
        deadline = self._began + member.config.rebalance_timeout
        self._leader = LeaderAssignment(
            member=member, membership=membership, answer=join.answer, deadline=deadline
        )
        self._inherited = InheritedAssignment(leader=self._leader, join=join, previous=previous)
        # Only the leader's JoinGroup response lists the members.
        self.has_others = not membership.leader or len(join.answer.members) > 1
        self.lifecycle = Lifecycle(member, membership, join.sent_at, has_others=self.has_others)
        self._positions = Positions(membership, previous.read, previous.read_epochs)
        self._committer = Committer(member, self.lifecycle, self._positions, previous.late_commits)
        self._starts = StartFinder(member, self.lifecycle, self._positions, self._committer)
        self.assignment = Assignment((), previous.assignment)
        self.claim = previous.claim
        self.open_records = previous.open_records
        self.generation: Generation | None = None
        self.failure: tuple[Request, BrokerError | TransportError] | None = None
        self.fatal: BaseException | None = None
        self.rebalance_request: RebalanceRequest | None = None
        self.lived = 0.0
        self._synced = trio.Event()

    @property
    def end(self) -> End:
        """Why the generation ended."""
        assert self.lifecycle.recorded_end is not None  # `run` returns only after the end
        return self.lifecycle.recorded_end

    @property
    def read(self) -> Mapping[TopicPartition, int]:
        """For each partition the offset after the last record that was handed out.

        Those of the generation before, where this one ended before it had partitions.
        """
        return self._positions.upper_bounds

    @property
    def read_epochs(self) -> ReadEpochs:
        """The leader epochs of what was handed out.

        Those of the generation before, where this one ended before it had partitions.
        """
        return self._positions.read_epochs

    @property
    def handed_over(self) -> bool:
        """Whether the program was offered the generation."""
        return self.generation is not None

    @property
    def status(self) -> dict[str, Any]:
        """The generation's part of a `GroupStatus`; any thread may read it."""
        lease, generation = self.lifecycle.lease, self.generation
        owned = None if self.lifecycle.state is State.ENDED else generation
        return {
            "generation_id": self._membership.generation_id,
            "epoch": self._membership.epoch,
            "lease": max(0.0, lease.left),
            "heartbeat_age": max(0.0, lease.unconfirmed_for),
            "batch_age": self.batch_age,
            "lag": {} if owned is None else owned.lag(),
        }

    @property
    def batch_age(self) -> float:
        """The longest time for which a handler has had its batch; any thread may read it."""
        streams = () if self.generation is None else self.generation.streams
        return max((one.held_for for one in streams), default=0.0)

    @property
    def unanswered(self) -> bool:
        """Whether the coordinator may yet receive a commit that was sent under this generation."""
        return self._committer.unanswered

    @property
    def late_commits(self) -> Mapping[TopicPartition, PendingCommits]:
        """The commits without an answer that may have overwritten later ones."""
        return self._committer.late.left_for_next

    async def run(self, offer: Callable[[GenerationRunner], None]) -> None:
        """Run until every task has ended.

        Args:
            offer: is called when `generation` is ready to be taken.

        Cancellation: all tasks are cancelled without a drain.
        """
        lifecycle = self.lifecycle
        try:
            async with lifecycle.open():
                lifecycle.start_service(self._begin, offer)
                await lifecycle.ending.wait()
                if lifecycle.state is State.DRAINING:
                    await lifecycle.drain(self._committer.check_late_commits)
            if self.end.cause is Cause.CLOSED and self._commits_offsets:
                self._report_missing_commits(never_committed(self._positions))
        finally:
            # Once more: an end may have come just before the source was given its partitions.
            self._member.source.revoke(self._membership.epoch)
            self.lived = trio.current_time() - self._began

    # From the JoinGroup's answer to the hand-over. A service, so that an end cancels it.

    async def _begin(self, offer: Callable[[GenerationRunner], None]) -> End | None:
        self.lifecycle.start_service(self._keep_membership)
        try:
            await self._prepare()
        except _PartitionsRevokedError as revoked:
            return End(Cause.REBALANCE, str(revoked))
        except _OutdatedAssignmentError as outdated:
            self.rebalance_request = outdated.verdict.rebalance_request
            return End(outdated.verdict.cause, str(outdated))
        except _StepError as step:
            self.failure = (step.request, step.error)
            if step.request is Request.DESCRIBE:
                self.rebalance_request = self._inherited.rebalance_request
            cause = reaction_to(*self.failure).cause or Cause.MEMBERSHIP_LOST
            return End(cause, str(step.error), step.error)
        # What a function of the program raises is for the program, which gets it from next().
        except BaseException as error:
            if not is_program_error(error):
                raise
            self.fatal = error
            text = f"the generation could not begin: {in_one_line(error)}"
            return End(Cause.TASK_RAISED, text, error)
        if self.lifecycle.state is State.RUNNING:
            self._hand_over(offer)
        return None

    async def _prepare(self) -> None:
        """The steps to a generation that can be handed over.

        Raises:
            _PartitionsRevokedError: the group waits for what this member owned.
            _OutdatedAssignmentError: the group needs a rebalance, which this member has to request.
            _StepError: a request failed; the error policy says what follows.
            Exception: what an assignor or the function of ``GroupConfig.starts`` raised.
        """
        member, join = self._member, self._join
        known: Mapping[str, TopicInfo] = {}
        missing: Collection[str] = ()
        assignments: MemberAssignments = {}
        if self._membership.leader:
            topics = await self._leader.topics_of(join.topics, join.answer.members)
            found = await self._step(Request.METADATA, partial(self._leader.fetch_topics, topics))
            known, missing = found.known, found.missing
            # The topics from which an inherited assignment was computed are not known yet.
            if not self._inherited.in_question:
                self._watch_partitions(topics, known)
            assignments = await self._assign(known)
        assigned = await self._step(Request.SYNC, partial(self._sync, assignments))
        accepted = await self._accept(assigned)
        if accepted.received.left_out:
            member.emitter.emit(AssignmentRefused, entries=accepted.received.left_out)
        self.assignment = accepted.assignment
        self._report_assignment(accepted.given_up)
        if not self._membership.leader:
            await self._step(Request.METADATA, self._check_permissions)
        if self._inherited.in_question:
            await self._check_inherited(
                {*self.assignment.topics(), *accepted.received.foreign}, known
            )
        own = await self._starts.load_own(self.assignment.partitions)
        located = await self._step(
            Request.FETCH_OFFSETS, partial(self._starts.begin, self.assignment, own)
        )
        self._report_own(own)
        with self.lifecycle.working():
            await self._starts.commit_initial(located)
        # A member that was suspended after its JoinGroup may read answers that were sent long ago:
        # it owns what they say only once a heartbeat confirms it.
        await self.lifecycle.wait_to_read()
        if self.lifecycle.state is State.RUNNING:
            member.emitter.emit(
                Assigned,
                assignment=self.assignment,
                start_offsets=self._positions.start_offsets,
                start_origins={
                    **dict.fromkeys(own, "starts"),
                    **{name: start.rule.value for name, start in located.items()},
                },
            )
        if missing:
            self.lifecycle.start_service(report_missing_topics, member, missing)
        if member.subscription.has_patterns:
            self.lifecycle.start_service(report_unmatched_patterns, member, join.topics)
            self.lifecycle.start_service(
                self._end_on_beat,
                subscription_watcher,
                partial(member.subscription.resolve, member.cluster),
                join.topics,
                max(member.config.partition_watch_interval, _SHORTEST_PATTERN_WATCH),
                member.emitter.failed,
            )

    async def _check_permissions(self) -> None:
        """Ask once for each topic of which this follower has no partition.

        Only the leader requests the group's topics. If a follower may not read one that it
        subscribes to, or has misspelt its name, it would get no error until it leads the group.

        Raises:
            BrokerError: this member may not read a topic of its own.

        Source: Kafka's ``Metadata``, which every member of the Java client requests for its topics.
        """
        member = self._member
        described = member.subscription.described
        names = self._join.topics - set(self.assignment.topics()) - described
        if not names:
            return
        await until_answered(
            Request.METADATA,
            partial(member.cluster.metadata, names),
            find=None,
            backoff=member.new_backoff(),
            report=member.emitter.failed,
        )
        described |= names

    async def _assign(self, known: Mapping[str, TopicInfo]) -> MemberAssignments:
        try:
            return await self._leader.assign(known)
        except LateTopicsError as late:
            error = RequestTimeoutError(str(late))
            self._member.emitter.failed(Request.SYNC, error, reaction_to(Request.SYNC, error))
            raise _StepError(Request.SYNC, error) from late

    async def _sync(self, assignments: MemberAssignments) -> Sequence[TopicPartition]:
        try:
            assigned = await self._member.coordinator.sync(self._membership, assignments)
        except (BrokerError, TransportError) as error:
            reaction = reaction_to(Request.SYNC, error)
            if reaction.cause is not Cause.REBALANCE:  # which is no failure
                self._member.emitter.failed(Request.SYNC, error, reaction)
            raise
        self._synced.set()
        return assigned

    async def _accept(self, assigned: Sequence[TopicPartition]) -> AcceptedAssignment:
        """Check and sort what the leader wrote; in a thread where it is long."""
        before = self.claim
        owned: Collection[TopicPartition] = ()
        if before is not None and not before.lost and all_cooperative(self._assignors.values()):
            owned = before.owned
        last = self._previous
        work = partial(accept, assigned, self._join.topics, last.assignment, last.retained, owned)
        return await self._member.call_in_thread_if_long(
            work, max(len(assigned), len(owned)), "kgroup-assigned"
        )

    def _report_assignment(self, given_up: Collection[TopicPartition]) -> None:
        """Report it to the assignor, and join again at once if a partition has to be given up.

        No task works on what was owned before: every task ended before the JoinGroup was sent. So
        a partition that is missing from the new assignment counts as given up, and the next
        JoinGroup says so.

        Raises:
            _PartitionsRevokedError: the group waits for what this member owned.
        """
        membership = self._membership
        mine = self.assignment.partitions
        self.claim = Claim(mine, membership.generation_id)
        if (assignor := self._assignors.get(membership.assignor)) is not None:
            call_on_assignment(assignor, mine, membership.generation_id)
        if given_up:
            raise _PartitionsRevokedError(f"gave up {short_list(given_up)}")

    async def _check_inherited(
        self, assigned: Collection[str], known: Mapping[str, TopicInfo]
    ) -> None:
        """Compare an assignment that this member did not see being made with today's topics.

        Args:
            assigned: the topics of what this member was given, also those that it does not
                subscribe to.
            known: for a leader, the topics of the whole group that exist.

        Raises:
            _OutdatedAssignmentError: the group needs a rebalance, which this member has to request.
        """
        check = partial(self._inherited.check, assigned, known)
        verdict = await self._step(Request.DESCRIBE, check)
        if verdict.faults:
            raise _OutdatedAssignmentError(verdict)
        if verdict.watched is not None and verdict.topics is not None:
            self._watch_partitions(verdict.topics, verdict.watched)

    def _report_own(self, own: Mapping[TopicPartition, int]) -> None:
        """A start that the program's store gave is to an observer what a seek is."""
        if (observer := self._member.runtime.observer) is not None:
            for name, offset in own.items():
                observer.sought(self._membership, name, offset)

    async def _step(self, request: Request, send: Callable[[], Awaitable[T]]) -> T:
        """One step before the hand-over; the error policy decides what follows its failure."""
        try:
            return await send()
        except (BrokerError, TransportError) as error:
            raise _StepError(failed_request(error, request), error) from error

    def _hand_over(self, offer: Callable[[GenerationRunner], None]) -> None:
        last = self.open_records
        kept = None if last is None else last.of_kept(self.assignment.kept)
        parts = GenerationParts(
            member=self._member,
            lifecycle=self.lifecycle,
            positions=self._positions,
            starts=self._starts,
            searches=PositionSearches(
                self._member, self.lifecycle, self._positions, self._starts, self._committer
            ),
            committer=self._committer,
            pauses=Pauses(self._member.source, self._membership.epoch),
            open_records=OpenRecords(self._member.clock.now, kept),
        )
        self.open_records = parts.open_records
        self.generation = generation = Generation(parts, self.assignment)
        self.lifecycle.start_service(self._report_unread, generation)
        self._committer.watch_late_commits()
        if self._commits_offsets:
            self.lifecycle.start_service(
                report_missing_commits, self._positions, self._report_missing_commits
            )
        limit = self._member.config.max_processing_time
        if limit is not None:
            self.lifecycle.start_service(
                processing_watcher,
                lambda: [stream.held_for for stream in generation.streams],
                limit,
            )
        offer(self)

    # Services that run beside the program's tasks; most of them can end the generation.

    async def _keep_membership(self) -> End:
        """Send heartbeats; a rebalance begins the drain, through which heartbeats continue."""
        member, config = self._member, self._member.config
        heartbeats = Heartbeats(
            member.coordinator,
            self._membership,
            self.lifecycle.lease,
            Pace(
                interval=config.heartbeat_interval,
                beat=member.beat,
                session_timeout=config.session_timeout,
                request_timeout=config.request_timeout,
                clock=member.clock,
                backoff=member.new_backoff,
            ),
            member.emitter,
            self._synced,
        )
        end = await heartbeats.until_rebalance()
        if end.can_commit:
            self.lifecycle.end(end)
            end = await heartbeats.until_lost()
        return end

    async def _end_on_beat(self, watcher: Callable[..., Awaitable[End]], *args: object) -> End:
        """Let a watcher's end, after which this member joins again, come just before the beat.

        The other members learn from their heartbeats that they have to join, too.
        """
        end = await watcher(*args)
        await self.lifecycle.wait_for_beat()
        return end

    def _watch_partitions(self, topics: GroupTopics, baseline: Mapping[str, TopicInfo]) -> None:
        config = self._member.config
        if config.watch_partition_changes:
            leaderless = LeaderlessPartitions(
                lambda names: self._member.emitter.emit(PartitionsLeaderless, partitions=names)
            )
            self.lifecycle.start_service(leaderless.watch)
            self.lifecycle.start_service(
                self._end_on_beat,
                partition_watcher,
                self._leader.watch_topics(topics),
                baseline,
                config.partition_watch_interval,
                self._member.emitter.failed,
                leaderless.found,
            )

    @property
    def _commits_offsets(self) -> bool:
        """Whether the group's offsets are those from which the program starts."""
        return self.handed_over and self._member.config.starts is None

    def _report_missing_commits(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._member.emitter.emit(CommitsMissing, partitions=tuple(partitions))

    async def _report_unread(self, generation: Generation) -> None:
        await trio.sleep(_UNREAD_AFTER)
        if self.lifecycle.state is not State.RUNNING:
            return  # streams close while the generation drains
        read = frozenset[TopicPartition]().union(
            *(stream.partitions for stream in generation.streams)
        )
        if unread := set(self.assignment) - read:
            self._member.emitter.emit(PartitionsNotRead, partitions=tuple(sorted(unread)))


@final
class _PartitionsRevokedError(Exception):
    """The member lost a partition: the group waits until its JoinGroup gives that partition up."""


@final
class _OutdatedAssignmentError(Exception):
    """An inherited assignment does not fit the group's topics."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(short_list(verdict.faults, between="; "))
        self.verdict = verdict


@final
class _StepError(Exception):
    """A step before the hand-over failed."""

    def __init__(self, request: Request, error: BrokerError | TransportError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error
