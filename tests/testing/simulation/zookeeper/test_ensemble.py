"""The ensemble, one rule at a time; ``test_ensemble_model`` tries them together."""

from __future__ import annotations

from random import Random

import pytest

from kgroup.testing.simulation.zookeeper.ensemble import Ensemble, ZooKeeperConnection
from kgroup.testing.simulation.zookeeper.messages import (
    Connect,
    EnsembleSettings,
    Expired,
    Get,
    GetChildren,
    Notification,
    Ping,
    Read,
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
    Write,
    ZnodeChange,
    ZooKeeperError,
)


class Group:
    """An ensemble of three servers, and what each connection was sent."""

    def __init__(self, lag: float = 0.0) -> None:
        self.sent: dict[ZooKeeperConnection, list[ServerMessage | None]] = {}
        settings = EnsembleSettings(servers=3, tick=2.0, lag=lag, election=1.0)
        self.ensemble = Ensemble(settings, Random(1), self._send, self)
        self.xid = 0

    def _send(self, connection: ZooKeeperConnection, message: ServerMessage | None) -> None:
        self.sent[connection].append(message)

    def wrote(self, client: str, write: Write, refusal: ZooKeeperError | None) -> None:
        """Nothing to note."""

    def read(self, client: str, read: Read) -> None:
        """Nothing to note."""

    def notified(self, client: str, change: ZnodeChange) -> None:
        """Nothing to note."""

    def client(self, server: int = 0, session: int = 0, seen: int = 0) -> ZooKeeperConnection:
        """A client with a session."""
        connection = self.ensemble.connect(0.0, f"on {server}", server)
        self.sent[connection] = []
        self.ensemble.receive(0.0, connection, Connect(session, 6.0, seen))
        return connection

    def call(self, connection: ZooKeeperConnection, operation: object, now: float = 0.0) -> Reply:
        """The answer to a call that is answered at once."""
        self.xid += 1
        self.ensemble.receive(now, connection, ZooKeeperRequest(self.xid, operation))  # type: ignore[arg-type]
        reply = self.sent[connection][-1]
        assert isinstance(reply, Reply)
        return reply

    def notifications(self, connection: ZooKeeperConnection) -> list[tuple[str, ChangeKind]]:
        """The watches that have fired."""
        found = [one for one in self.sent[connection] if isinstance(one, Notification)]
        return [(one.path, one.kind) for one in found]


def test_a_watch_fires_once() -> None:
    """Of two changes after a watched read, only the first is notified."""
    group = Group()
    reader, writer = group.client(), group.client()
    group.call(writer, Create("/a", ""))
    group.call(reader, Get("/a", watch=True))
    group.call(writer, SetData("/a", "1"))
    group.call(writer, SetData("/a", "2"))
    assert group.notifications(reader) == [("/a", ChangeKind.DATA)]


def test_each_read_watches_what_it_has_read() -> None:
    """A watch of children fires for a new child, one of a missing znode when it is created."""
    group = Group()
    reader, writer = group.client(), group.client()
    group.call(reader, GetChildren("/", watch=True))
    assert group.call(reader, Get("/a", watch=True)).refusal is ZooKeeperError.NO_NODE
    group.call(writer, Create("/a", ""))
    assert group.notifications(reader) == [("/a", ChangeKind.CREATED), ("/", ChangeKind.CHILDREN)]


@pytest.mark.parametrize(
    ("write", "fires"),
    [
        (SetData("/a", "1"), [("/a", ChangeKind.DATA)]),
        (Create("/a/x", ""), [("/a", ChangeKind.CHILDREN)]),
        (Create("/b", ""), [("/b", ChangeKind.CREATED)]),
        (Create("/c", ""), []),
    ],
)
def test_watches_set_again_fire_for_what_was_missed(
    write: Write, fires: list[tuple[str, ChangeKind]]
) -> None:
    """After a lost connection, a watch fires if something has changed since, and only then."""
    group = Group()
    reader, writer = group.client(), group.client()
    group.call(writer, Create("/a", ""))
    seen = group.call(reader, Get("/a")).zxid
    group.ensemble.lost(0.0, reader)
    group.call(writer, write)
    again = group.client(1, session=reader.session, seen=seen)
    group.ensemble.receive(0.0, again, Rewatch(("/a",), ("/b",), ("/a",), seen))
    assert group.notifications(again) == fires
    group.call(writer, Delete("/a/x"))


def test_an_ephemeral_znode_ends_with_a_silent_session() -> None:
    """It is deleted at the first tick after the time-out, and its client is told when it asks."""
    group = Group()
    silent, other = group.client(), group.client()
    group.call(silent, Create("/a", "", 1), now=1.0)
    group.call(other, Get("/a", watch=True), now=1.0)
    for now in (3.0, 6.0, 7.9):
        group.ensemble.receive(now, other, Ping())
        assert group.ensemble.tree.get("/a") is not None
    group.ensemble.advance(8.0)
    assert group.notifications(other) == [("/a", ChangeKind.DELETED)]
    assert group.sent[silent][-2:] == [Expired(), None]
    again = group.client(2, session=silent.session)
    assert group.sent[again] == [Expired(), None]


def test_a_server_may_be_behind_but_not_for_a_client_that_has_seen_more() -> None:
    """A read at another server misses a write; a client that has seen it is refused there."""
    group = Group(lag=5.0)
    writer = group.client()
    group.ensemble.advance(10.0)
    reader = group.ensemble.connect(10.0, "reader", 1)
    group.sent[reader] = []
    group.ensemble.receive(10.0, reader, Connect(writer.session, 6.0, 0))
    second = group.ensemble.connect(10.0, "writer", 0)
    group.sent[second] = []
    group.ensemble.receive(10.0, second, Connect(0, 6.0, 0))
    written = group.call(second, Create("/a", ""), now=10.0).zxid
    behind = group.ensemble.connect(10.0, "writer", 2)
    group.sent[behind] = []
    group.ensemble.receive(10.0, behind, Connect(second.session, 6.0, written))
    assert group.sent[behind] == [None]


def test_without_a_majority_nobody_is_served_and_no_session_ends() -> None:
    """Clients lose their connections; with the majority back, sessions have their whole time."""
    group = Group()
    client = group.client()
    group.call(client, Create("/a", "", 1))
    for number in (1, 2):
        group.ensemble.stop_server(0.0, number)
    assert group.sent[client][-1] is None
    with pytest.raises(ConnectionRefusedError, match="server 0 does not serve"):
        group.ensemble.connect(1.0, "client", 0)
    group.ensemble.start_server(100.0, 1)
    group.ensemble.advance(105.0)
    assert group.ensemble.tree.get("/a") is not None
    group.ensemble.advance(110.0)
    assert group.ensemble.tree.get("/a") is None
