"""A program's session with an ensemble: connections, calls that are tried again, watches.

It behaves as the library that Kafka 0.8 used (zkclient). A call waits until there is a connection,
and is sent again after a lost one, in a new session if the old one has expired: whether a call that
was lost took effect is not known. A watch that has fired is set again by the read that follows it.
When a session has expired, another one begins by itself, and the program is notified.

INVARIANT: one task sends and receives; it is that of `ZooKeeperClient.run`.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, final

import attrs
import trio

from kgroup.interfaces import StreamOpener
from kgroup.testing.simulation.zookeeper.messages import (
    ClientMessage,
    Close,
    Connect,
    Connected,
    Expired,
    Get,
    GetChildren,
    GetMany,
    Notification,
    Operation,
    Ping,
    Pong,
    Reply,
    Rewatch,
    ServerMessage,
    ZooKeeperRequest,
)
from kgroup.testing.simulation.zookeeper.tree import (
    ChangeKind,
    Create,
    Delete,
    SetData,
    ZooKeeperError,
)

_PINGS: Final = 3
"""A client sends something at least so often within its session time-out."""
_RECONNECT: Final = (0.05, 0.5)
"""Seconds, at least and at most, between attempts to connect."""
_EPHEMERAL: Final = 1


@final
class _Watched(enum.Enum):
    """What a watch is for."""

    DATA = "the data"
    MISSING = "that there is a znode"
    CHILDREN = "the children"


_ENDED_BY: Final = {
    ChangeKind.CREATED: (_Watched.MISSING,),
    ChangeKind.DATA: (_Watched.DATA,),
    ChangeKind.DELETED: (_Watched.DATA, _Watched.CHILDREN),
    ChangeKind.CHILDREN: (_Watched.CHILDREN,),
}
"""The watches that a notification ends."""


@final
class ZooKeeperRefusedError(Exception):
    """ZooKeeper has refused an operation.

    Attributes:
        refusal: why.
        path: the znode.
    """

    def __init__(self, refusal: ZooKeeperError, path: str) -> None:
        super().__init__(f"{path}: {refusal.value}")
        self.refusal: Final = refusal
        self.path: Final = path


@final
@attrs.define(eq=False)
class _Pending:
    operation: Operation
    answered: trio.Event = attrs.field(factory=trio.Event)
    reply: Reply | None = None
    sent_at: float = 0.0
    took: float = 0.0


@final
@attrs.frozen
class _Answered:
    """What an operation has returned, and the seconds of its last round trip."""

    value: str | tuple[str | None, ...] | None
    took: float


@final
class ZooKeeperClient:
    """A session, kept up by `run` for as long as that runs.

    Args:
        open_stream: opens connections.
        servers: the servers' addresses.
        timeout: the session time-out, in seconds.
        random: chooses servers and pauses.
        on_watch: called with the path of each watch that has fired.
        on_new_session: called when a session has taken the place of one that has expired.
    """

    def __init__(
        self,
        open_stream: StreamOpener,
        servers: Sequence[tuple[str, int]],
        timeout: float,
        random: Random,
        on_watch: Callable[[str], object],
        on_new_session: Callable[[], object],
    ) -> None:
        self.session = 0
        """The present session; 0 before the first one, and between two."""
        self._open_stream = open_stream
        self._servers = servers
        self._timeout = timeout
        self._random = random
        self._on_watch = on_watch
        self._on_new_session = on_new_session
        self._stream: trio.abc.Stream | None = None
        self._pending: dict[int, _Pending] = {}
        self._xid = 0
        self._seen = 0
        self._had_session = False
        self._sent_at = 0.0
        self._watched: dict[tuple[str, _Watched], None] = {}

    # Calls.

    async def create(self, path: str, data: str = "", *, ephemeral: bool = False) -> None:
        """Create a znode.

        Raises:
            ZooKeeperRefusedError: it exists, or its parent does not. Perhaps an attempt before a
                lost connection has created it.

        Cancellation: it may or may not be created.
        """
        await self._call(Create(path, data, _EPHEMERAL if ephemeral else 0))

    async def delete(self, path: str) -> None:
        """Delete a znode; one that does not exist is as good as deleted.

        Raises:
            ZooKeeperRefusedError: it has children.

        Cancellation: it may or may not be deleted.
        """
        await self._done_unless(ZooKeeperError.NO_NODE, Delete(path))

    async def set(self, path: str, data: str) -> None:
        """Set the data of a znode; create it if it does not exist.

        Raises:
            ZooKeeperRefusedError: its parent does not exist.

        Cancellation: it may or may not be set.
        """
        while not await self._done_unless(ZooKeeperError.NO_NODE, SetData(path, data)):
            if await self._done_unless(ZooKeeperError.NODE_EXISTS, Create(path, data)):
                return

    async def get(self, path: str, *, watch: bool = False) -> str | None:
        """The data of a znode, or None if it does not exist.

        Cancellation: nothing has changed.
        """
        try:
            value = (await self._call(Get(path, watch=watch))).value
        except ZooKeeperRefusedError:
            return None
        assert isinstance(value, str)
        return value

    async def get_many(self, paths: Sequence[str]) -> tuple[str | None, ...]:
        """The data of several znodes, read one after the other, which takes as many round trips.

        Cancellation: nothing has changed.
        """
        if not paths:
            await trio.lowlevel.checkpoint()
            return ()
        answered = await self._call(GetMany(tuple(paths)))
        assert isinstance(answered.value, tuple)
        await trio.sleep((len(paths) - 1) * answered.took)
        return answered.value

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        """The names of a znode's children.

        Raises:
            ZooKeeperRefusedError: it does not exist.

        Cancellation: nothing has changed.
        """
        value = (await self._call(GetChildren(path, watch=watch))).value
        assert isinstance(value, tuple)
        return tuple(name for name in value if name is not None)

    async def close(self) -> None:
        """End the session, if there is a connection; `run` has to be cancelled afterwards.

        Cancellation: the session may go on until its time-out.
        """
        await trio.lowlevel.checkpoint()
        if self._stream is not None and self.session:
            await self._send(Close())

    async def _done_unless(self, refusal: ZooKeeperError, operation: Operation) -> bool:
        """Request an operation; False if it was refused for this reason."""
        try:
            await self._call(operation)
        except ZooKeeperRefusedError as error:
            if error.refusal is not refusal:
                raise
            return False
        return True

    async def _call(self, operation: Operation) -> _Answered:
        self._xid += 1
        xid, pending = self._xid, _Pending(operation)
        self._pending[xid] = pending
        try:
            if self._stream is not None and self.session:
                pending.sent_at = trio.current_time()
                await self._send(ZooKeeperRequest(xid, operation))
            await pending.answered.wait()
        finally:
            self._pending.pop(xid, None)
        reply = pending.reply
        assert reply is not None
        if reply.refusal is not None:
            raise ZooKeeperRefusedError(reply.refusal, getattr(operation, "path", ""))
        return _Answered(reply.value, pending.took)

    # The connection.

    async def run(self) -> None:
        """Keep a session until cancelled.

        Cancellation: the connection is closed; the session lasts until its time-out.
        """
        while True:
            host, port = self._random.choice(self._servers)
            try:
                with trio.fail_after(self._timeout):
                    stream = await self._open_stream(host, port)
            except (OSError, trio.TooSlowError):
                stream = None
            if stream is not None:
                try:
                    await self._converse(stream)
                finally:
                    self._stream = None
                    await trio.aclose_forcefully(stream)
            await trio.sleep(self._random.uniform(*_RECONNECT))

    async def _converse(self, stream: trio.abc.Stream) -> None:
        """Use a connection until it is lost, silent, or its session is over."""
        third = self._timeout / _PINGS
        try:
            await stream.send_all(pickle.dumps(Connect(self.session, self._timeout, self._seen)))
            self._sent_at = heard_at = trio.current_time()
            while True:
                ping_at, silent_at = self._sent_at + third, heard_at + 2 * third
                data: bytes | None = None
                with trio.move_on_at(min(ping_at, silent_at)):
                    data = bytes(await stream.receive_some())
                if data is None and trio.current_time() < silent_at and self._stream is not None:
                    await self._send(Ping())
                elif not data or not await self._heard(stream, pickle.loads(data)):  # noqa: S301 # made in this process by a server
                    return
                else:
                    heard_at = trio.current_time()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _heard(self, stream: trio.abc.Stream, message: ServerMessage) -> bool:
        """Handle a server's message; False if the session is over."""
        match message:
            case Connected():
                await self._connected(stream, message)
            case Expired():
                self.session, self._seen = 0, 0
                self._watched.clear()
                return False
            case Pong(zxid):
                self._seen = max(self._seen, zxid)
            case Reply():
                self._replied(message)
            case Notification(path, kind):
                for what in _ENDED_BY[kind]:
                    self._watched.pop((path, what), None)
                self._on_watch(path)
        return True

    async def _connected(self, stream: trio.abc.Stream, message: Connected) -> None:
        is_new = message.session != self.session
        self.session = message.session
        self._stream = stream
        if self._watched:
            data, missing, children = (
                tuple(path for (path, what) in self._watched if what is one) for one in _Watched
            )
            await self._send(Rewatch(data, missing, children, self._seen))
        self._seen = max(self._seen, message.zxid)
        for xid, pending in list(self._pending.items()):
            pending.sent_at = trio.current_time()
            await self._send(ZooKeeperRequest(xid, pending.operation))
        if is_new and self._had_session:
            self._on_new_session()
        self._had_session = True

    def _replied(self, reply: Reply) -> None:
        self._seen = max(self._seen, reply.zxid)
        pending = self._pending.get(reply.xid)
        if pending is None:
            return
        pending.reply, pending.took = reply, trio.current_time() - pending.sent_at
        pending.answered.set()
        match pending.operation:
            case Get(path, True):
                missing = reply.refusal is not None
                self._watched[path, _Watched.MISSING if missing else _Watched.DATA] = None
            case GetChildren(path, True) if reply.refusal is None:
                self._watched[path, _Watched.CHILDREN] = None

    async def _send(self, message: ClientMessage) -> None:
        assert self._stream is not None
        self._sent_at = trio.current_time()
        try:
            await self._stream.send_all(pickle.dumps(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()  # the reader notices, and every call is sent again
