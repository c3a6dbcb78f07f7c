"""One member, one request that fails, and everything that follows on the wire and in the program.

For each request of the error policy there is a situation in which a member sends it. There the
request fails, once or several times in a row; an `Outcome` records what follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import attrs
import trio

from kgroup.client.error_policy import Request, TransportFailure
from kgroup.events import Event, RequestFailed
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.types import End, OffsetAndMetadata
from tests.group.harness import P0, Harness, harness
from tests.recovery.connections import Connections, Sent, Trouble

APIS: Final = {
    Request.FIND_COORDINATOR: "find_coordinator",
    Request.JOIN: "join_group",
    Request.SYNC: "sync_group",
    Request.DESCRIBE: "describe_groups",
    Request.HEARTBEAT: "heartbeat",
    Request.COMMIT: "offset_commit",
    Request.FETCH_OFFSETS: "offset_fetch",
    Request.LEAVE: "leave_group",
    Request.LIST_OFFSETS: "list_offsets",
    Request.EPOCH_ENDS: "offset_for_leader_epoch",
    Request.METADATA: "metadata",
}
#: The ways in which each transport failure can happen.
TROUBLES: Final = {
    TransportFailure.LOST: (Trouble.CUT_BEFORE, Trouble.CUT_AFTER),
    TransportFailure.TIMED_OUT: (Trouble.SILENT_BEFORE, Trouble.SILENT_AFTER),
    TransportFailure.INVALID: (Trouble.GARBAGE,),
}
Failure = int | Trouble
#: Requests time out well within the session, and no watcher sends requests meanwhile.
QUICK: Final[dict[str, object]] = {
    "session_timeout": 60.0,
    "rebalance_timeout": 10.0,
    "request_timeout": 4.0,
    "commit_timeout": 4.0,
    "watch_partition_changes": False,
}


@final
class ObservedMember:
    """A member whose requests and events are recorded, with their times."""

    def __init__(self, here: Harness, **settings: object) -> None:
        self.here = here
        self.connections = Connections(here.broker)
        self.recorded: list[tuple[float, Event]] = []
        self.settings = settings

    def group(self, **settings: object) -> ConsumerGroup:
        """The member."""
        runtime = attrs.evolve(
            memory_runtime(self.here.broker, seed=3), open_stream=self.connections.open
        )

        def record(event: Event) -> None:
            self.recorded.append((self.here.now, event))

        return ConsumerGroup(
            self.here.config(**{**self.settings, **settings}),
            runtime=runtime,
            on_event=record,
        )

    def fail(self, request: Request, failure: Failure, times: int = 1) -> None:
        """Let the next requests fail, so many times."""
        api = APIS[request]
        if isinstance(failure, Trouble):
            before = len(self.failures(request))
            self.connections.trouble(
                failure, api, lambda: len(self.failures(request)) < before + times
            )
        else:
            self.here.broker.inject(api, failure, times=times)

    def failures(self, request: Request) -> list[tuple[float, RequestFailed]]:
        """The reported failures of a request."""
        return [
            (at, event)
            for at, event in self.recorded
            if isinstance(event, RequestFailed) and event.request == request.value
        ]

    def events(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for _, event in self.recorded if isinstance(event, kind)]


@final
@attrs.define
class Outcome:
    """What followed a failure.

    Attributes:
        observed: the member to which it happened.
        member_id: the member's id before the failure.
        generation: the generation in which it happened, if there was one.
        end: the end of that generation, as seen before the member closed.
        again: the generation that `next()` gave after it, if it did.
        fatal: what `next()` raised instead.
        call: what the call that failed raised to the program (a commit), or None.
        since: the index in ``observed.connections.sent`` from which on it could happen.
        until: the index where the closing began.
    """

    observed: ObservedMember
    member_id: str = ""
    generation: Generation | None = None
    end: End | None = None
    again: Generation | None = None
    fatal: Exception | None = None
    call: Exception | None = None
    since: int = 0
    until: int = 0

    def sent(self, *, closing: bool) -> Sequence[Sent]:
        """The requests since the failure could happen, with or without those of closing."""
        return self.observed.connections.sent[self.since : None if closing else self.until]


@contextmanager
def _caught(keep: Callable[[Exception], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 # the test checks it
        keep(error)


async def _next(group: ConsumerGroup, outcome: Outcome) -> None:
    with _caught(lambda error: setattr(outcome, "fatal", error)), trio.fail_after(300):
        outcome.again = await group.next()


async def _in_first_join(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens on the way to the first generation."""
    begin_failure()
    await _next(group, outcome)
    if outcome.again is not None and outcome.again.assignment:
        with trio.fail_after(300):
            await anext(outcome.again.records(), None)


async def _in_second_join(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to a member that has an id and joins again."""
    outcome.generation = first = await group.next()
    outcome.member_id = first.member_id
    first.start_soon(trio.sleep, 10)  # long enough for no back-off of its own to follow
    await first.ending.wait()
    outcome.since = len(outcome.observed.connections.sent)
    begin_failure()
    await _next(group, outcome)


async def _in_inherited(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to a static leader that has restarted."""
    async with outcome.observed.group() as before:
        await before.next()
    outcome.since = len(outcome.observed.connections.sent)
    begin_failure()
    await _next(group, outcome)


async def _in_verification(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to a member that starts at a commit of an earlier leader epoch."""
    async with outcome.observed.group() as before:
        await (await before.next()).commit({P0: OffsetAndMetadata(1, 0)}, beyond_read=True)
    log, replicas = outcome.observed.here.broker.cluster.topics.log_and_replicas(
        P0.topic, P0.partition
    )
    replicas.epoch += 1
    log.leader_changed(replicas.epoch)
    outcome.since = len(outcome.observed.connections.sent)
    await _in_first_join(group, outcome, begin_failure)


async def _while_running(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to a heartbeat."""
    outcome.generation = first = await group.next()
    outcome.member_id = first.member_id
    await trio.sleep(10)
    outcome.since = len(outcome.observed.connections.sent)
    begin_failure()
    with trio.move_on_after(25):
        await first.ending.wait()
    outcome.end = first.end
    if first.end is not None:
        if first.end.can_commit:
            await first.commit({P0: 1}, beyond_read=True)
        await _next(group, outcome)


async def _while_committing(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to a commit."""
    outcome.generation = first = await group.next()
    outcome.member_id = first.member_id
    await trio.sleep(10)
    outcome.since = len(outcome.observed.connections.sent)
    begin_failure()
    with _caught(lambda error: setattr(outcome, "call", error)):
        await first.commit({P0: 1}, beyond_read=True)
    outcome.end = first.end
    if first.end is not None:
        await _next(group, outcome)


async def _while_leaving(
    group: ConsumerGroup, outcome: Outcome, begin_failure: Callable[[], None]
) -> None:
    """The failure happens to the leave."""
    outcome.generation = first = await group.next()
    outcome.member_id = first.member_id
    begin_failure()


Situation = Callable[[ConsumerGroup, Outcome, Callable[[], None]], Awaitable[None]]

_SITUATIONS: Final[dict[Request, Situation]] = {
    Request.FIND_COORDINATOR: _in_first_join,
    Request.JOIN: _in_second_join,
    Request.SYNC: _in_second_join,
    Request.DESCRIBE: _in_inherited,
    Request.HEARTBEAT: _while_running,
    Request.COMMIT: _while_committing,
    Request.FETCH_OFFSETS: _in_second_join,
    Request.LEAVE: _while_leaving,
    Request.LIST_OFFSETS: _in_first_join,
    Request.EPOCH_ENDS: _in_verification,
    Request.METADATA: _in_first_join,
}

_OWN: Final[dict[Request, dict[str, object]]] = {
    # Requests to leaders are repeated only while the hand-over waits for them.
    Request.LIST_OFFSETS: {"request_timeout": 0.5},
    Request.EPOCH_ENDS: {"request_timeout": 0.5},
    Request.DESCRIBE: {"group_instance_id": "one", "watch_partition_changes": True},
}


async def play(request: Request, failure: Failure, times: int = 1, **settings: object) -> Outcome:
    """Let a request fail, and record what follows until the group is closed."""
    async with harness() as here:
        await here.append(3)
        observed = ObservedMember(here, **{**QUICK, **_OWN.get(request, {}), **settings})
        outcome = Outcome(observed)
        with _caught(lambda error: setattr(outcome, "fatal", error)):
            async with observed.group() as group:
                await _SITUATIONS[request](
                    group, outcome, lambda: observed.fail(request, failure, times)
                )
                outcome.until = len(observed.connections.sent)
        return outcome
