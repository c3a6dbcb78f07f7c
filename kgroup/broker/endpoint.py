"""One broker on the network: its listeners, its connections and its injected faults.

The modules below decide what requests mean, those above what the start and stop of a broker mean
for the others.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, final

import trio

from kgroup.addresses import join_address
from kgroup.broker.bad_connections import BadConnections
from kgroup.broker.bytes_in_flight import BytesInFlight
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.connection import ClientConnection
from kgroup.broker.faults import InjectedFaults
from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.idle_connections import IdleClients
from kgroup.broker.memory_pipe import pipe
from kgroup.broker.node import Node
from kgroup.errors import UsageError
from kgroup.notifier import Notifier

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # to recognise it
"""Addresses to listen on to which no client can connect -> the address to advertise instead."""
_UNLIMITED: Final = 2**31 - 1
_BACKLOG: Final = 0xFFFF
"""As trio's listeners: as many waiting connections as the system allows."""
_IN_MEMORY: Final = "memory"
"""The host of clients that connect in memory."""


@final
class Endpoint:
    """The address, listeners and connections of one broker.

    Attributes:
        faults: the injected faults.

    Args:
        cluster: the state that its requests work on.
        node: the broker.
        nursery: where listeners and connections are served.
        address: host and port to listen on, or the address in memory.
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
        self._loop = trio.lowlevel.current_trio_token()
        self.faults: Final = InjectedFaults()
        settings = cluster.settings
        self._idle_clients = IdleClients(settings.connections_max_idle)
        self._bytes_in_flight = BytesInFlight(settings.queued_max_bytes)
        self._bad_connections = BadConnections()
        self._connections: dict[ClientConnection, str] = {}
        """Each with the host of its client."""
        nursery.start_soon(self._idle_clients.alarm.run)
        self._connection_ended = Notifier()
        self._listening: trio.CancelScope | None = None
        self._listeners: list[trio.SocketListener] = []
        self._reserved: list[socket.socket] = []
        """While it does not listen after it did: sockets that are bound to its addresses, so that
        no other program gets its port. They refuse connections, as if nothing was there."""
        self._over = False
        nursery.start_soon(self._reserve_until_the_end)

    @property
    def coordinator(self) -> GroupCoordinatorService:
        """The groups that the broker coordinates."""
        return self._node.groups.coordinator

    # Its address.

    @property
    def host(self) -> str:
        """The host that clients connect to."""
        return self._node.address.host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._node.address.port

    @property
    def bootstrap_server(self) -> str:
        """``host:port``."""
        return join_address(self.host, self.port)

    @property
    def is_listening(self) -> bool:
        """Whether new connections are taken."""
        return self._listening is not None

    async def connect(self) -> trio.abc.Stream:
        """Open a connection in memory.

        Raises:
            OSError: the broker does not listen.
            UsageError: another event loop calls; the broker's tasks cannot be woken from there.

        Cancellation: nothing is left open.
        """
        await trio.lowlevel.checkpoint()
        if trio.lowlevel.current_trio_token() is not self._loop:
            raise UsageError(
                f"a connection in memory to the broker {self.bootstrap_server} is possible only in"
                " the event loop in which the broker runs, and this is another: a group of"
                " kgroup.threaded or kgroup.aio runs in its own. For these use the fixture"
                " embedded_kafka, or kgroup.testing.embedded.EmbeddedKafka, and no memory_runtime"
                " (docs/testing.md)"
            )
        await self.faults.wait_reachable()
        ours, theirs = pipe()
        self.accept(ours, _IN_MEMORY)
        return theirs

    def accept(self, stream: trio.abc.Stream, client_host: str) -> None:
        """See ``EmbeddedBroker.accept``."""
        if self._listening is None:
            raise refused_connection(self.host, self.port)
        self._nursery.start_soon(self._serve, self._register(stream, client_host))

    # Start and end.

    async def open(self) -> None:
        """Listen; after ``close``, on the same port.

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
        if self._reserved:
            reserved, self._reserved = self._reserved, []
            self._listeners = _listen_on(reserved)
        else:
            self._listeners = await _open_listeners(host, port)
        port = self._listeners[0].socket.getsockname()[1]
        self._address = (host, port)
        self._node.set_address(_ANYWHERE.get(host, host), port)
        self._listening = trio.CancelScope()
        self._nursery.start_soon(self._accept, self._listening, self._listeners)

    def close(self) -> None:
        """Stop listening; connections stay, and no other program gets the port."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        listeners, self._listeners = self._listeners, []
        self._reserved += _close_and_reserve(listeners)
        if self._over:
            self._release()

    async def finish(self, within: float) -> None:
        """Answer the requests that are being served, then end the present connections.

        New connections, to a broker that has started again meanwhile, are left alone.

        Args:
            within: seconds after which the connections are cut in any case.

        Cancellation: the connections are cut at once.
        """
        ending = tuple(self._connections)
        try:
            with trio.move_on_after(within):
                for connection in ending:
                    connection.finish()
                while any(connection in self._connections for connection in ending):
                    await self._connection_ended.wait()
        finally:
            for connection in ending:
                connection.cut()

    def cut_connections(self, client_id: str | None = None) -> int:
        """Close connections now, all or those of one client, and return how many."""
        return self._cut(lambda one: client_id is None or one.client_id == client_id)

    def end_sessions(self, user: str | None) -> int:
        """Close connections now, all or those of one user, and return how many."""
        return self._cut(lambda one: user is None or one.user == user)

    def _cut(self, chosen: Callable[[ClientConnection], bool]) -> int:
        cut = [connection for connection in self._connections if chosen(connection)]
        for connection in cut:
            connection.cut()
        return len(cut)

    @trio.lowlevel.enable_ki_protection
    async def _reserve_until_the_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._over = True  # if it is cancelled from outside, `close` is called later
            self._release()
            self._bad_connections.report_left_out()

    def _release(self) -> None:
        for reserved in self._reserved:
            reserved.close()
        self._reserved = []

    # Serving.

    @trio.lowlevel.enable_ki_protection
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
            await trio.aclose_forcefully(
                stream
            )  # it was accepted while the broker stopped listening
            return
        await self._serve(self._register(stream, str(address[0])))

    def _register(self, stream: trio.abc.Stream, host: str) -> ClientConnection:
        """Make a connection and register it now, so that it can be cut before its task begins."""
        connection = ClientConnection(
            stream,
            f"/{host}",
            self._cluster,
            self._node,
            self.faults,
            self._idle_clients,
            self._bytes_in_flight,
            self._bad_connections,
        )
        self._make_room(host, connection)
        self._connections[connection] = host
        return connection

    def _make_room(self, host: str, newcomer: ClientConnection) -> None:
        """Keep the limits: cut the newcomer if its address has too many, else the most idle one."""
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

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, connection: ClientConnection) -> None:
        try:
            await connection.serve()
        finally:
            del self._connections[connection]
            self._connection_ended.notify()


def refused_connection(host: str, port: int) -> ConnectionRefusedError:
    """The error of a connection to an address at which no broker listens."""
    code = errno.ECONNREFUSED
    return ConnectionRefusedError(code, f"{os.strerror(code)}: {host}:{port}")


def _close_and_reserve(listeners: Sequence[trio.SocketListener]) -> list[socket.socket]:
    """Close listeners and bind their addresses again at once.

    Returns:
        The sockets, which do not listen; none if another program was faster at one address.
    """
    reserved: list[socket.socket] = []
    try:
        for listener in listeners:
            address = listener.socket.getsockname()
            one = socket.socket(listener.socket.family, socket.SOCK_STREAM)
            reserved.append(one)
            if os.name == "posix":  # elsewhere the option has another meaning
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if listener.socket.family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.socket.close()
            one.bind(address)
    except OSError:
        for one in reserved:
            one.close()
        reserved = []
    finally:
        for listener in listeners:
            listener.socket.close()
    return reserved


def _listen_on(reserved: Sequence[socket.socket]) -> list[trio.SocketListener]:
    try:
        for one in reserved:
            one.listen(_BACKLOG)
    except OSError:
        for one in reserved:
            one.close()
        raise
    return [trio.SocketListener(trio.socket.from_stdlib_socket(one)) for one in reserved]


async def _open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listeners of one port on all addresses of a host."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    if port == 0 and len(listeners) > 1:
        # Each address got a port of its own; all must have the first one's.
        port = listeners[0].socket.getsockname()[1]
        for listener in listeners:
            listener.socket.close()
        listeners = await trio.open_tcp_listeners(port, host=host)
    return listeners
