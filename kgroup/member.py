"""One member's way through the group: join, be assigned, own a generation, join again.

`ConsumerGroup` decides when each step happens. This module does the step, and reacts to its failure
as the error policy says. `Member` keeps what outlives a generation: the member id, the epoch, the
record source, and what the next generation needs to know of the last one.

INVARIANTS: one generation at a time; no JoinGroup is sent before every task of the last generation
has ended; heartbeats begin when JoinGroup is answered.

Source: Kafka's ``AbstractCoordinator`` and ``ConsumerCoordinator``; kafka-go's ``ConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NoReturn, final

import attrs
import trio

from kgroup.client.backoff import RateLimit
from kgroup.client.beat import Beat
from kgroup.client.cluster import Cluster
from kgroup.client.coordinator import CoordinatorClient
from kgroup.client.error_policy import (
    Action,
    MemberId,
    Reaction,
    Request,
    failed_request,
    reaction_to,
)
from kgroup.client.retry import find_coordinator, must_wait, until_answered
from kgroup.client.startup_limit import StartupLimit
from kgroup.client.subscription import Subscription
from kgroup.config import LONGEST_HEARTBEAT_PART, GroupConfig
from kgroup.errors import (
    BrokerError,
    MemberIdRequiredError,
    TransportError,
    without_text,
)
from kgroup.event_emitter import EventEmitter
from kgroup.events import (
    FIRST_JOIN,
    NEW_ID_JOIN,
    BackingOff,
    CoordinatorFound,
    GenerationEnded,
    Joined,
    Joining,
    Left,
    RequestFailed,
)
from kgroup.generation.member_context import CompletedJoin, MemberContext, PreviousGenerations
from kgroup.generation.received_assignment import RebalanceRequest
from kgroup.generation.runner import GenerationRunner
from kgroup.interfaces import RecordSource
from kgroup.runtime import Runtime
from kgroup.types import Cause, End, Membership
from kgroup.watchers.brokers import broker_watcher

JOINS_AT_ONCE: Final = 20
"""This many JoinGroups in a row are sent without extra waits, because rebalances come in bursts."""
JOINS_PER_SECOND: Final = 2.0
"""The most JoinGroups a second after the first ``JOINS_AT_ONCE`` in a row."""
SEARCHES_AT_ONCE: Final = 10
"""This many searches for positions in a row are made without extra waits, after hand-overs."""
SEARCHES_PER_SECOND: Final = 1.0
"""The most such searches a second after the first ``SEARCHES_AT_ONCE`` in a row."""
JOINED_BY: Final = 10.0
"""Seconds after a broker's first answer within which a member has usually joined. A leader has
requested metadata by then, which brings the brokers too."""
_WITH_ID: Final = "the coordinator has given the member an id"
_LOOP: Final = (
    "a generation ends when one of its tasks returns: did the task mean to loop over"
    " generation.records()?"
)


@final
class Member:
    """A member of the group, from before it has an id until after it has left."""

    def __init__(
        self,
        config: GroupConfig,
        runtime: Runtime,
        emitter: EventEmitter,
        source: RecordSource,
        subscription: Subscription,
        group: object,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._emitter = emitter
        self._cluster = Cluster(config, runtime.open_stream, runtime.random, runtime.compute())
        # Each has a thread of its own: an assignor that was given up may still run, and meanwhile
        # responses of brokers and of the coordinator are read, and assignments are checked.
        assignor_thread, checking_thread = runtime.compute(), runtime.compute()
        self._coordinator = CoordinatorClient(self._cluster, config, runtime.compute())
        self._subscription = subscription
        # A source need not have it; see `RecordSource`.
        self._prepare_source: Callable[[Collection[str]], object] | None = getattr(
            source, "prepare", None
        )
        if (use_addresses := getattr(source, "use_addresses", None)) is not None:
            use_addresses(lambda: self._cluster.known_addresses)
        if (use_topic_ids := getattr(source, "use_topic_ids", None)) is not None:
            use_topic_ids(lambda: self._cluster.topic_ids)
        self._context = MemberContext(
            config=config,
            runtime=runtime,
            emitter=emitter,
            source=source,
            coordinator=self._coordinator,
            cluster=self._cluster,
            beat=Beat(
                runtime.wall_clock or runtime.clock,
                config.group_id,
                longest=config.rebalance_timeout * LONGEST_HEARTBEAT_PART,
            ),
            search_limit=RateLimit(SEARCHES_AT_ONCE, SEARCHES_PER_SECOND),
            subscription=subscription,
            group=group,
            assignor_thread=assignor_thread,
            checking_thread=checking_thread,
            starts_thread=runtime.compute(),
        )
        self._member_id = ""
        self._topics = frozenset[str]()
        """The topics of the last JoinGroup."""
        self._epoch = 0
        self._previous = PreviousGenerations()
        self._failures = 0
        self._waits = self._context.new_backoff()
        self._short_lives = self._context.new_backoff()
        self._joins = RateLimit(JOINS_AT_ONCE, JOINS_PER_SECOND)
        self._reason = FIRST_JOIN
        self._startup: StartupLimit | None = None
        self._returned = 0
        """How many short generations in a row ended because a task returned."""
        self._doubtful = False
        """Whether an assignment did not fit and the leave that requests another one failed."""

    async def join(self) -> GenerationRunner:
        """Join the group, however often JoinGroup has to be sent; a generation begins with that.

        Raises:
            FatalGroupError: a refusal that another attempt cannot change.
            KgroupError: another failure that the error policy does not retry.

        Cancellation: the connection may be broken, and the coordinator may count the member in.
        """
        join = await self._join()
        if self._previous.unanswered and self._previous.repeated_by(join.answer):
            await self._fence_unanswered_commits()
            join = await self._join()
        answer = join.answer
        self._previous = self._previous.followed_by(answer)
        self._epoch += 1
        membership = Membership(
            group_id=self._config.group_id,
            member_id=answer.member_id,
            group_instance_id=self._config.group_instance_id,
            generation_id=answer.generation_id,
            epoch=self._epoch,
            assignor=answer.assignor,
            leader=answer.leader,
        )
        self._emitter.bind(membership)
        self._emitter.emit(
            Joined,
            leader=answer.leader,
            assignor=answer.assignor,
            members=len(answer.members),
        )
        return GenerationRunner(self._context, membership, join, self._previous)

    async def run(
        self, runner: GenerationRunner, offer: Callable[[GenerationRunner], None]
    ) -> None:
        """Run the generation that `join` began, until every task of it has ended.

        Args:
            runner: what `join` returned.
            offer: is called when the generation is ready to be taken.

        Cancellation: tasks of the generation are cancelled without a drain.
        """
        try:
            await runner.run(offer)
        finally:
            self._remember(runner)

    async def recover(self, last: GenerationRunner) -> None:
        """Do what the end of a generation requires before the next JoinGroup.

        Raises:
            FatalGroupError: the end was a refusal that another attempt cannot change.
        """
        end = last.end
        self._reason = _reason_of(end)
        # A generation that is lost as soon as it begins is no success: the next attempt backs off.
        if last.handed_over and last.lived > self._config.rejoin_backoff_max:
            self._failures = 0
            self._waits.reset()
        requested = last.rebalance_request is not None
        if last.rebalance_request is RebalanceRequest.BY_LEAVING:
            requested = await self._leave_to_rebalance()
        self._previous = attrs.evolve(self._previous, rebalance_requested=requested)
        self._doubtful = last.rebalance_request is not None and not requested
        if last.failure is not None:
            await self._react_to(*last.failure)
        elif isinstance(end.error, BrokerError):
            await self._react_to(failed_request(end.error, Request.HEARTBEAT), end.error)
        elif isinstance(end.error, TransportError):
            await self._react_to(Request.JOIN, end.error)
        elif end.cause is Cause.COORDINATOR_LOST:
            await self._find()
        elif end.cause is Cause.TASK_RETURNED:
            await self._slow_down(last, end)
        else:
            self._short_lives.reset()

    async def leave(self, reason: str) -> None:
        """Send LeaveGroup, unless the member is static or has no id.

        It waits for an answer as long as the scope around it allows; a refusal raises nothing.

        Cancellation: the coordinator may not know; the member id is kept, so that LeaveGroup can be
        sent again.
        """
        if not self._member_id or self._config.group_instance_id is not None:
            if self._member_id:
                self._emitter.emit(Left, reason=f"{reason} (a static member stays)", notified=False)
            return
        member_id = self._member_id
        notified = False
        try:
            await until_answered(
                Request.LEAVE,
                partial(self._coordinator.leave, member_id, None, reason),
                find=self._coordinator.find,
                backoff=self._context.new_backoff(),
                report=self._emitter.failed,
            )
            notified = True
        except (BrokerError, TransportError) as error:
            # The session expires by itself; the failure was reported as one to ignore.
            reason = f"{reason} ({error})"
        finally:
            self._emitter.emit(Left, reason=reason, notified=notified)
        self._member_id = ""

    async def unsubscribe(self, reason: str) -> None:
        """Leave the group, also as a static member, until `join` is called again.

        It takes at most ``close_timeout``. If LeaveGroup is not answered until then, the session
        expires by itself, or the next JoinGroup continues the membership.

        Cancellation: the coordinator may not know that the member has left.
        """
        if not self._member_id:
            await trio.lowlevel.checkpoint()
            return
        self._reason = reason
        if self._config.group_instance_id is not None:
            left = await self._leave_as_static(reason)
            self._emitter.emit(Left, reason=reason, notified=left)
        else:
            with trio.move_on_after(self._config.close_timeout):
                await self.leave(reason)
            left = not self._member_id
        last = self._previous
        self._previous = PreviousGenerations(assignment=last.assignment) if left else last.lost()

    async def watch_brokers(self) -> NoReturn:
        """Keep the addresses of the brokers up to date, from the first answer of any broker on.

        INVARIANT: it runs in whatever state the member is. A member may be without a generation for
        hours: the program does not call `next` or has unsubscribed, a JoinGroup waits, or the group
        has no coordinator. All brokers may get new addresses meanwhile.

        Cancellation: at any time.
        """
        await self._cluster.first_answered()
        await trio.sleep(JOINED_BY)
        await broker_watcher(
            self._cluster.brokers_suspected, self._cluster.refresh_brokers, self._emitter.failed
        )

    def suspect_brokers(self) -> None:
        """The record source has lost a broker: request their addresses again."""
        self._cluster.suspect_brokers()

    async def aclose(self) -> None:
        """Close every connection.

        Cancellation: they are closed nevertheless.
        """
        try:
            await self._coordinator.aclose()
        finally:
            await self._cluster.aclose()

    async def _leave_to_rebalance(self) -> bool:
        """Remove a static member, so that its next JoinGroup makes the group rebalance.

        Returns:
            whether the coordinator has confirmed it.
        """
        if await self._leave_as_static(self._reason):
            return True
        self._failures += 1
        await self._wait("LeaveGroup was not answered")
        return False

    async def _leave_as_static(self, reason: str) -> bool:
        """Remove a static member from the group.

        Returns:
            whether the coordinator has confirmed it.
        """
        instance = self._config.group_instance_id
        self._previous = self._previous.lost()
        with trio.move_on_after(self._config.close_timeout):
            try:
                await until_answered(
                    Request.LEAVE,
                    partial(self._coordinator.leave, self._member_id, instance, reason),
                    find=self._coordinator.find,
                    backoff=self._context.new_backoff(),
                    report=self._emitter.failed,
                )
            except (BrokerError, TransportError):  # The failure has been reported already.
                pass
            else:
                self._member_id = ""
                return True
        return False

    async def _fence_unanswered_commits(self) -> None:
        """Join under another member id, so that the coordinator refuses commits under the old one.

        A commit that was sent and never answered may still be on its way, also where its connection
        was closed; so may what a producer has sent. The coordinator answers a follower's JoinGroup
        in a stable group with the generation that it has, and would apply such a commit after later
        ones of the same member id and generation: the committed offset would go back.

        INVARIANT: after such a commit, its member id never continues in its generation.
        """
        # Even if the leave was not answered, the JoinGroup that follows makes the group rebalance.
        # A static member does not leave: its next JoinGroup replaces the member id of its instance
        # (KIP-345).
        if self._config.group_instance_id is None:
            with trio.move_on_after(self._config.close_timeout):
                await self.leave(NEW_ID_JOIN)
        self._member_id = ""
        self._reason = NEW_ID_JOIN
        self._previous = self._previous.lost()

    async def _join(self) -> CompletedJoin:
        """Send JoinGroup until it is answered without an error."""
        config = self._config
        startup = self._startup
        if startup is None:
            startup = self._startup = StartupLimit(
                config.group_id,
                config.bootstrap_servers,
                config.startup_timeout,
                self._report_startup_over,
            )
        given = 0
        while True:
            request = Request.FIND_COORDINATOR
            try:
                if self._coordinator.broker is None:
                    await self._find()
                request = Request.METADATA
                resolve = partial(self._subscription.resolve, self._cluster)
                # Names need no request, and a coordinator that has given an id was reached.
                limited = self._subscription.has_patterns and not given
                topics = await (startup.within(resolve) if limited else resolve())
                self._give_up_others(topics)
                self._cluster.forget_other_topics(topics)
                self._subscription.keep_only(topics)
                request = Request.JOIN
                await self._pace()
                # Not again if the coordinator only gave a member id: the source has these topics.
                if self._prepare_source is not None and not given:
                    self._prepare_source(topics)
                self._emitter.bind(None, self._member_id)
                # The coordinator is told the reason for the whole rebalance, because it logs that.
                self._emitter.emit(Joining, reason=_WITH_ID if given else self._reason)
                sent_at = self._runtime.clock.now()
                static = self._config.group_instance_id is not None
                returning = static and (not self._member_id or self._doubtful)
                answer = await self._coordinator.join(
                    self._member_id, topics, self._reason, self._previous.claim
                )
            except MemberIdRequiredError as error:
                given += 1
                self._member_id = error.member_id
                if must_wait(reaction_to(Request.JOIN, error), given):
                    await self._wait(str(error))
            except (BrokerError, TransportError) as error:
                given = 0
                request = failed_request(error, request)
                if request is not Request.FIND_COORDINATOR:  # which reports its own
                    self._emitter.failed(request, error, reaction_to(request, error))
                    startup.failed(error)
                startup.check()
                await self._react_to(request, error)
            else:
                self._member_id = answer.member_id
                startup.over()
                return CompletedJoin(
                    answer=answer, topics=topics, sent_at=sent_at, returning=returning
                )

    def _give_up_others(self, topics: frozenset[str]) -> None:
        """Claim no partition of a topic to which the member no longer subscribes.

        No task works on it any more. If the JoinGroup claimed it, the next generation would end at
        once, so that the JoinGroup after it could give the partition up.
        """
        before, self._topics = self._topics, topics
        claim = self._previous.claim
        if claim is not None and not before <= topics:
            owned = tuple(one for one in claim.owned if one.topic in topics)
            self._previous = attrs.evolve(self._previous, claim=attrs.evolve(claim, owned=owned))

    async def _find(self) -> None:
        find = partial(
            find_coordinator,
            self._coordinator.find,
            self._context.new_backoff(),
            self._report_failed_find,
        )
        if self._startup is None:
            await find()
        else:
            await self._startup.within(find)
        found = self._coordinator.broker
        assert found is not None  # find() returned
        self._emitter.emit(
            CoordinatorFound, node_id=found.node_id, address=f"{found.host}:{found.port}"
        )

    def _report_failed_find(
        self, request: Request, error: BrokerError | TransportError, reaction: Reaction
    ) -> None:
        if self._startup is not None:
            self._startup.failed(error)
        self._emitter.failed(request, error, reaction)

    def _report_startup_over(self, reason: str) -> None:
        self._emitter.emit(
            RequestFailed,
            request=Request.FIND_COORDINATOR.value,
            reason=reason,
            next_action=Action.FAIL.value,
        )

    async def _react_to(self, request: Request, error: BrokerError | TransportError) -> None:
        """Do what the error policy says before the next JoinGroup; the failure was reported."""
        reaction = reaction_to(request, error)
        if reaction.action is Action.FAIL:
            raise error
        self._failures += 1
        if reaction.leave:
            with trio.move_on_after(self._config.close_timeout):
                await self.leave(f"starting over after {without_text(error)}")
        if reaction.member_id is MemberId.DROP:
            self._member_id = ""
            self._previous = attrs.evolve(self._previous.lost(), rebalance_requested=False)
        if must_wait(reaction, self._failures):
            await self._wait(str(error))
        if reaction.find:
            await self._find()

    async def _pace(self) -> None:
        """Delay a JoinGroup if there were very many of late, whatever the reason of each was.

        Each reaction of the error policy is right for one failure. Most send the next JoinGroup at
        once, because the other members wait for it. A coordinator that answers every SyncGroup or
        heartbeat with REBALANCE_IN_PROGRESS would otherwise receive as many JoinGroups as the
        network carries.
        """
        if seconds := self._joins.delay(trio.current_time()):
            self._emitter.emit(BackingOff, seconds=seconds, reason=self._reason)
            await trio.sleep(seconds)

    async def _wait(self, reason: str) -> None:
        seconds = self._waits.next()
        self._emitter.emit(BackingOff, seconds=seconds, reason=reason)
        await trio.sleep(seconds)

    async def _slow_down(self, last: GenerationRunner, end: End) -> None:
        """Back off after a short generation: each rebalance stops the whole group for a moment."""
        if last.lived > self._config.rejoin_backoff_max:
            self._short_lives.reset()
            self._returned = 0
            return
        seconds = self._short_lives.next()
        self._returned += 1
        self._emitter.emit(
            BackingOff,
            seconds=seconds,
            reason=f"{end}, after a generation of {last.lived:.1f} s",
            advice=_LOOP if self._returned > 1 else "",
        )
        await trio.sleep(seconds)

    def _remember(self, last: GenerationRunner) -> None:
        """Keep what the next generation needs to know of this one, and report its end."""
        membership = last.lifecycle.membership
        previous, held = self._previous, last.lifecycle.was_held
        retained = previous.retained
        if held:
            retained = frozenset(last.assignment)
        elif last.has_others:
            # If it ended before its assignment arrived, the other members may have had theirs.
            retained &= frozenset(last.assignment)
        self._previous = attrs.evolve(
            previous,
            assignment=last.assignment if held else previous.assignment,
            retained=retained,
            claim=last.claim,
            read=last.read if last.end.can_commit else {},
            read_epochs=last.read_epochs,
            open_records=last.open_records,
            ids=(membership.member_id, membership.generation_id),
            unanswered=last.unanswered,
            late_commits=last.late_commits,
        )
        if not last.end.can_commit:
            self._previous = self._previous.lost()
        self._report_end(last)

    def _report_end(self, last: GenerationRunner) -> None:
        life = last.lifecycle
        self._emitter.emit(
            GenerationEnded, end=last.end, cut_short=life.cut_short, seconds=life.ended_within
        )


def _reason_of(end: End) -> str:
    """Why the member joins again after this end; the coordinator logs it."""
    if end.error is None:
        return str(end)
    return f"{end.cause.value}: {without_text(end.error)}"
