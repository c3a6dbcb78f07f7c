"""The purgatory: where requests of the group protocol wait for their responses.

Theory of operation
-------------------

``kgroup.broker.groups`` decides and never waits. A JoinGroup that it parks gets its response from a
later call: from another member's join, or from a timer. The tasks that serve connections must wait
for that, and something must call the coordinator when a timer is due. Both are done here, for one
broker, and nothing here knows what a request means. The name is Kafka's, whose brokers keep delayed
operations in a ``DelayedOperationPurgatory``.

Who waits, and what wakes it:

- *A connection's task* waits in ``handle`` or ``handle_parkable``. It makes a ticket, calls the
  coordinator, and delivers every response that the call returns, its own included. If its own is
  not among them, it waits for the event of its ticket. The task that gets the response from the
  coordinator later sets that event in ``deliver``: another connection's task, the alarm's task, or
  the task that moves a shard to another broker (``kgroup.broker.shards``).
- *The alarm's task* (``Alarm.run``) sleeps until the coordinator's next timer, calls ``expire`` and
  delivers what comes out. Every ``deliver`` can have set an earlier timer, so it ends with
  ``Alarm.reschedule``, which wakes the alarm's task if it would sleep too long. A timer that moved
  later wakes no task: the alarm wakes up at the old time, finds nothing due and sleeps again.

Traps:

- There is no checkpoint between the call of the coordinator and ``deliver``, so nothing else can
  run between them. The tasks are woken in the order of the coordinator's responses, and in a
  simulation clients see them in that order.
- A task that stops waiting, because its connection was cut or the broker was killed, leaves the
  coordinator as it is: the member stays in its group until its own timers run out, as in Kafka. Its
  ticket is forgotten here, and a response that comes later finds no one and is dropped.
- None is a response too: Kafka never answers this request. The task is woken, and its connection
  falls silent (``kgroup.broker.request_context.NEVER_ANSWERED``).
- A timer that raises an exception has expired all the same. The error is recorded, and the alarm
  continues with the other timers.

INVARIANT: each response of the coordinator is delivered to its ticket at most once.
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
from kgroup.notifier import Notifier

Kind = TypeVar("Kind")


@final
class _ParkedRequest:
    """The ticket of one request: the coordinator returns it with the response."""

    __slots__ = ("answered", "response")

    def __init__(self) -> None:
        self.answered: trio.Event | None = None
        self.response: Response | None = None


@final
class Alarm:
    """Calls a function whenever a timer is due; the owner of the timers reschedules it.

    Attributes:
        internal_errors: where to record what the function raises; None to let it out.
    """

    def __init__(self, next_time: Callable[[], float | None], on_time: Callable[[], None]) -> None:
        """An alarm that ``run`` starts.

        Args:
            next_time: the time of the next timer, or None without one.
            on_time: handles the timers that are due.
        """
        self._next_time = next_time
        self._on_time = on_time
        self._rescheduled = Notifier()
        self._set_for: float | None = None
        self.internal_errors: InternalErrors | None = None

    def reschedule(self) -> None:
        """Check the next time again: it may be earlier than the one that the alarm is set for."""
        self.reschedule_by(self._next_time())

    def reschedule_by(self, time: float | None) -> None:
        """As ``reschedule``, for a time that is known to be a timer's."""
        if time is not None and (self._set_for is None or time < self._set_for):
            self._rescheduled.notify()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Call the function at every time that is due, until the task is cancelled."""
        while True:
            self._set_for = self._next_time()
            deadline = math.inf if self._set_for is None else self._set_for
            with trio.move_on_at(deadline):
                await self._rescheduled.wait()
                continue
            try:
                self._on_time()
            # The timer has expired although its function failed; the other timers continue.
            except Exception as error:
                if self.internal_errors is None:
                    raise
                self.internal_errors.record("a timer", error)
                await trio.lowlevel.checkpoint()


class PurgatoryObserver(Protocol):
    """Sees what the coordinator is given and responds, for simulations. It changes nothing."""

    def handled(
        self, request: Request, ticket: Hashable, responses: Sequence[CoordinatorResponse]
    ) -> None:
        """The coordinator handled a request; its own response may be among these or come later."""
        ...

    def expired(self, responses: Sequence[CoordinatorResponse]) -> None:
        """Timers of the coordinator were due, which caused these responses."""
        ...

    def unloaded(self, shards: Collection[int], responses: Sequence[CoordinatorResponse]) -> None:
        """The coordinator gave up shards; only the requests in ``responses`` get a reply."""
        ...

    def loaded(self, shards: Collection[int]) -> None:
        """The coordinator has loaded the records of these shards."""
        ...


@final
class GroupPurgatory:
    """Hands requests to the coordinator of one broker, and its responses to the waiting tasks.

    Attributes:
        observer: sees all requests and responses; or None.
    """

    def __init__(self, coordinator: GroupCoordinatorService) -> None:
        self._coordinator = coordinator
        self._waiting: set[_ParkedRequest] = set()
        self.observer: PurgatoryObserver | None = None
        self.alarm = Alarm(lambda: coordinator.next_timer, self._expire)

    @property
    def coordinator(self) -> GroupCoordinatorService:
        """The coordinator, for calls that cause no waiting."""
        return self._coordinator

    async def handle(self, request: Request, kind: type[Kind]) -> Kind:
        """As ``handle_parkable``, for requests that are always answered: all but Join and Sync.

        Raises:
            TypeError: the coordinator gave another kind of response, or none: a defect.
        """
        response = await self.handle_parkable(request, kind)
        if response is None:
            raise TypeError(f"{request} is never answered")
        return response

    async def handle_parkable(self, request: Request, kind: type[Kind]) -> Kind | None:
        """Give a request to the coordinator and wait for its response.

        Args:
            request: the request.
            kind: the class of its response.

        Returns:
            the response, or None if Kafka never answers this request.

        Cancellation: the request has been handled; only its response is lost.
        """
        ticket = _ParkedRequest()
        self._waiting.add(ticket)
        try:
            responses = self._coordinator.handle(trio.current_time(), request, ticket)
            if self.observer is not None:
                self.observer.handled(request, ticket, responses)
            self.deliver(responses)
            if ticket in self._waiting:
                ticket.answered = trio.Event()
                await ticket.answered.wait()
        finally:
            self._waiting.discard(ticket)
        if ticket.response is not None and not isinstance(ticket.response, kind):
            raise TypeError(f"{request} was answered with {ticket.response}")
        return ticket.response

    def deliver(self, responses: Iterable[CoordinatorResponse]) -> None:
        """Hand responses to the tasks that wait for them, and reschedule the alarm."""
        for response in responses:
            ticket = response.ticket
            if not isinstance(ticket, _ParkedRequest) or ticket not in self._waiting:
                continue
            self._waiting.discard(ticket)
            ticket.response = response.response
            if ticket.answered is not None:
                ticket.answered.set()
        self.alarm.reschedule()

    def _expire(self) -> None:
        responses = self._coordinator.expire(trio.current_time())
        if self.observer is not None:
            self.observer.expired(responses)
        self.deliver(responses)
