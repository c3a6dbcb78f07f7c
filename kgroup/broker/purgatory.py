"""The group coordinator's desk: where tasks wait for what the state machine answers.

``kgroup.broker.groups`` decides and never waits; here a request waits for its answer, and one
task wakes the machine when a timer is due. Nothing here knows what a request means.

Invariants: every ticket that the machine answers is handed its answer once; a task that stops
waiting (its connection was cut) leaves the machine untouched: the member stays until its own
timers, as in Kafka.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar, final

import trio

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.requests import Request
from kgroup.broker.groups.responses import CoordinatorResponse, Response
from kgroup.broker.internal_errors import InternalErrors

Kind = TypeVar("Kind")


@final
class _ParkedRequest:
    """One waiting request; known by its identity."""

    __slots__ = ("answered", "response")

    def __init__(self) -> None:
        self.answered: trio.Event | None = None
        self.response: Response | None = None


@final
class Alarm:
    """Calls a function at the times that it names itself, and is told when they change.

    Attributes:
        internal_errors: where to record what the function raises; None to let it out.
    """

    def __init__(self, next_time: Callable[[], float | None], ring: Callable[[], None]) -> None:
        self._next_time = next_time
        self._ring = ring
        self._changed = trio.Event()
        self._set_for: float | None = None
        self.internal_errors: InternalErrors | None = None

    def reschedule(self) -> None:
        """The next time may have changed: wake the task if it sleeps too long."""
        self.reschedule_by(self._next_time())

    def reschedule_by(self, following: float | None) -> None:
        """As ``reschedule``, for a time that is known to be among the next ones."""
        if following is not None and (self._set_for is None or following < self._set_for):
            self._changed.set()

    async def run(self) -> None:
        """Ring for ever; only cancellation ends it."""
        while True:
            self._set_for = self._next_time()
            self._changed = trio.Event()
            deadline = math.inf if self._set_for is None else self._set_for
            with trio.move_on_at(deadline):
                await self._changed.wait()
                continue
            try:
                self._ring()
            # A timer that fails has rung: it is not set any more, and the others go on.
            except Exception as error:
                if self.internal_errors is None:
                    raise
                self.internal_errors.record("a timer", error)
                await trio.lowlevel.checkpoint()


class PurgatoryObserver(Protocol):
    """Looks on as the machine is asked, for simulations; it changes nothing."""

    def handled(
        self, request: Request, ticket: Hashable, answers: Sequence[CoordinatorResponse]
    ) -> None:
        """The machine was given a request, and answered these, its own ticket among them or not."""
        ...

    def expired(self, answers: Sequence[CoordinatorResponse]) -> None:
        """Timers of the machine were due, and it answered these."""
        ...

    def unloaded(self, shards: Collection[int], answers: Sequence[CoordinatorResponse]) -> None:
        """The machine has given shards up; these are told so, whoever else waits there is not."""
        ...

    def loaded(self, shards: Collection[int]) -> None:
        """The machine has read the records of these shards."""
        ...


@final
class GroupPurgatory:
    """Asks the state machine on behalf of tasks.

    Attributes:
        observer: looks on, or None.
    """

    def __init__(self, coordinator: GroupCoordinatorService) -> None:
        self._coordinator = coordinator
        self._waiting: set[_ParkedRequest] = set()
        self.observer: PurgatoryObserver | None = None
        self.alarm = Alarm(lambda: coordinator.next_timer, self._expire)

    @property
    def coordinator(self) -> GroupCoordinatorService:
        """The machine, for what needs no waiting."""
        return self._coordinator

    async def handle(self, request: Request, kind: type[Kind]) -> Kind:
        """As ``handle_parkable``, for what is always answered: all but JoinGroup and SyncGroup.

        Raises:
            TypeError: the machine answered something else, or nothing ever.
        """
        answer = await self.handle_parkable(request, kind)
        if answer is None:
            raise TypeError(f"{request} is never answered")
        return answer

    async def handle_parkable(self, request: Request, kind: type[Kind]) -> Kind | None:
        """Give a request to the machine and wait for what it answers.

        Args:
            request: what is asked.
            kind: the class of its answer.

        Returns:
            the answer, or None where Kafka never answers this request.

        Cancellation: the request has been handled; only its answer is lost.
        """
        ticket = _ParkedRequest()
        self._waiting.add(ticket)
        try:
            answers = self._coordinator.handle(trio.current_time(), request, ticket)
            if self.observer is not None:
                self.observer.handled(request, ticket, answers)
            self.deliver(answers)
            if ticket in self._waiting:
                ticket.answered = trio.Event()
                await ticket.answered.wait()
        finally:
            self._waiting.discard(ticket)
        if ticket.response is not None and not isinstance(ticket.response, kind):
            raise TypeError(f"{request} was answered with {ticket.response}")
        return ticket.response

    def deliver(self, answers: Iterable[CoordinatorResponse]) -> None:
        """Hand out what the machine answered, and look at its timers again."""
        for answer in answers:
            ticket = answer.ticket
            if not isinstance(ticket, _ParkedRequest) or ticket not in self._waiting:
                continue
            self._waiting.discard(ticket)
            ticket.response = answer.response
            if ticket.answered is not None:
                ticket.answered.set()
        self.alarm.reschedule()

    def _expire(self) -> None:
        answers = self._coordinator.expire(trio.current_time())
        if self.observer is not None:
            self.observer.expired(answers)
        self.deliver(answers)
