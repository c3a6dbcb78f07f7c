"""What an error says of a port that does not answer as a Kafka broker does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
import trio
import trio.testing

from kgroup.client.error_policy import Action, Request, reaction_to
from kgroup.errors import (
    AuthenticationError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
)
from kgroup.security.settings import Security, SecurityProtocol
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.connection import Connection
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.port_hints import NO_TLS, login_expected, unknown_port

Answer = Callable[[trio.SocketStream], Awaitable[object]]
UNKNOWN: Final = unknown_port(SecurityProtocol.PLAINTEXT, b"")
HTTP: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
SSH: Final = b"SSH-2.0-OpenSSH_9.2\r\n"


async def close(stream: trio.SocketStream) -> None:
    """Close before anything is read."""
    await stream.aclose()


async def reset(stream: trio.SocketStream) -> None:
    """Reset the connection after the request."""
    await stream.receive_some()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


def after_the_request(answer: Callable[[bytes], bytes]) -> Answer:
    """Read a request, answer it with bytes made from its correlation id, and close."""

    async def serve(stream: trio.SocketStream) -> None:
        request = bytes(await stream.receive_some())
        await stream.send_all(answer(request[8:12]))
        await stream.aclose()

    return serve


def framed(body: bytes) -> bytes:
    """A frame of these bytes."""
    return struct.pack(">i", len(body)) + body


#: What a port does, the error's class, what happened, and the hint.
PORTS: Final[dict[str, tuple[Answer, type[TransportError], str, str]]] = {
    "closes at once": (close, ConnectionLostError, "connection", UNKNOWN),
    "closes after the request": (
        after_the_request(lambda _: b""),
        ConnectionLostError,
        "closed the connection cleanly",
        UNKNOWN,
    ),
    "resets": (reset, ConnectionLostError, "lost the connection", UNKNOWN),
    "sends a part of a frame": (
        after_the_request(lambda _: b"\0\0\1\0abc"),
        ConnectionLostError,
        "after 7 bytes of a response",
        UNKNOWN,
    ),
    "sends zeros": (
        after_the_request(lambda _: bytes(64)),
        ProtocolError,
        "a frame of 0 bytes",
        UNKNOWN,
    ),
    "sends a negative length": (
        after_the_request(lambda _: b"\xff" * 8),
        ProtocolError,
        "a frame of -1 bytes",
        UNKNOWN,
    ),
    "sends a short frame": (
        after_the_request(lambda _: framed(b"abc")),
        ProtocolError,
        "a frame of 3 bytes",
        UNKNOWN,
    ),
    "sends an oversize frame": (
        after_the_request(lambda _: b"\x7f\xff\xff\xff"),
        ProtocolError,
        "a frame of 2147483647 bytes",
        UNKNOWN,
    ),
    "sends the request back": (
        after_the_request(lambda number: framed(b"\0\0\0\x63" + number)),
        ProtocolError,
        "correlation id 99",
        UNKNOWN,
    ),
    "sends garbage with the right id": (
        after_the_request(lambda number: framed(number + b"\0\0\xff\xff\xff")),
        ProtocolError,
        "cannot be read",
        UNKNOWN,
    ),
    "speaks HTTP": (
        after_the_request(lambda _: HTTP),
        ProtocolError,
        "frame",
        "The answer is HTTP",
    ),
    "speaks SSH": (after_the_request(lambda _: SSH), ProtocolError, "frame", "The answer is SSH"),
    "begins a TLS handshake": (
        after_the_request(lambda _: b"\x16\x03\x03\x00\x50\x02"),
        ProtocolError,
        "frame",
        "The answer is a TLS record",
    ),
    "sends half a TLS alert": (
        after_the_request(lambda _: b"\x15\x03"),
        ConnectionLostError,
        "after 2 bytes",
        "The answer is a TLS record",
    ),
}


async def failure(serve: Answer, **options: Any) -> tuple[TransportError, int]:
    """The error of opening a connection to a port that does this, and how often it was opened."""
    opened = 0

    async def count(stream: trio.SocketStream) -> None:
        nonlocal opened
        opened += 1
        await serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(trio.serve_listeners, count, listeners)
        host, port = listeners[0].socket.getsockname()
        with pytest.raises(TransportError) as caught:
            await Connection.open(open_tcp, host, port, client_id=None, timeout=20, **options)
        nursery.cancel_scope.cancel()
    return caught.value, opened


@pytest.mark.parametrize("kind", PORTS)
async def test_a_port_that_is_not_kafkas(kind: str) -> None:
    """Whatever a port does, the error says what happened and one hint, and is retried."""
    serve, error_class, happened, hint = PORTS[kind]
    error, _ = await failure(serve)
    assert type(error) is error_class
    assert happened in error.failure
    assert error.hint.startswith(hint)
    assert str(error) == f"{error.failure}. {error.hint}"
    assert reaction_to(Request.METADATA, error).action is Action.RETRY


async def test_a_port_that_closes_is_opened_twice() -> None:
    """The hint does not hide that the connection was closed, so version 0 is tried as ever."""
    for serve, opened in ((close, 2), (after_the_request(lambda _: b"\0\0"), 1)):
        assert (await failure(serve))[1] == opened


async def test_a_tls_alert_is_certain() -> None:
    """A complete alert is not retried: the port expects TLS."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(b"\x15\x03\x03\x00\x02\x02\x50")

    async def opener(host: str, port: int) -> trio.abc.Stream:
        del host, port
        await trio.lowlevel.checkpoint()
        return ours

    with pytest.raises(AuthenticationError, match="its port expects TLS"):
        await Connection.open(opener, "b", 1, client_id=None, timeout=5)


@pytest.mark.parametrize("serve", [close, reset])
async def test_a_port_that_ends_the_tls_handshake(serve: Answer) -> None:
    """The hint says that the port may not speak TLS, however the connection ends."""
    security = ConnectionSecurity(Security(protocol="SSL"))
    error, _ = await failure(serve, security=security)
    assert isinstance(error, ConnectionLostError)
    assert "TLS handshake" in error.failure
    assert error.hint == NO_TLS


@pytest.mark.parametrize(
    ("protocol", "awaited", "hint"),
    [
        ("PLAINTEXT", "response to ApiVersions", UNKNOWN),
        ("SSL", "TLS handshake", NO_TLS),
    ],
)
async def test_a_port_that_stays_silent(
    protocol: str, awaited: str, hint: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A port that accepts and never answers gets the hint of one that closes, at the time-out."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def opener(host: str, port: int) -> trio.abc.Stream:
        del host, port
        await trio.lowlevel.checkpoint()
        return ours

    with pytest.raises(RequestTimeoutError, match=f"no {awaited} .* within 10 s") as caught:
        security = ConnectionSecurity(Security(protocol=protocol))
        await Connection.open(opener, "b", 1, client_id=None, timeout=10, security=security)
    assert caught.value.hint == hint
    assert str(caught.value) == f"{caught.value.failure}. {hint}"
    await theirs.aclose()


async def test_a_connection_that_never_opens_has_no_hint(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing answered, so nothing is known of the port."""

    async def opener(host: str, port: int) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError(host, port)

    with pytest.raises(RequestTimeoutError, match="no connection to") as caught:
        await Connection.open(opener, "b", 1, client_id=None, timeout=10)
    assert not caught.value.hint


@pytest.mark.parametrize(
    ("protocol", "named", "never"),
    [
        ("PLAINTEXT", "expects TLS or a login", "Security.certificate"),
        ("SASL_PLAINTEXT", "expects TLS, or", "a login"),
        ("SSL", "a client certificate", "expects TLS"),
        ("SASL_SSL", "a client certificate", "expects TLS"),
    ],
)
def test_a_hint_depends_on_the_protocol(protocol: str, named: str, never: str) -> None:
    """It names what the client does not do already; a known answer has precedence."""
    hint = unknown_port(SecurityProtocol(protocol), b"\0\0\0\0")
    assert named in hint
    assert never not in hint
    assert "another program than Kafka" in hint
    assert unknown_port(SecurityProtocol(protocol), b"HTTP").startswith("The answer is HTTP")


def test_only_clients_without_a_login_are_told_of_one() -> None:
    """The hint names the protocol that adds a login to the client's own."""
    assert "SASL_PLAINTEXT" in login_expected(SecurityProtocol.PLAINTEXT)
    assert "SASL_SSL" in login_expected(SecurityProtocol.SSL)
    assert not login_expected(SecurityProtocol.SASL_SSL)
    assert not login_expected(SecurityProtocol.SASL_PLAINTEXT)
