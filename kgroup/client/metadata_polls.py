"""``MetadataPolls``: the Metadata polls of several members of an event loop, sent as one request.

Each group's leader polls the metadata of its topics, by default once a second. In a process with
fifty members that would be fifty requests a second to the same brokers, and nearly all of their
responses would say what the last ones said. Here one of the waiting tasks polls for all: at each
multiple of the interval it sends one request for the topics of all. A member wakes only if the
response is another one than that which it has read already. The codec returns the same object for
the same bytes, so that comparing costs nothing.

Members poll together if they would send the same request to the same brokers in the same way: they
have the same network, bootstrap servers, client id, interval and security. The security counts
because a broker lists to a user only topics that this user may see.

INVARIANTS: while tasks wait, exactly one of them polls. If that one is cancelled, another one takes
over. A request that fails fails for all who wait, so that each reports it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, final
from weakref import WeakValueDictionary

import attrs
import trio

from kgroup.errors import KgroupError
from kgroup.loop_local import loop_local

Send = Callable[[frozenset[str]], Awaitable[Any]]
"""Requests the metadata of these topics; returns the response, or raises a ``KgroupError``."""


@final
@attrs.define(eq=False)
class _Waiter:
    """A task that waits.

    Attributes:
        topics: its topics.
        known: the response that it has read, or None.
        woken: it has a response, an error, or the turn to poll.
        response: the response, or None.
        error: what the request failed with, or None.
    """

    topics: frozenset[str]
    known: Any
    woken: trio.Event = attrs.field(factory=trio.Event)
    response: Any = None
    error: KgroupError | None = None


@final
class MetadataPolls:
    """Polls the topics of all members that share it.

    Args:
        interval: the seconds between two polls.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._waiting: dict[_Waiter, None] = {}
        self._poller: _Waiter | None = None
        """The one that polls, or is about to: it has been woken for that."""

    async def wait(self, topics: frozenset[str], known: Any, send: Send) -> Any:
        """Wait for a response that covers these topics, and perhaps others, and is a new one.

        Args:
            topics: the topics of the caller.
            known: wait for another response than this one; None for the next one.
            send: sends a request for the topics of all. Any caller's may be used.

        Raises:
            KgroupError: what ``send`` raised.

        Cancellation: if this caller polls, another one takes over.
        """
        waiter = _Waiter(topics, known)
        self._waiting[waiter] = None
        try:
            if self._poller is None:
                self._poller = waiter
            else:
                await waiter.woken.wait()
            while waiter in self._waiting:
                await self._poll(send)
        finally:
            self._waiting.pop(waiter, None)
            if self._poller is waiter:
                # Its successor is known at once: one that comes before that runs must not poll too.
                self._poller = next(iter(self._waiting), None)
                if self._poller is not None:
                    self._poller.woken.set()
        if waiter.error is not None:
            raise waiter.error.with_traceback(None)
        return waiter.response

    def _until_next(self) -> float:
        """Seconds to the next multiple of the interval, and at least a hundredth of it.

        So rounding never makes it 0, which would send requests without a pause.
        """
        wait = self._interval - trio.current_time() % self._interval
        return wait if wait >= self._interval / 100 else wait + self._interval

    async def _poll(self, send: Send) -> None:
        """Send one request at the next multiple of the interval; wake the waiters it is new to.

        A waiter that has joined while the request was under way may want other topics, and its
        topics may have changed since. It waits for the next one.
        """
        await trio.sleep(self._until_next())
        waiting = list(self._waiting)
        error, response = None, None
        try:
            response = await send(frozenset[str]().union(*(one.topics for one in waiting)))
        except KgroupError as raised:
            error = raised
        for one in waiting:
            if one in self._waiting and (error is not None or one.known is not response):
                del self._waiting[one]
                one.response, one.error = response, error
                one.woken.set()


_SHARED: Final = trio.lowlevel.RunVar[WeakValueDictionary[Hashable, MetadataPolls]](
    "kgroup_metadata_polls"
)


def polls_of(key: Hashable, interval: float) -> MetadataPolls:
    """What the members with this key and interval share, in the event loop that runs here."""
    known = loop_local(_SHARED, WeakValueDictionary)
    polls = known.get((key, interval))
    if polls is None:
        polls = known[key, interval] = MetadataPolls(interval)
    return polls
