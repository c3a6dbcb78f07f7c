"""The tree of znodes: one replica, changed only by the writes that the ensemble has agreed on.

INVARIANTS: two trees to which the same writes were applied are equal. An ephemeral znode exists
only while its session does.

Source: ZooKeeper's ``DataTree``.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, final

import attrs

ROOT: Final = "/"
PERSISTENT: Final = 0
"""The owner of a znode that belongs to no session."""


@final
class ZooKeeperError(enum.Enum):
    """Why a write or a read was refused; the names are ZooKeeper's."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_FOR_EPHEMERALS = "no children for ephemerals"
    SESSION_EXPIRED = "session expired"


@final
class ChangeKind(enum.Enum):
    """What has changed at a path."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


@final
@attrs.frozen
class Create:
    """Create a znode; with a session it is ephemeral."""

    path: str
    data: str
    session: int = PERSISTENT


@final
@attrs.frozen
class Delete:
    """Delete a znode that has no children."""

    path: str


@final
@attrs.frozen
class SetData:
    """Replace the data of a znode."""

    path: str
    data: str


@final
@attrs.frozen
class OpenSession:
    """Begin a session."""

    session: int


@final
@attrs.frozen
class EndSession:
    """End a session and delete its ephemeral znodes."""

    session: int


Write: TypeAlias = Create | Delete | SetData | OpenSession | EndSession


@final
@attrs.frozen
class ZnodeChange:
    """Something that watches are set for."""

    path: str
    kind: ChangeKind


@final
@attrs.frozen
class Applied:
    """The result of a write: why it was refused, or what it has changed."""

    refusal: ZooKeeperError | None = None
    changes: tuple[ZnodeChange, ...] = ()


@final
@attrs.define(eq=True)
class Znode:
    """A znode.

    Attributes:
        data: its data.
        owner: the session that it ends with, or ``PERSISTENT``.
        modified: the zxid of the write that gave it its data.
        children_modified: the zxid of the last write that added or removed a child.
        children: the names of its children, in the order of their creation.
    """

    data: str
    owner: int
    modified: int
    children_modified: int
    children: dict[str, None] = attrs.field(factory=dict)


@final
class Tree:
    """One replica. ``zxid`` counts the writes that were applied to it, refused ones included."""

    def __init__(self) -> None:
        self.zxid = 0
        self.sessions: Final[dict[int, dict[str, None]]] = {}
        """For each session its ephemeral znodes."""
        self._nodes: Final[dict[str, Znode]] = {ROOT: Znode("", PERSISTENT, 0, 0)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.zxid, self._nodes, self.sessions) == (
            other.zxid,
            other._nodes,
            other.sessions,
        )

    __hash__ = None  # type: ignore[assignment]

    def get(self, path: str) -> Znode | None:
        """The znode at a path, or None."""
        return self._nodes.get(path)

    def apply(self, write: Write) -> Applied:
        """Apply a write; one that is refused changes nothing but the zxid."""
        self.zxid += 1
        match write:
            case Create():
                return self._create(write)
            case Delete():
                return self._delete(write.path)
            case SetData():
                return self._set(write)
            case OpenSession():
                self.sessions[write.session] = {}
                return Applied()
            case EndSession():
                return self._end(write.session)

    def _create(self, write: Create) -> Applied:
        parent = self._nodes.get(parent_of(write.path))
        if write.session and write.session not in self.sessions:
            return Applied(ZooKeeperError.SESSION_EXPIRED)
        if write.path in self._nodes:
            return Applied(ZooKeeperError.NODE_EXISTS)
        if parent is None:
            return Applied(ZooKeeperError.NO_NODE)
        if parent.owner != PERSISTENT:
            return Applied(ZooKeeperError.NO_CHILDREN_FOR_EPHEMERALS)
        self._nodes[write.path] = Znode(write.data, write.session, self.zxid, self.zxid)
        parent.children[name_of(write.path)] = None
        parent.children_modified = self.zxid
        if write.session:
            self.sessions[write.session][write.path] = None
        return Applied(
            changes=(
                ZnodeChange(write.path, ChangeKind.CREATED),
                ZnodeChange(parent_of(write.path), ChangeKind.CHILDREN),
            )
        )

    def _delete(self, path: str) -> Applied:
        node = self._nodes.get(path)
        if node is None or path == ROOT:
            return Applied(ZooKeeperError.NO_NODE)
        if node.children:
            return Applied(ZooKeeperError.NOT_EMPTY)
        del self._nodes[path]
        parent = self._nodes[parent_of(path)]
        del parent.children[name_of(path)]
        parent.children_modified = self.zxid
        if node.owner:
            del self.sessions[node.owner][path]
        return Applied(
            changes=(
                ZnodeChange(path, ChangeKind.DELETED),
                ZnodeChange(parent_of(path), ChangeKind.CHILDREN),
            )
        )

    def _set(self, write: SetData) -> Applied:
        node = self._nodes.get(write.path)
        if node is None:
            return Applied(ZooKeeperError.NO_NODE)
        node.data, node.modified = write.data, self.zxid
        return Applied(changes=(ZnodeChange(write.path, ChangeKind.DATA),))

    def _end(self, session: int) -> Applied:
        if session not in self.sessions:
            return Applied(ZooKeeperError.SESSION_EXPIRED)
        changes = [
            change for path in list(self.sessions[session]) for change in self._delete(path).changes
        ]
        del self.sessions[session]
        return Applied(changes=tuple(changes))


def parent_of(path: str) -> str:
    """The path of a znode's parent."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """A znode's name among its siblings."""
    return path.rpartition("/")[2]
