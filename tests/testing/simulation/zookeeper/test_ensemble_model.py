"""The ensemble against a model: prefixes of one log, own writes, watches once, sessions in time."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kgroup.testing.simulation.zookeeper.ensemble import Ensemble, ZooKeeperConnection
from kgroup.testing.simulation.zookeeper.messages import (
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
    Create,
    Delete,
    EndSession,
    OpenSession,
    SetData,
    Write,
    ZnodeChange,
    ZooKeeperError,
    name_of,
    parent_of,
)

PATHS = ["/a", "/a", "/a/x", "/a/x", "/b", "/a/x/z"]
TIMEOUT = 6.0
TICK = 2.0
EPSILON = 1e-6
SERVERS = 3
clients = st.integers(0, 2)
paths = st.sampled_from(PATHS)
data = st.sampled_from(["1", "2"])

Nodes = dict[str, tuple[str, int]]
"""The model's tree: for each path its data and its session."""


@attrs.define(eq=False)
class Client:
    """A client, and what it may rely on."""

    name: str
    connection: ZooKeeperConnection | None = None
    session: int = 0
    heard_at: float = 0.0
    seen: int = 0
    xid: int = 0
    calls: dict[int, Any] = attrs.field(factory=dict)
    #: For each watched path, and whether its children are watched: the zxid at which it was set.
    watches: dict[tuple[str, bool], int] = attrs.field(factory=dict)


class EnsembleMachine(RuleBasedStateMachine):
    """Three clients of three servers, over a network without latency."""

    acting_at = 0.0
    """The time of what the ensemble does now."""

    @initialize(seed=st.integers(0, 1000), lag=st.sampled_from([0.0, 0.5, 3.0]))
    def begin(self, seed: int, lag: float) -> None:
        """Begin with an empty tree."""
        self.now = 0.0
        self.uninterrupted_since = 0.0
        self.clients = [Client(f"c{number}") for number in range(3)]
        self.of: dict[ZooKeeperConnection, Client] = {}
        self.states: list[Nodes] = [{"/": ("", 0)}]
        self.data_changes: defaultdict[str, list[int]] = defaultdict(list)
        self.child_changes: defaultdict[str, list[int]] = defaultdict(list)
        self.sessions: dict[int, float] = {}
        self.forced: set[int] = set()
        self.down: set[int] = set()
        chosen = EnsembleSettings(servers=SERVERS, tick=TICK, lag=lag, election=1.0)
        self.ensemble = Ensemble(chosen, Random(seed), self.sent, self)
        for number in range(len(self.clients)):
            self.connect(number, number)

    # The observer: the model follows the leader's log.

    def wrote(self, client: str, write: Write, refusal: ZooKeeperError | None) -> None:
        """A write has its place in the log; the model says whether it should be refused."""
        nodes, zxid = dict(self.states[-1]), len(self.states)
        expected = self.apply(nodes, zxid, write)
        assert refusal is expected, write
        self.states.append(nodes)
        if isinstance(write, EndSession):
            heard = self.sessions.pop(write.session, None)
            if heard is not None and not client and write.session not in self.forced:
                silent = self.acting_at - heard
                assert silent >= TIMEOUT - EPSILON
                if self.uninterrupted_since <= heard:
                    assert silent <= TIMEOUT + TICK + EPSILON

    def apply(self, nodes: Nodes, zxid: int, write: Write) -> ZooKeeperError | None:
        """The model's own rules."""
        if isinstance(write, OpenSession):
            self.sessions[write.session] = self.acting_at
            return None
        rules: dict[type, Any] = {
            EndSession: self.end,
            Create: self.create,
            Delete: self.delete,
            SetData: self.set_data,
        }
        refusal: ZooKeeperError | None = rules[type(write)](nodes, zxid, write)
        return refusal

    def end(self, nodes: Nodes, zxid: int, write: EndSession) -> ZooKeeperError | None:
        """A session ends with its znodes."""
        if write.session not in self.sessions:
            return ZooKeeperError.SESSION_EXPIRED
        for path in [one for one, (_, owner) in nodes.items() if owner == write.session]:
            self.remove(nodes, zxid, path)
        return None

    def create(self, nodes: Nodes, zxid: int, write: Create) -> ZooKeeperError | None:
        """A znode is created."""
        if write.session and write.session not in self.sessions:
            return ZooKeeperError.SESSION_EXPIRED
        parent = parent_of(write.path)
        if write.path in nodes or parent not in nodes or nodes[parent][1]:
            return self.why_no_create(nodes, write.path)
        nodes[write.path] = (write.data, write.session)
        self.data_changes[write.path].append(zxid)
        self.child_changes[parent].append(zxid)
        return None

    def delete(self, nodes: Nodes, zxid: int, write: Delete) -> ZooKeeperError | None:
        """A znode is deleted."""
        if write.path not in nodes:
            return ZooKeeperError.NO_NODE
        if any(parent_of(one) == write.path for one in nodes):
            return ZooKeeperError.NOT_EMPTY
        self.remove(nodes, zxid, write.path)
        return None

    def set_data(self, nodes: Nodes, zxid: int, write: SetData) -> ZooKeeperError | None:
        """A znode gets other data."""
        if write.path not in nodes:
            return ZooKeeperError.NO_NODE
        nodes[write.path] = (write.data, nodes[write.path][1])
        self.data_changes[write.path].append(zxid)
        return None

    def remove(self, nodes: Nodes, zxid: int, path: str) -> None:
        """Remove a node."""
        del nodes[path]
        self.data_changes[path].append(zxid)
        self.child_changes[path].append(zxid)
        self.child_changes[parent_of(path)].append(zxid)

    def read(self, client: str, read: Read) -> None:
        """Reads are checked when they are answered."""

    def notified(self, client: str, change: ZnodeChange) -> None:
        """Notifications are checked when they arrive."""

    # What servers send.

    def sent(self, connection: ZooKeeperConnection, message: ServerMessage | None) -> None:
        """A client receives a message at once."""
        client = self.of.get(connection)
        if client is None or client.connection is not connection:
            return
        match message:
            case None:
                client.connection = None
                client.calls.clear()
            case Connected(session, zxid):
                client.session = session
                self.saw(client, zxid)
            case Expired():
                assert client.session not in self.ensemble.tree.sessions
                client.session, client.seen = 0, 0
                client.watches.clear()
            case Pong(zxid):
                self.saw(client, zxid)
            case Notification(path):
                self.check_notification(client, path)
            case Reply():
                self.check_reply(client, message)

    def saw(self, client: Client, zxid: int) -> None:
        """What a client sees never goes back."""
        assert zxid >= client.seen
        client.seen = zxid

    def check_notification(self, client: Client, path: str) -> None:
        """A watch was set, and what it watches has changed since; it is gone now."""
        fired = [
            key
            for key, zxid in client.watches.items()
            if key[0] == path and self.changes(key)[-1:] > [zxid]
        ]
        assert fired, path
        del client.watches[fired[0]]

    def changes(self, key: tuple[str, bool]) -> list[int]:
        """The zxids at which what a watch is for has changed."""
        return (self.child_changes if key[1] else self.data_changes)[key[0]]

    def check_reply(self, client: Client, reply: Reply) -> None:
        """A read shows one state of the log, and no later one than its watches were told of."""
        call = client.calls.pop(reply.xid)
        if not isinstance(call, Get | GetMany | GetChildren):
            self.saw(client, reply.zxid)
            assert reply.refusal is self.refusal_of(reply.zxid, call)
            return
        self.saw(client, reply.zxid)
        for key, since in client.watches.items():
            assert not any(since < one <= reply.zxid for one in self.changes(key)), key
        nodes = self.states[reply.zxid]
        match call:
            case GetMany(many):
                assert reply.value == tuple(nodes.get(one, (None, 0))[0] for one in many)
            case Get(path, watch):
                assert reply.value == nodes.get(path, (None, 0))[0]
                if watch:
                    client.watches[path, False] = reply.zxid
            case GetChildren(path, watch):
                if path not in nodes:
                    assert reply.refusal is ZooKeeperError.NO_NODE
                    return
                names = {name_of(one) for one in nodes if one != "/" and parent_of(one) == path}
                assert isinstance(reply.value, tuple)
                assert set(reply.value) == names
                if watch:
                    client.watches[path, True] = reply.zxid

    def refusal_of(self, zxid: int, call: Any) -> ZooKeeperError | None:
        """Whether a write at a place in the log has changed the tree, by its effect."""
        before, after = self.states[zxid - 1], self.states[zxid]
        match call:
            case Create(path):
                if path in after and path not in before:
                    return None
                return self.why_no_create(before, path)
            case Delete(path):
                if path in before and path not in after:
                    return None
                return ZooKeeperError.NOT_EMPTY if path in before else ZooKeeperError.NO_NODE
            case _:
                return None if call.path in after else ZooKeeperError.NO_NODE

    def why_no_create(self, nodes: Nodes, path: str) -> ZooKeeperError:
        """Why a znode cannot be created."""
        if path in nodes:
            return ZooKeeperError.NODE_EXISTS
        parent = nodes.get(parent_of(path))
        return (
            ZooKeeperError.NO_NODE if parent is None else ZooKeeperError.NO_CHILDREN_FOR_EPHEMERALS
        )

    # Rules.

    def act(self) -> float:
        """The time of the next input."""
        self.acting_at = self.now
        return self.now

    def tell(self, client: Client, message: Any) -> None:
        """A client sends a message, and with it renews its session."""
        if client.connection is None:
            return
        if client.session in self.sessions:
            self.sessions[client.session] = self.now
        self.ensemble.receive(self.act(), client.connection, message)

    @rule(number=clients, server=st.integers(0, SERVERS - 1))
    def connect(self, number: int, server: int) -> None:
        """A client connects to a server, or to another one, and sets its watches again."""
        self.disconnect(number)
        client = self.clients[number]
        try:
            client.connection = self.ensemble.connect(self.act(), client.name, server)
        except ConnectionRefusedError:
            assert server in self.down or 2 * len(self.down) > SERVERS
            return
        self.of[client.connection] = client
        if client.session in self.sessions:
            self.sessions[client.session] = self.now
        connection = client.connection
        self.ensemble.receive(self.act(), connection, Connect(client.session, TIMEOUT, client.seen))
        if client.connection is connection and client.watches:
            children = tuple(path for path, of_children in client.watches if of_children)
            others = [
                (path, path in self.states[since])
                for (path, of_children), since in client.watches.items()
                if not of_children
            ]
            data = tuple(path for path, existed in others if existed)
            missing = tuple(path for path, existed in others if not existed)
            message = Rewatch(data, missing, children, client.seen)
            self.ensemble.receive(self.act(), connection, message)

    @rule(number=clients)
    def disconnect(self, number: int) -> None:
        """The network breaks a connection."""
        client = self.clients[number]
        if client.connection is not None:
            connection, client.connection = client.connection, None
            client.calls.clear()
            self.ensemble.lost(self.act(), connection)

    @rule(
        number=clients,
        operation=st.one_of(
            st.builds(Create, paths, data, st.sampled_from([0, 1])),
            st.builds(Delete, paths),
            st.builds(SetData, paths, data),
        ),
    )
    def write(self, number: int, operation: Any) -> None:
        """A client calls a write."""
        self.call(number, operation)

    @rule(
        number=clients,
        operation=st.one_of(
            st.builds(Get, paths, st.booleans()),
            st.builds(GetChildren, paths, st.booleans()),
            st.builds(GetMany, st.lists(paths, min_size=1).map(tuple)),
        ),
    )
    def look(self, number: int, operation: Any) -> None:
        """A client calls a read."""
        self.call(number, operation)

    def call(self, number: int, operation: Any) -> None:
        """A client calls an operation; one without a connection connects first."""
        client = self.clients[number]
        if client.connection is None:
            self.connect(number, number)
        if client.connection is None or not client.session:
            return
        client.xid += 1
        client.calls[client.xid] = operation
        self.tell(client, ZooKeeperRequest(client.xid, operation))

    @rule(number=clients, message=st.sampled_from([Ping(), Ping(), Ping(), Close()]))
    def ping(self, number: int, message: Any) -> None:
        """A client renews or closes its session."""
        if self.clients[number].session:
            self.tell(self.clients[number], message)

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.5, 9.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        end = self.now + seconds
        while self.ensemble.due <= end:
            self.now = self.acting_at = max(self.now, self.ensemble.due)
            self.ensemble.advance(self.now)
        self.now = end

    @rule(number=clients)
    def expire(self, number: int) -> None:
        """An operator ends a session."""
        session = self.clients[number].session
        if session in self.sessions:
            self.forced.add(session)
            self.ensemble.expire_session(self.act(), session)

    @rule(server=st.integers(0, SERVERS - 1))
    def stop(self, server: int) -> None:
        """A server stops."""
        self.down.add(server)
        self.uninterrupted_since = self.now + 1.0
        self.ensemble.stop_server(self.act(), server)

    @precondition(lambda self: self.down)
    @rule()
    def start(self) -> None:
        """A server starts."""
        self.uninterrupted_since = self.now + 1.0
        self.ensemble.start_server(self.act(), self.down.pop())

    @rule(away=st.sampled_from([0.0, 2.0]))
    def lead(self, away: float) -> None:
        """Another server leads."""
        self.uninterrupted_since = max(self.uninterrupted_since, self.now + away)
        self.ensemble.move_leader(self.act(), away)

    @invariant()
    def ephemerals_end_with_their_sessions(self) -> None:
        """In the leader's tree, every ephemeral znode has a living session."""
        if hasattr(self, "states"):
            owners = {owner for _, owner in self.states[-1].values() if owner}
            assert owners <= self.sessions.keys()

    def teardown(self) -> None:
        """Once all servers run and time has passed, all replicas are equal."""
        if not hasattr(self, "ensemble"):
            return
        while self.down:
            self.start()
        self.wait(20.0)
        assert self.ensemble.tree.zxid == len(self.states) - 1
        for server in self.ensemble._servers:
            assert server.tree == self.ensemble.tree


TestEnsemble = EnsembleMachine.TestCase
TestEnsemble.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
