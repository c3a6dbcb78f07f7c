"""One broker on the network: its listeners, its connections, and what a test does to them.

What requests mean is said below this module, what a broker's coming and going means to the
others above it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final, final

import trio

from kgroup.broker.bytes_in_flight import BytesInFlight
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.connection import ClientConnection
from kgroup.broker.faults import InjectedFaults
from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.idle_connections import IdleClients
from kgroup.broker.memory_pipe import pipe
from kgroup.broker.node import Node

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # to recognise it
"""Addresses to listen on that nobody can connect to -> what clients are told instead."""
_UNLIMITED: Final = 2**31 - 1
_IN_MEMORY: Final = "memory"
"""Where clients of a broker in memory come from."""


@final
class Endpoint:
    """Where one broker is reached.

    Attributes:
        faults: what goes wrong on purpose.

    Args:
        cluster: what its requests are about.
        node: the broker.
        nursery: where listeners and connections are served.
        address: host and port to listen on, or to be known by in memory.
        in_memory: whether there are no sockets.
    """

    def __init__(
        self,
        cluster: ClusterState,
        node: Node,
        nursery: trio.Nursery,
        address: tuple[str, int],
        *,
        in_memory: bool,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._nursery = nursery
        self._address = address
        self._in_memory = in_memory
        self.faults: Final = InjectedFaults()
        settings = cluster.settings
        self._idle_clients = IdleClients(settings.connections_max_idle)
        self._bytes_in_flight = BytesInFlight(settings.queued_max_bytes)
        self._connections: dict[ClientConnection, str] = {}
        """Each with the host that it comes from."""
        nursery.start_soon(self._idle_clients.alarm.run)
        self._ended = trio.Event()
        self._listening: trio.CancelScope | None = None
        self._listeners: list[trio.SocketListener] = []

    @property
    def coordinator(self) -> GroupCoordinatorService:
        """The groups that the broker coordinates."""
        return self._node.groups.coordinator

    # Where it is.

    @property
    def host(self) -> str:
        """The host that clients are told."""
        return self._node.address.host

    @property
    def port(self) -> int:
        """The port that clients are told."""
        return self._node.address.port

    @property
    def bootstrap_server(self) -> str:
        """``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_listening(self) -> bool:
        """Whether new connections are taken."""
        return self._listening is not None

    async def connect(self) -> trio.abc.Stream:
        """Open a connection in memory.

        Raises:
            OSError: nobody listens.

        Cancellation: nothing is left open.
        """
        await trio.lowlevel.checkpoint()
        await self.faults.reachable()
        ours, theirs = pipe()
        self.accept(ours, _IN_MEMORY)
        return theirs

    def accept(self, stream: trio.abc.Stream, client_host: str) -> None:
        """See ``Broker.accept``."""
        if self._listening is None:
            raise refused_connection(self.host, self.port)
        self._nursery.start_soon(self._serve, self._admitted(stream, client_host))

    # Life.

    async def open(self) -> None:
        """Listen; after ``close`` on the same port.

        Raises:
            OSError: the address cannot be listened on.
        """
        await trio.lowlevel.checkpoint()
        if self._listening is not None:
            return
        host, port = self._address
        if self._in_memory:
            self._node.set_address(host, port)
            self._listening = trio.CancelScope()
            return
        self._listeners = await _open_listeners(host, port)
        port = self._listeners[0].socket.getsockname()[1]
        self._address = (host, port)
        self._node.set_address(_ANYWHERE.get(host, host), port)
        self._listening = trio.CancelScope()
        self._nursery.start_soon(self._accept, self._listening, self._listeners)

    def close(self) -> None:
        """Listen no more; connections stay."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        for listener in self._listeners:
            listener.socket.close()
        self._listeners = []

    async def finish(self, within: float) -> None:
        """Let requests that are being served be answered, then end the connections there are.

        Those that come meanwhile, to a broker that has started again, are left alone.

        Args:
            within: seconds after which connections are cut in any case.

        Cancellation: they are cut at once.
        """
        ending = tuple(self._connections)
        try:
            with trio.move_on_after(within):
                for connection in ending:
                    connection.finish()
                while any(connection in self._connections for connection in ending):
                    await self._ended.wait()
        finally:
            for connection in ending:
                connection.cut()

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close connections now, all or those of one client; how many."""
        cut = [
            connection
            for connection in self._connections
            if client_id is None or connection.client_id == client_id
        ]
        for connection in cut:
            connection.cut()
        return len(cut)

    # Serving.

    async def _accept(
        self, scope: trio.CancelScope, listeners: Sequence[trio.SocketListener]
    ) -> None:
        with scope:
            await trio.serve_listeners(
                self._serve_socket, list(listeners), handler_nursery=self._nursery
            )

    async def _serve_socket(self, stream: trio.SocketStream) -> None:
        try:
            address = stream.socket.getpeername()
        except OSError:
            await trio.aclose_forcefully(stream)
            return
        if self._listening is None:
            await trio.aclose_forcefully(stream)  # it was accepted in the broker's last moment
            return
        await self._serve(self._admitted(stream, str(address[0])))

    def _admitted(self, stream: trio.abc.Stream, host: str) -> ClientConnection:
        """A connection that is known at once: one whose task has not begun can be cut, too."""
        connection = ClientConnection(
            stream,
            f"/{host}",
            self._cluster,
            self._node,
            self.faults,
            self._idle_clients,
            self._bytes_in_flight,
        )
        self._make_room(host, connection)
        self._connections[connection] = host
        return connection

    def _make_room(self, host: str, newcomer: ClientConnection) -> None:
        """Cut the newcomer where its address has enough, else the most idle of too many."""
        settings = self._cluster.settings
        if settings.max_connections_per_ip < _UNLIMITED:
            have = sum(one == host for one in self._connections.values())
            if have >= settings.max_connections_per_ip:
                newcomer.cut()
                return
        if len(self._connections) >= settings.max_connections:
            leaving = self._idle_clients.longest() or newcomer
            self._idle_clients.forget(
                leaving
            )  # so that the next newcomer has another one make room
            leaving.cut()

    async def _serve(self, connection: ClientConnection) -> None:
        try:
            await connection.serve()
        finally:
            del self._connections[connection]
            ended, self._ended = self._ended, trio.Event()
            ended.set()


def refused_connection(host: str, port: int) -> ConnectionRefusedError:
    """What a connection to where nobody listens fails with."""
    code = errno.ECONNREFUSED
    return ConnectionRefusedError(code, f"{os.strerror(code)}: {host}:{port}")


async def _open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listeners of one port on all addresses of a host."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    if port == 0 and len(listeners) > 1:
        # Each address got a port of its own; all are to have the first one's.
        port = listeners[0].socket.getsockname()[1]
        for listener in listeners:
            listener.socket.close()
        listeners = await trio.open_tcp_listeners(port, host=host)
    return listeners
