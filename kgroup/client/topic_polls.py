"""``TopicPolls``: Metadata polls of several members of an event loop, sent as one request.

Each group's leader polls the metadata of its topics once a second. In a process with fifty members
that would be fifty requests a second to the same brokers. The watchers poll at the same moments
(``kgroup.watchers.partitions``). So whoever polls first waits for one step of the event loop, in
which the others that woke with it add their topics, and sends one request for the topics of all.
Each member then reads its own topics from the response, with its own errors.

Members merge their polls if they would send the same request to the same brokers in the same way:
they have the same network, bootstrap servers, client id and security: what a member may read, and
is told, depends on its login.

INVARIANT: a poll that is merged fails or succeeds as the request for all does. If the task that
sends it is cancelled, the others send it again; they never wait for a request that nobody sends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, final
from weakref import WeakValueDictionary

import attrs
import trio

from kgroup.errors import KgroupError


@final
@attrs.define(eq=False)
class _Poll:
    """One request for the topics of all who poll at this moment.

    Attributes:
        topics: their topics.
        done: it has a response or an error, or its sender was cancelled.
        response: the response, or None.
        error: what it failed with, or None.
    """

    topics: set[str] = attrs.field(factory=set)
    done: trio.Event = attrs.field(factory=trio.Event)
    response: Any = None
    error: KgroupError | None = None


@final
class TopicPolls:
    """Merges the polls of the members that share it. Without I/O of its own."""

    def __init__(self) -> None:
        self._gathering: _Poll | None = None

    async def request(
        self, topics: frozenset[str], send: Callable[[frozenset[str]], Awaitable[Any]]
    ) -> Any:
        """Return a response that covers these topics, and perhaps others.

        Args:
            topics: the topics of the caller.
            send: sends the request for all topics; that of the first caller is used.

        Raises:
            KgroupError: what ``send`` raised.

        Cancellation: if this caller sends the request, the others send it again.
        """
        while True:
            poll = self._gathering
            if poll is None:
                return await self._send(topics, send)
            poll.topics |= topics
            await poll.done.wait()
            if poll.error is not None:
                raise poll.error.with_traceback(None)
            if poll.response is not None:
                return poll.response

    async def _send(
        self, topics: frozenset[str], send: Callable[[frozenset[str]], Awaitable[Any]]
    ) -> Any:
        poll = self._gathering = _Poll(set(topics))
        try:
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._gathering = None
            poll.response = await send(frozenset(poll.topics))
        except KgroupError as error:
            poll.error = error
            raise
        finally:
            poll.done.set()
        return poll.response


_POLLS: Final = trio.lowlevel.RunVar[WeakValueDictionary[Hashable, TopicPolls]](
    "kgroup_topic_polls"
)


def polls_of(key: Hashable) -> TopicPolls:
    """The polls that the members with this key share, in the event loop that runs here."""
    try:
        known = _POLLS.get()
    except LookupError:
        known = WeakValueDictionary()
        _POLLS.set(known)
    polls = known.get(key)
    if polls is None:
        polls = known[key] = TopicPolls()
    return polls
