"""An ensemble of servers: a leader's log of writes, replicas that lag, sessions and watches.

Theory of operation
-------------------
All writes go through the leader, which orders them in one log (``zxid`` is a position in it). A
server applies the log to its own replica, in order, each write up to ``lag`` later than the leader.
A client is connected to one server. That server answers its reads from its own replica, which may
be behind, and a write only when the replica has it, so that a client sees its own writes. A client
that connects again says how much it has seen, and a server that is behind that refuses it.

A watch is kept by the server on which it was set, fires once, when that replica applies a change,
and is sent before any later answer on that connection.

The leader ends a session when it has heard nothing for the session's time-out, at the next multiple
of ``tick``. To end it is a write like any other: each replica deletes the ephemeral znodes when it
comes to it. The client learns of it only from a server. While there is no leader, or no majority,
nothing is written and no session ends; a new leader gives every session its whole time-out again.

Time is an argument. `Ensemble.advance` does what is due, and `Ensemble.due` says when it has to be
called next. Nothing here does I/O; the caller gets what servers send by a callback.

INVARIANTS: every replica is a prefix of the leader's log. Every random choice comes from the
generator given. On one connection nothing overtakes anything.

Source: ZooKeeper's programmer's guide (sessions, watches, consistency guarantees), and its
``SessionTrackerImpl``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final, Protocol, final

import attrs

from kgroup.testing.simulation.zookeeper.messages import (
    ClientMessage,
    Close,
    Connect,
    Connected,
    EnsembleSettings,
    Expired,
    Get,
    GetChildren,
    GetMany,
    Notification,
    Ping,
    Pong,
    Read,
    Reply,
    Rewatch,
    ServerMessage,
    ZooKeeperRequest,
)
from kgroup.testing.simulation.zookeeper.tree import (
    Applied,
    ChangeKind,
    Create,
    EndSession,
    OpenSession,
    Tree,
    Write,
    ZnodeChange,
    ZooKeeperError,
)

_DATA: Final = False
_CHILDREN: Final = True
_FIRED_BY: Final = {
    ChangeKind.CREATED: (_DATA,),
    ChangeKind.DATA: (_DATA,),
    ChangeKind.DELETED: (_DATA, _CHILDREN),
    ChangeKind.CHILDREN: (_CHILDREN,),
}
"""Which watches of a path a change fires: those of its data, those of its children."""


class EnsembleObserver(Protocol):
    """Learns what an ensemble does; it must not call it."""

    def wrote(self, client: str, write: Write, refusal: ZooKeeperError | None) -> None:
        """The leader has ordered a write of a client; "" is the ensemble itself."""
        ...

    def read(self, client: str, read: Read) -> None:
        """A server has answered a read."""
        ...

    def notified(self, client: str, change: ZnodeChange) -> None:
        """A server has sent a notification."""
        ...


@final
@attrs.define(eq=False)
class ZooKeeperConnection:
    """A connection of a client to a server.

    Attributes:
        client: the client's name, for observers.
        server: the server's number.
        session: the session that it belongs to; 0 before.
        open: whether neither end has closed it.
    """

    client: str
    server: int
    session: int = 0
    open: bool = True


@final
@attrs.define(eq=False)
class _Session:
    timeout: float
    connection: ZooKeeperConnection | None
    deadline: float = 0.0
    check_at: float = -1.0
    """When the leader checks it next."""


@final
@attrs.define(eq=False)
class _Server:
    number: int
    up: bool = True
    tree: Tree = attrs.field(factory=Tree)
    last_at: float = 0.0
    """When it applies the last write that it knows of."""
    answers: dict[int, Callable[[Applied], None]] = attrs.field(factory=dict)
    """By zxid, what to do when it has applied that write."""
    watches: dict[tuple[str, bool], dict[ZooKeeperConnection, None]] = attrs.field(factory=dict)
    connections: dict[ZooKeeperConnection, None] = attrs.field(factory=dict)


@final
class Ensemble:
    """The servers, and what they have agreed on.

    Args:
        settings: how they behave.
        random: every random choice.
        send: called with what a server sends on a connection; None closes the connection.
        observer: learns what happens.
    """

    def __init__(
        self,
        settings: EnsembleSettings,
        random: Random,
        send: Callable[[ZooKeeperConnection, ServerMessage | None], None],
        observer: EnsembleObserver,
    ) -> None:
        self.tree: Final = Tree()
        """What the leader has written: the truth, which replicas follow."""
        self._settings = settings
        self._random = random
        self._send = send
        self._observer = observer
        self._servers = [_Server(number) for number in range(settings.servers)]
        self._leader = 0
        self._log: list[Write] = []
        self._waiting: deque[tuple[ZooKeeperConnection | None, Write, Callable[[int], None]]] = (
            deque()
        )
        self._sessions: dict[int, _Session] = {}
        self._next_session = 1
        self._pauses_until = 0.0
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    # Time.

    @property
    def due(self) -> float:
        """When `advance` has to be called next; infinite if nothing will happen by itself."""
        return self._agenda[0][0] if self._agenda else math.inf

    def advance(self, now: float) -> None:
        """Do everything that is due by now, in the order of its time."""
        while self._agenda and self._agenda[0][0] <= now:
            at, _, act = heapq.heappop(self._agenda)
            act(at)

    def _later(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), act))

    # Clients.

    def connect(self, now: float, client: str, server: int) -> ZooKeeperConnection:
        """A client opens a connection.

        Raises:
            ConnectionRefusedError: the server is down, or the ensemble has no majority.
        """
        self.advance(now)
        if not self._servers[server].up or not self._has_majority():
            raise ConnectionRefusedError(f"ZooKeeper server {server} does not serve")
        connection = ZooKeeperConnection(client, server)
        self._servers[server].connections[connection] = None
        return connection

    def lost(self, now: float, connection: ZooKeeperConnection) -> None:
        """A connection was closed by the client or broken by the network; its session goes on."""
        self.advance(now)
        self._forget(connection)

    def receive(self, now: float, connection: ZooKeeperConnection, message: ClientMessage) -> None:
        """A server receives a message; what it answers is sent at once or when it is due."""
        self.advance(now)
        if not connection.open:
            return
        session = self._sessions.get(connection.session)
        if session is not None:
            self._touch(now, session)
        elif not isinstance(message, Connect):
            self._expire(connection)
            return
        server = self._servers[connection.server]
        match message:
            case Connect():
                self._connecting(now, connection, server, message)
            case Ping():
                self._send(connection, Pong(server.tree.zxid))
            case Close():
                self._submit(now, connection, EndSession(connection.session), _nothing)
            case Rewatch():
                self._rewatch(server, connection, message)
            case ZooKeeperRequest():
                self._called(now, connection, server, message)

    def _called(
        self,
        now: float,
        connection: ZooKeeperConnection,
        server: _Server,
        message: ZooKeeperRequest,
    ) -> None:
        operation = message.operation
        if isinstance(operation, Get | GetMany | GetChildren):
            self._read(server, connection, message.xid, operation)
            return
        if isinstance(operation, Create) and operation.session:
            operation = attrs.evolve(operation, session=connection.session)
        self._submit(
            now,
            connection,
            operation,
            lambda zxid: self._answer_at(server, connection, message.xid, zxid),
        )

    def write(self, now: float, write: Write) -> None:
        """A write of the brokers, which are no clients here."""
        self.advance(now)
        self._submit(now, None, write, _nothing)

    def _connecting(
        self, now: float, connection: ZooKeeperConnection, server: _Server, message: Connect
    ) -> None:
        if message.session == 0:
            number = self._next_session
            self._next_session += 1
            self._attach(now, connection, number, message.timeout)

            def opened(zxid: int) -> None:
                server.answers[zxid] = lambda _: self._answer(connection, Connected(number, zxid))

            self._submit(now, connection, OpenSession(number), opened)
        elif message.session not in self._sessions:
            self._expire(connection)
        elif server.tree.zxid < message.seen:
            self._drop(connection)
        else:
            before = self._sessions[message.session].connection
            if before is not None and before is not connection:
                self._drop(before)
            self._attach(now, connection, message.session, message.timeout)
            self._send(connection, Connected(message.session, server.tree.zxid))

    def _attach(
        self, now: float, connection: ZooKeeperConnection, number: int, timeout: float
    ) -> None:
        connection.session = number
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = _Session(timeout, connection)
        session.connection = connection
        self._touch(now, session)
        if session.check_at < now:
            self._check_later(number, session)

    def _expire(self, connection: ZooKeeperConnection) -> None:
        self._send(connection, Expired())
        self._drop(connection)

    def _drop(self, connection: ZooKeeperConnection) -> None:
        """Close a connection from the server's side."""
        if connection.open:
            self._forget(connection)
            self._send(connection, None)

    def _forget(self, connection: ZooKeeperConnection) -> None:
        connection.open = False
        server = self._servers[connection.server]
        server.connections.pop(connection, None)
        for watchers in server.watches.values():
            watchers.pop(connection, None)
        session = self._sessions.get(connection.session)
        if session is not None and session.connection is connection:
            session.connection = None

    # Sessions.

    def _touch(self, now: float, session: _Session) -> None:
        tick = self._settings.tick
        session.deadline = math.ceil((now + session.timeout) / tick) * tick

    def _check_later(self, number: int, session: _Session) -> None:
        session.check_at = session.deadline
        self._later(session.deadline, lambda at: self._check_session(at, number))

    def _check_session(self, now: float, number: int) -> None:
        session = self._sessions.get(number)
        if session is None or session.check_at != now or not self._writes(now):
            return  # a new leader begins again
        if session.deadline > now:
            self._check_later(number, session)
        else:
            self._write(now, None, EndSession(number), _nothing)

    def expire_session(self, now: float, number: int) -> None:
        """End a session before its time, as an operator can."""
        self.advance(now)
        if number in self._sessions:
            self._submit(now, None, EndSession(number), _nothing)

    # Reads and watches.

    def _read(self, server: _Server, connection: ZooKeeperConnection, xid: int, read: Read) -> None:
        tree, refusal = server.tree, None
        value: str | tuple[str | None, ...] | None = None
        match read:
            case GetMany(paths):
                nodes = map(tree.get, paths)
                value = tuple(None if node is None else node.data for node in nodes)
            case Get(path) | GetChildren(path):
                node = tree.get(path)
                children = isinstance(read, GetChildren)
                if node is None:
                    refusal = ZooKeeperError.NO_NODE
                else:
                    value = tuple(node.children) if children else node.data
                if read.watch and (node is not None or not children):
                    server.watches.setdefault((path, children), {})[connection] = None
        self._observer.read(connection.client, read)
        self._send(connection, Reply(xid, tree.zxid, refusal, value))

    def _rewatch(self, server: _Server, connection: ZooKeeperConnection, message: Rewatch) -> None:
        for path in message.missing:
            fires = server.tree.get(path) is not None
            self._watch_or_notify(server, connection, path, ChangeKind.CREATED, fires=fires)
        for path in message.data:
            node = server.tree.get(path)
            kind = ChangeKind.DELETED if node is None else ChangeKind.DATA
            fires = node is None or node.modified > message.seen
            self._watch_or_notify(server, connection, path, kind, fires=fires)
        for path in message.children:
            node = server.tree.get(path)
            fires = node is None or node.children_modified > message.seen
            self._watch_or_notify(server, connection, path, ChangeKind.CHILDREN, fires=fires)

    def _watch_or_notify(
        self,
        server: _Server,
        connection: ZooKeeperConnection,
        path: str,
        kind: ChangeKind,
        *,
        fires: bool,
    ) -> None:
        if fires:
            self._notify(connection, ZnodeChange(path, kind))
        else:
            watched = path, kind is ChangeKind.CHILDREN
            server.watches.setdefault(watched, {})[connection] = None

    def _fire(self, server: _Server, change: ZnodeChange) -> None:
        for children in _FIRED_BY[change.kind]:
            for connection in server.watches.pop((change.path, children), ()):
                self._notify(connection, change)

    def _notify(self, connection: ZooKeeperConnection, change: ZnodeChange) -> None:
        self._observer.notified(connection.client, change)
        self._send(connection, Notification(change.path, change.kind))

    # Writes.

    def _writes(self, now: float) -> bool:
        return self._has_majority() and now >= self._pauses_until

    def _has_majority(self) -> bool:
        return 2 * sum(server.up for server in self._servers) > len(self._servers)

    def _submit(
        self,
        now: float,
        connection: ZooKeeperConnection | None,
        write: Write,
        ordered: Callable[[int], None],
    ) -> None:
        """Hand a write to the leader; without a leader it waits for the next one."""
        if self._writes(now):
            self._write(now, connection, write, ordered)
        else:
            self._waiting.append((connection, write, ordered))

    def _write(
        self,
        now: float,
        connection: ZooKeeperConnection | None,
        write: Write,
        ordered: Callable[[int], None],
    ) -> None:
        applied = self.tree.apply(write)
        self._log.append(write)
        if isinstance(write, EndSession):
            self._sessions.pop(write.session, None)
        client = "" if connection is None else connection.client
        self._observer.wrote(client, write, applied.refusal)
        ordered(self.tree.zxid)
        for server in self._servers:
            if not server.up:
                continue
            lag = 0.0
            if server.number != self._leader:
                lag = self._random.uniform(0.0, self._settings.lag)
            server.last_at = max(server.last_at, now + lag)
            if server.last_at <= now:
                self._catch_up(server, self.tree.zxid)
            else:
                zxid = self.tree.zxid
                self._later(
                    server.last_at,
                    lambda _, server=server, zxid=zxid: self._catch_up(server, zxid),  # type: ignore[misc]
                )

    def _catch_up(self, server: _Server, zxid: int) -> None:
        """Let a replica apply the log up to a position."""
        while server.up and server.tree.zxid < zxid:
            write = self._log[server.tree.zxid]
            applied = server.tree.apply(write)
            for change in applied.changes:
                self._fire(server, change)
            answer = server.answers.pop(server.tree.zxid, None)
            if answer is not None:
                answer(applied)
            if isinstance(write, EndSession):
                self._end_connections(server, write.session)

    def _end_connections(self, server: _Server, session: int) -> None:
        for connection in [one for one in server.connections if one.session == session]:
            self._expire(connection)

    def _answer_at(
        self, server: _Server, connection: ZooKeeperConnection, xid: int, zxid: int
    ) -> None:
        server.answers[zxid] = lambda applied: self._answer(
            connection, Reply(xid, zxid, applied.refusal)
        )

    def _answer(self, connection: ZooKeeperConnection, message: ServerMessage) -> None:
        if connection.open:
            self._send(connection, message)

    # Faults.

    def stop_server(self, now: float, number: int) -> None:
        """A server stops; its clients lose their connections, and a leader is replaced."""
        self.advance(now)
        server = self._servers[number]
        if not server.up:
            return
        server.up = False
        server.answers.clear()
        for connection in list(server.connections):
            self._drop(connection)
        if not self._has_majority():
            for other in self._servers:
                for connection in list(other.connections):
                    self._drop(connection)
        elif number == self._leader:
            self._elect(now, self._settings.election)

    def start_server(self, now: float, number: int) -> None:
        """A server starts again, with everything that was written meanwhile."""
        self.advance(now)
        had_majority = self._has_majority()
        server = self._servers[number]
        if server.up:
            return
        server.up = True
        server.last_at = now
        self._catch_up(server, len(self._log))
        if self._has_majority() and not had_majority:
            self._elect(now, self._settings.election)

    def move_leader(self, now: float, away: float) -> None:
        """Another server leads; until then nothing is written for some seconds."""
        self.advance(now)
        self._elect(now, away)

    def _elect(self, now: float, away: float) -> None:
        running = [server.number for server in self._servers if server.up]
        if not running:
            return
        others = [number for number in running if number != self._leader]
        self._leader = self._random.choice(others or running)
        self._pauses_until = max(self._pauses_until, now + away)
        self._later(self._pauses_until, self._resume)

    def _resume(self, now: float) -> None:
        """A new leader has taken over: sessions begin again, and waiting writes are ordered."""
        if not self._writes(now):
            return
        for server in self._servers:
            if server.up and server.number == self._leader:
                server.last_at = now
                self._catch_up(server, len(self._log))
        for number, session in self._sessions.items():
            self._touch(now, session)
            self._check_later(number, session)
        while self._waiting:
            self._write(now, *self._waiting.popleft())


def _nothing(_: int) -> None:
    """No client waits for this write."""
