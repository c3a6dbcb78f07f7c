"""What clients and servers say to each other, and the settings of an ensemble."""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from kgroup import bounds
from kgroup.testing.simulation.zookeeper.tree import (
    ChangeKind,
    Create,
    Delete,
    SetData,
    ZooKeeperError,
)

SERVERS: Final = bounds.whole(1, 100)
_SECONDS: Final = bounds.seconds(0, 3600)


@final
@attrs.frozen(kw_only=True)
class EnsembleSettings:
    """How an ensemble behaves. Durations are float seconds.

    Attributes:
        servers: how many there are.
        tick: sessions expire only at multiples of it, so up to one tick late; ZooKeeper's
            ``tickTime``.
        lag: the most by which a server that does not lead applies a write later than the leader.
        election: how long nothing is written after the leader has stopped.

    Raises:
        ConfigError: a value is out of bounds.
    """

    servers: int = attrs.field(default=3, validator=SERVERS)
    tick: float = attrs.field(default=2.0, validator=bounds.seconds(0.001, 3600))
    lag: float = attrs.field(default=0.02, validator=_SECONDS)
    election: float = attrs.field(default=1.0, validator=_SECONDS)


# From a client.


@final
@attrs.frozen
class Connect:
    """Open a session (0) or continue one, unless this server is behind what the client has seen."""

    session: int
    timeout: float
    seen: int


@final
@attrs.frozen
class Ping:
    """Renew the session."""


@final
@attrs.frozen
class Close:
    """End the session now."""


@final
@attrs.frozen
class Get:
    """Read the data of a znode; with a watch also if it does not exist yet."""

    path: str
    watch: bool = False


@final
@attrs.frozen
class GetMany:
    """Read the data of several znodes. It stands for as many reads, one after the other."""

    paths: tuple[str, ...]


@final
@attrs.frozen
class GetChildren:
    """Read the names of a znode's children."""

    path: str
    watch: bool = False


Read: TypeAlias = Get | GetMany | GetChildren
Operation: TypeAlias = Read | Create | Delete | SetData


@final
@attrs.frozen
class ZooKeeperRequest:
    """An operation; a `Create` is ephemeral if its session is not 0."""

    xid: int
    operation: Operation


@final
@attrs.frozen
class Rewatch:
    """Set the watches of an earlier connection again; those that should have fired do so now.

    Attributes:
        data: the paths whose data are watched.
        missing: the paths that are watched until there is a znode.
        children: the paths whose children are watched.
        seen: the zxid up to which the client has seen the tree.
    """

    data: tuple[str, ...]
    missing: tuple[str, ...]
    children: tuple[str, ...]
    seen: int


ClientMessage: TypeAlias = Connect | Ping | Close | ZooKeeperRequest | Rewatch

# From a server.


@final
@attrs.frozen
class Connected:
    """The connection belongs to this session now."""

    session: int
    zxid: int


@final
@attrs.frozen
class Expired:
    """The session is over; its ephemeral znodes are deleted."""


@final
@attrs.frozen
class Pong:
    """The session was renewed."""

    zxid: int


@final
@attrs.frozen
class Reply:
    """The result of a call.

    Attributes:
        xid: the call's.
        zxid: how far this server is.
        refusal: why the operation was refused, or None.
        value: what was read: data, or names, or for each path its data or None.
    """

    xid: int
    zxid: int
    refusal: ZooKeeperError | None = None
    value: str | tuple[str | None, ...] | None = None


@final
@attrs.frozen
class Notification:
    """A watch has fired, and is gone."""

    path: str
    kind: ChangeKind


ServerMessage: TypeAlias = Connected | Expired | Pong | Reply | Notification
