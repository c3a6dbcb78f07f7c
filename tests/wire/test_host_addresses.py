"""A name with several addresses: in which order they are tried, and what is remembered."""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast, final

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.errors import AuthenticationError, ConnectionLostError, RequestTimeoutError
from kgroup.wire import host_addresses
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.connection import Connection
from kgroup.wire.host_addresses import (
    HEAD_START,
    HEAD_START_BEFORE_FAILED,
    MOST_HOSTS,
    FailedAddresses,
    Peer,
    failed_addresses,
    open_in_order,
)
from tests.wire.scripted import Peer as Broker

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
HOST = ("brokers", 9092)


@final
class Network:
    """A name's addresses, how each takes a connection, and when it was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **accepts: Any) -> None:
        self.addresses = [A, B, C]
        self.accepts: dict[str, float | OSError] = {A: 0.0, B: 0.0, C: 0.0, **accepts}
        """After how many seconds each accepts, or why it does not."""
        self.tried: list[tuple[float, str]] = []
        self.opened: list[tuple[str, trio.abc.Stream]] = []
        self._of: dict[int, str] = {}
        trio.socket.set_custom_hostname_resolver(cast("Any", self))
        monkeypatch.setattr(trio, "open_tcp_stream", self.open_tcp_stream)
        monkeypatch.setattr(host_addresses, "_address_of", lambda stream: self._of[id(stream)])

    async def getaddrinfo(self, host: object, port: int, *_: object) -> list[Any]:
        """The addresses of any name."""
        del host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]

    async def open_tcp_stream(self, host: str, port: int) -> Any:
        """As trio's; the stream is one in memory. Of a name it takes the first address."""
        del port
        host = host if host in self.accepts else self.addresses[0]
        self.tried.append((trio.current_time(), host))
        wait = self.accepts[host]
        if isinstance(wait, OSError):
            await trio.lowlevel.checkpoint()
            raise wait
        await trio.sleep(wait)
        ours, theirs = trio.testing.memory_stream_pair()
        self.opened.append((host, theirs))
        self._of[id(ours)] = host
        return ours


async def closed(stream: trio.abc.Stream) -> bool:
    """Whether the other side has closed it."""
    with trio.move_on_after(0.1):
        return await stream.receive_some() == b""
    return False


async def test_addresses_that_have_failed_come_last(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those the one whose failure is longest ago comes first; a success is remembered too."""
    network = Network(monkeypatch)
    failed = failed_addresses()
    for address in (B, A, B):
        failed.add(HOST, address)
    assert failed.in_order(HOST, network.addresses) == [(C, False), (A, True), (B, True)]
    await open_in_order(*HOST)
    assert [one for _, one in network.tried] == [C]
    failed.discard(HOST, B)
    assert failed.in_order(HOST, network.addresses) == [(B, False), (C, False), (A, True)]


async def test_the_others_get_a_head_start(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent address delays the next by trio's head start, and one that has failed by more."""
    network = Network(monkeypatch)
    network.accepts |= {B: 60.0, C: 60.0}
    failed_addresses().add(HOST, A)
    await open_in_order(*HOST)
    last = HEAD_START + HEAD_START_BEFORE_FAILED
    assert network.tried == [(0.0, B), (HEAD_START, C), (last, A)]
    assert trio.current_time() == last


async def test_a_refusal_lets_the_next_one_be_tried_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all refuse, the error has what each said."""
    network = Network(monkeypatch)
    network.accepts = {one: ConnectionRefusedError(111, f"refused by {one}") for one in (A, B, C)}
    failed_addresses().add(HOST, B)
    with pytest.raises(OSError, match="no address of brokers accepts") as caught:
        await open_in_order(*HOST)
    assert network.tried == [(0.0, A), (0.0, C), (0.0, B)]
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 3
    with pytest.raises(ConnectionLostError, match="Connection refused"):
        await Connection.open(open_tcp, *HOST, client_id=None, timeout=5)


async def test_one_connection_is_kept(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that open at the same time one is closed, and both if the caller is cancelled."""
    network = Network(monkeypatch)
    network.addresses = [A, B]
    network.accepts = {A: 2 * HEAD_START, B: HEAD_START}
    kept = await open_in_order(*HOST)
    assert [await closed(one) for _, one in network.opened].count(False) == 1
    await kept.aclose()
    network.opened.clear()
    with trio.move_on_after(HEAD_START / 2):
        await open_in_order(*HOST)
    assert network.opened == []


def test_what_is_remembered_is_bounded() -> None:
    """Brokers may send any number of names; addresses that a name no longer has are forgotten."""
    failed = FailedAddresses()
    for number in range(MOST_HOSTS + 5):
        failed.add((f"h{number}", 1), A)
    assert ("h4", 1) not in failed
    assert ("h5", 1) in failed
    assert failed.in_order(("h5", 1), [B]) == [(B, False)]
    assert ("h5", 1) not in failed


def peer_at(monkeypatch: pytest.MonkeyPatch, address: str) -> Peer:
    """The other side of a connection to this address."""
    monkeypatch.setattr(host_addresses, "_address_of", lambda _: address)
    return Peer(*HOST, trio.testing.memory_stream_pair()[0])


@pytest.mark.parametrize(
    ("raised", "counts"),
    [
        (ConnectionLostError("closed"), True),
        (AuthenticationError.in_tls("expired"), True),
        (ValueError("a program's"), False),
    ],
)
async def test_a_failure_of_the_connection_is_remembered(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, *, counts: bool
) -> None:
    """It is until a connection works; other errors say nothing about the address."""
    peer = peer_at(monkeypatch, A)
    with pytest.raises(type(raised)), peer.failing(math.inf):
        raise raised
    assert (HOST in failed_addresses()) is counts
    peer.works()
    assert HOST not in failed_addresses()


@pytest.mark.parametrize(("cancelled_at", "counts"), [(5.0, True), (4.0, False)])
async def test_a_time_out_is_remembered(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, cancelled_at: float, *, counts: bool
) -> None:
    """A cancellation before the deadline says nothing about the address."""
    peer = peer_at(monkeypatch, A)
    with trio.move_on_at(cancelled_at), peer.failing(5.0):
        await trio.sleep_forever()
    assert (HOST in failed_addresses()) is counts


async def test_of_a_host_without_a_name_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has one address."""
    monkeypatch.setattr(host_addresses, "_address_of", lambda _: A)
    peer = Peer(A, 9092, trio.testing.memory_stream_pair()[0])
    with pytest.raises(ConnectionLostError), peer.failing(math.inf):
        raise ConnectionLostError("closed")
    assert (A, 9092) not in failed_addresses()


async def hangs_up(stream: trio.abc.Stream) -> None:
    """Accept, and close."""
    await stream.aclose()


async def says_nothing(stream: trio.abc.Stream) -> None:
    """Accept, and never answer."""
    async with stream:
        await trio.sleep_forever()


@pytest.mark.parametrize("first", [hangs_up, says_nothing])
async def test_the_next_connection_takes_another_address(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[trio.abc.Stream], Awaitable[None]],
) -> None:
    """An address that accepts and then fails costs one connection, and the others are tried."""
    network = Network(monkeypatch)
    network.addresses = [A, B]

    async def serve() -> None:
        served = 0
        while True:
            await trio.sleep(0.01)
            for address, stream in network.opened[served:]:
                served += 1
                nursery.start_soon(first if address == A else answers, stream)

    async def answers(stream: trio.abc.Stream) -> None:
        broker = Broker(stream)
        await broker.negotiate()
        await broker.rest()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with suppress(RequestTimeoutError):
            await Connection.open(open_tcp, *HOST, client_id=None, timeout=5)
        for _ in range(3):
            await Connection.open(open_tcp, *HOST, client_id=None, timeout=5)
        assert [one for _, one in network.tried].count(A) == 1
        nursery.cancel_scope.cancel()


async def test_the_address_of_a_tcp_connection() -> None:
    """It is that of the other side; a connection that is not TCP's has none."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(trio.serve_listeners, says_nothing, listeners)
        async with await open_tcp(*listeners[0].socket.getsockname()) as stream:
            assert host_addresses._address_of(stream) == "127.0.0.1"
        assert host_addresses._address_of(stream) is None
        nursery.cancel_scope.cancel()
    assert host_addresses._address_of(trio.testing.memory_stream_pair()[0]) is None
