"""One connection: good responses, and every kind of bad one."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.errors import (
    BrokerError,
    ConnectionLostError,
    KgroupError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
    UnsupportedVersionError,
)
from kgroup.wire.byte_streams import open_tcp
from kgroup.wire.codec import encode_response
from kgroup.wire.connection import LARGE_RESPONSE, Connection
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.versions import SUPPORTED_REQUESTS
from kgroup.worker_thread import compute_inline
from tests.wire.scripted import NO_TIME, RANGES, Peer, ScriptedBroker, api_keys

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}
Script = Callable[[Peer], Awaitable[object]]


async def opened(broker: ScriptedBroker, **options: Any) -> Connection:
    """A connection to a scripted broker."""
    options = {"client_id": "test", "timeout": 10, **options}
    return await Connection.open(broker.open, "broker", 9092, **options)


async def beat(connection: Connection, **options: Any) -> Any:
    """A heartbeat on it."""
    return await connection.request("heartbeat", HEARTBEAT, **{"timeout": 10, **options})


async def raw_answer(peer: Peer, answer: Callable[[int], bytes]) -> None:
    """Negotiate, take a request, and send these bytes made from its correlation id."""
    await peer.negotiate()
    request = await peer.request()
    await peer.stream.send_all(answer(request.correlation_id))


def framed(body: bytes) -> bytes:
    """A frame of these bytes."""
    return struct.pack(">i", len(body)) + body


def good(correlation_id: int, error_code: int = 0) -> bytes:
    """The frame of a response to a heartbeat."""
    answer = {"error_code": error_code, **NO_TIME}
    return framed(encode_response("heartbeat", 4, answer, correlation_id))


async def test_a_response_is_an_entity_of_the_highest_common_version(nursery: trio.Nursery) -> None:
    """The response is kio's dataclass of the highest version that both sides support."""
    ranges = {**RANGES, "heartbeat": (0, 3)}

    async def script(peer: Peer) -> None:
        await peer.negotiate(ranges)
        request = await peer.request()
        assert (request.version, request.client_id) == (3, "test")
        assert request.entity.member_id == "m"
        await peer.answer(request, error_code=27, **NO_TIME)

    connection = await opened(ScriptedBroker(nursery, script))
    answer = await beat(connection)
    assert (int(answer.error_code), answer.__version__) == (27, 3)
    assert connection.version("heartbeat") == 3
    assert not connection.broken
    assert repr(connection) == "<Connection to broker:9092, ready>"


async def test_fields_may_depend_on_the_version(nursery: trio.Nursery) -> None:
    """A function given as the fields is called with the version, which max_version bounds."""
    versions: list[int] = []

    def fields(version: int) -> dict[str, Any]:
        versions.append(version)
        return HEARTBEAT

    connection = await opened(ScriptedBroker(nursery, Peer.heartbeats))
    await connection.request("heartbeat", fields, timeout=10, max_version=2)
    assert versions == [2]


#: Answers that leave the connection as it was: what a newer broker may send.
TOLERABLE = {
    "an unknown error code": (lambda number: good(number, 999), 999),
    "an unknown tagged field": (
        lambda number: framed(struct.pack(">iBihB", number, 0, 0, 27, 1) + b"\x63\x02hi"),
        27,
    ),
    "an unknown tagged field in the header": (
        lambda number: framed(struct.pack(">iB", number, 1) + b"\x63\x01h" + bytes(7)),
        0,
    ),
}


@pytest.mark.parametrize("kind", TOLERABLE)
async def test_what_newer_brokers_send_breaks_nothing(kind: str, nursery: trio.Nursery) -> None:
    """The caller gets the response with its error code, and the connection stays usable."""
    answer, error_code = TOLERABLE[kind]

    async def script(peer: Peer) -> None:
        await raw_answer(peer, answer)
        await peer.answer(await peer.request(), error_code=0, **NO_TIME)

    connection = await opened(ScriptedBroker(nursery, script))
    assert int((await beat(connection)).error_code) == error_code
    assert not connection.broken
    assert (await beat(connection)).error_code == 0


#: Answers that cannot be used, the error's class, and a part of its text.
BAD: dict[str, tuple[Callable[[int], bytes], type[KgroupError], str]] = {
    "a frame shorter than a correlation id": (
        lambda _: struct.pack(">i", 3) + b"abc",
        ProtocolError,
        "announced a frame of 3 bytes",
    ),
    "a negative length": (lambda _: b"\xff" * 4, ProtocolError, "a frame of -1 bytes"),
    "an oversized frame": (
        lambda _: struct.pack(">i", 2**30),
        ProtocolError,
        "the limit is 1000$",
    ),
    "another protocol": (lambda _: b"HTTP/1.1 400 Bad Request\r\n", ProtocolError, "the limit is"),
    "a wrong correlation id": (
        lambda number: good(number + 1),
        ProtocolError,
        "to Heartbeat has correlation id 3, not 2",
    ),
    "a truncated body": (
        lambda number: framed(struct.pack(">iBi", number, 0, 0)),
        ProtocolError,
        "the response of broker:9092 to Heartbeat v4 cannot be read",
    ),
    "garbage": (
        lambda number: framed(struct.pack(">i", number) + b"\xff" * 20),
        ProtocolError,
        "the response of broker:9092 to Heartbeat v4 cannot be read",
    ),
    "bytes after the last field": (
        lambda number: framed(good(number)[4:] + b"x"),
        ProtocolError,
        "has 1 bytes after its last field",
    ),
    "the end of the stream": (lambda _: b"", ConnectionLostError, "closed the connection cleanly"),
    "the end within the length": (
        lambda _: b"\0\0",
        ConnectionLostError,
        "closed the connection after 2 bytes of a response",
    ),
    "the end within the body": (
        lambda number: good(number)[:-2],
        ConnectionLostError,
        "closed the connection after 14 bytes of a response",
    ),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_response_breaks_its_connection_only(kind: str, nursery: trio.Nursery) -> None:
    """A bad response is one error that says that the request was sent; the connection closes."""
    answer, error_class, text = BAD[kind]
    broker = ScriptedBroker(nursery, lambda peer: raw_answer(peer, answer), Peer.heartbeats)
    bystander_first = await opened(broker, max_frame=1000)
    bystander = await opened(broker)
    with pytest.raises(error_class, match=text) as caught:
        await beat(bystander_first)
    assert caught.value.sent  # type: ignore[attr-defined] # all of them are TransportErrors
    assert bystander_first.broken
    assert not bystander_first.closed
    assert "broken: Heartbeat" in repr(bystander_first) or "broken: the response" in repr(
        bystander_first
    )
    with pytest.raises(ConnectionLostError, match="Heartbeat was not sent") as caught:
        await beat(bystander_first)
    assert not caught.value.sent
    assert (await beat(bystander)).error_code == 0


@pytest.mark.parametrize(("size", "begun"), [(0, False), (2, True), (9, True)])
async def test_an_error_says_whether_the_response_had_begun(
    size: int, *, begun: bool, nursery: trio.Nursery
) -> None:
    """``answer_begun`` says whether a byte of the response had arrived."""
    broker = ScriptedBroker(nursery, lambda peer: raw_answer(peer, lambda i: good(i)[:size]))
    with pytest.raises(ConnectionLostError) as caught:
        await beat(await opened(broker))
    assert caught.value.answer_begun is begun


async def test_bytes_after_a_response_break_the_connection_but_not_the_response(
    nursery: trio.Nursery,
) -> None:
    """A complete response is returned even if bytes follow it; the connection is not used again.

    Nor does it keep them.
    """
    broker = ScriptedBroker(nursery, lambda peer: raw_answer(peer, lambda i: good(i) + bytes(999)))
    connection = await opened(broker)
    assert (await beat(connection)).error_code == 0
    assert "999 bytes followed the response" in repr(connection)
    assert connection._frames.unread < 10


async def test_a_response_in_pieces_is_joined(nursery: trio.Nursery) -> None:
    """A response that arrives byte by byte is the same response."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        for byte in good((await peer.request()).correlation_id, 22):
            await peer.stream.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()

    assert (await beat(await opened(ScriptedBroker(nursery, script)))).error_code == 22


def refused_by(cause: BaseException | None) -> OSError:
    """The error of trio's that some other error, or a group of them, has caused."""
    error = OSError("all attempts to connect to b:1 failed")
    error.__cause__ = cause
    return error


REFUSED = OSError(errno.ECONNREFUSED, "Error connecting to ('::1', 1): Connection refused")
UNREACHABLE = OSError(errno.ENETUNREACH, "Error connecting to ('2001::1', 1)")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (refused_by(REFUSED), os.strerror(errno.ECONNREFUSED)),
        (
            refused_by(ExceptionGroup("", [REFUSED, UNREACHABLE, REFUSED])),
            f"{os.strerror(errno.ECONNREFUSED)}; {os.strerror(errno.ENETUNREACH)}",
        ),
        (refused_by(None), "all attempts to connect to b:1 failed"),
        (refused_by(RuntimeError("odd")), "odd"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not"),
    ],
)
async def test_an_error_says_why_there_is_no_connection(error: OSError, words: str) -> None:
    """It has the system's words, once each, without those of the library in between."""

    async def fail(host: str, port: int) -> trio.abc.Stream:
        del host, port
        await trio.lowlevel.checkpoint()
        raise error

    with pytest.raises(ConnectionLostError, match=f"no connection to b:1: {words}"):
        await Connection.open(fail, "b", 1, client_id=None, timeout=10)


class Unable(trio.abc.HostnameResolver):
    """Cannot look up a host."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def getaddrinfo(self, *_: object) -> NoReturn:
        """Raise."""
        await trio.lowlevel.checkpoint()
        raise RuntimeError(self._text)

    async def getnameinfo(self, *_: object) -> NoReturn:
        """Raise."""
        await self.getaddrinfo()


@pytest.mark.parametrize(
    "text", ["can't start new thread", "can't create new thread at interpreter shutdown"]
)
async def test_a_host_that_no_thread_can_look_up(text: str) -> None:
    """It is a lost connection, which is tried again; another RuntimeError is a mistake."""
    trio.socket.set_custom_hostname_resolver(Unable(text))
    with pytest.raises(ConnectionLostError, match=f"no connection to broker:1: {text}"):
        await Connection.open(open_tcp, "broker", 1, client_id=None, timeout=10)
    trio.socket.set_custom_hostname_resolver(Unable("another mistake"))
    with pytest.raises(RuntimeError, match="another mistake"):
        await Connection.open(open_tcp, "broker", 1, client_id=None, timeout=10)


async def test_a_reset_is_a_lost_connection() -> None:
    """A TCP reset before the response is a ConnectionLostError and breaks the connection."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def serve(stream: trio.SocketStream) -> None:
            peer = Peer(stream)
            await peer.negotiate()
            await peer.request()
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()

        await nursery.start(trio.serve_listeners, serve, listeners)
        host, port = listeners[0].socket.getsockname()
        connection = await Connection.open(open_tcp, host, port, client_id=None, timeout=10)
        with pytest.raises(ConnectionLostError, match="lost the connection") as caught:
            await beat(connection)
        assert caught.value.sent
        assert not caught.value.answer_begun
        assert connection.broken
        nursery.cancel_scope.cancel()


async def test_a_request_that_cannot_be_made_is_refused_before_it_is_sent(
    nursery: trio.Nursery,
) -> None:
    """Wrong fields are a ValueError, or an UnsupportedVersionError if the broker is too old."""
    ranges = {**RANGES, "join_group": (0, 1), "heartbeat": (0, 2)}

    async def script(peer: Peer) -> None:
        await peer.negotiate(ranges)
        await peer.rest()

    connection = await opened(ScriptedBroker(nursery, script))
    with pytest.raises(UnsupportedVersionError, match=r"JoinGroup v2 to v9.*supports v0 to v1"):
        await connection.request("join_group", {}, timeout=10)
    with pytest.raises(UnsupportedVersionError, match=r"Heartbeat up to v2.*group_instance_id"):
        await connection.request("heartbeat", {**HEARTBEAT, "group_instance_id": "i"}, timeout=10)
    with pytest.raises(ValueError, match="OffsetFetchRequest v9 has no field topics"):
        await connection.request("offset_fetch", {"groups": [], "topics": [{}]}, timeout=10)
    with pytest.raises(ValueError, match=r"SyncGroupRequest v5 needs .*group_id"):
        await connection.request("sync_group", {}, timeout=10)
    assert not connection.broken
    await connection.aclose()


async def test_requests_take_turns_in_the_order_of_the_calls(nursery: trio.Nursery) -> None:
    """Requests of several tasks are sent one after the other, first come first served."""
    seen: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        for _ in range(5):
            request = await peer.request()
            await trio.testing.wait_all_tasks_blocked()
            assert not peer.frames.unread
            seen.append(request.entity.generation_id)
            await peer.answer(request, error_code=0, **NO_TIME)

    connection = await opened(ScriptedBroker(nursery, script))

    async def send_heartbeat(number: int) -> None:
        await connection.request("heartbeat", {**HEARTBEAT, "generation_id": number}, timeout=10)

    async with trio.open_nursery() as requests:
        for number in range(5):
            requests.start_soon(send_heartbeat, number)
            await trio.testing.wait_all_tasks_blocked()
            assert number or "busy" in repr(connection)
    assert seen == [0, 1, 2, 3, 4]


async def test_closing_fails_the_request_in_flight(nursery: trio.Nursery) -> None:
    """``aclose`` makes a request in flight, and every later one, a ConnectionLostError."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.rest()

    connection = await opened(ScriptedBroker(nursery, script))

    async def send_heartbeat() -> None:
        with pytest.raises(ConnectionLostError) as caught:
            await beat(connection)
        assert caught.value.sent

    async with trio.open_nursery() as requests:
        requests.start_soon(send_heartbeat)
        await trio.testing.wait_all_tasks_blocked()
        await connection.aclose()
    assert connection.closed
    assert "closed" in repr(connection)
    with pytest.raises(ConnectionLostError, match="was not sent"):
        await beat(connection)


async def test_refused_and_unknown_addresses_are_lost_connections(nursery: trio.Nursery) -> None:
    """If no stream can be opened, the error names the address and says that nothing was sent."""
    with pytest.raises(ConnectionLostError, match="no connection to broker:9092") as caught:
        await opened(ScriptedBroker(nursery))
    assert not caught.value.sent


class TestNegotiation:
    """How a connection finds the broker's versions."""

    @pytest.mark.parametrize(("offered", "then"), [(3, 3), (0, 0), (None, 0), (7, 0)])
    async def test_an_older_broker_says_which_version_it_wants(
        self, offered: int | None, then: int, nursery: trio.Nursery
    ) -> None:
        """UNSUPPORTED_VERSION has the form of v0; its range says which version to send next."""
        ranges = {} if offered is None else {"api_versions": (0, offered)}

        async def script(peer: Peer) -> None:
            request = await peer.request()
            refusal = {"error_code": 35, "api_keys": api_keys(ranges)}
            await peer.frames.send(
                encode_response("api_versions", 0, refusal, request.correlation_id)
            )
            assert (await peer.negotiate()).version == then
            await peer.rest()

        connection = await opened(ScriptedBroker(nursery, script))
        assert connection.version("heartbeat") == 4
        await connection.aclose()

    async def test_a_refusal_that_cannot_be_read_is_a_refusal(self, nursery: trio.Nursery) -> None:
        """After UNSUPPORTED_VERSION followed by anything, v0 is sent."""

        async def script(peer: Peer) -> None:
            request = await peer.request()
            await peer.frames.send(struct.pack(">ih", request.correlation_id, 35) + b"\xff")
            assert (await peer.negotiate()).version == 0
            await peer.rest()

        await (await opened(ScriptedBroker(nursery, script))).aclose()

    async def test_a_broker_that_closes_gets_v0_on_another_connection(
        self, nursery: trio.Nursery
    ) -> None:
        """If the first request ends the connection, the second one is v0."""

        async def script(peer: Peer) -> None:
            assert (await peer.negotiate()).version == 0
            await peer.rest()

        broker = ScriptedBroker(nursery, Peer.request, script)
        connection = await opened(broker)
        assert broker.opened == 2
        await connection.aclose()

    async def test_a_broker_that_always_closes_is_lost(self, nursery: trio.Nursery) -> None:
        """Two connections that end without a response are an error, not a third try."""
        broker = ScriptedBroker(nursery, Peer.request, Peer.request, Peer.heartbeats)
        with pytest.raises(ConnectionLostError, match="closed the connection cleanly"):
            await opened(broker)
        assert broker.opened == 2

    @pytest.mark.parametrize(
        ("error_code", "expected", "text"),
        [
            (35, UnsupportedVersionError, "supports no version of ApiVersions"),
            (58, BrokerError, r"ApiVersions was answered with SASL_AUTHENTICATION_FAILED \(58\)"),
            (999, BrokerError, r"ApiVersions was answered with ERROR_999 \(999\)"),
        ],
    )
    async def test_an_error_in_the_response_is_raised(
        self, error_code: int, expected: type[KgroupError], text: str, nursery: trio.Nursery
    ) -> None:
        """An error that another version cannot avoid is raised, and nothing stays open."""

        async def script(peer: Peer) -> None:
            while True:
                request = await peer.request()
                version = 0 if error_code == 35 else request.version
                answer = {"error_code": error_code, "api_keys": []}
                answer |= NO_TIME if version else {}
                await peer.frames.send(
                    encode_response("api_versions", version, answer, request.correlation_id)
                )

        broker = ScriptedBroker(nursery, script)
        with pytest.raises(expected, match=text):
            await opened(broker)
        with pytest.raises(trio.ClosedResourceError):
            await broker.streams[0].receive_some()

    async def test_a_response_that_is_not_kafkas_is_an_error(self, nursery: trio.Nursery) -> None:
        """A response that is too short for an error code cannot be read."""

        async def script(peer: Peer) -> None:
            request = await peer.request()
            await peer.frames.send(struct.pack(">i", request.correlation_id))

        with pytest.raises(ProtocolError, match="ApiVersions v4 cannot be read"):
            await opened(ScriptedBroker(nursery, script))

    async def test_it_has_one_deadline(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        """Connecting and negotiating share the timeout; its passing leaves nothing open."""
        broker = ScriptedBroker(nursery, Peer.rest)
        started = autojump_clock.current_time()
        with pytest.raises(
            RequestTimeoutError, match="no response to ApiVersions from broker:9092"
        ):
            await opened(broker, timeout=3)
        assert autojump_clock.current_time() - started == pytest.approx(3)
        with pytest.raises(trio.ClosedResourceError):
            await broker.streams[0].receive_some()

    async def test_connecting_has_the_deadline_too(self, autojump_clock: MockClock) -> None:
        """A stream that never opens is a RequestTimeoutError of which nothing was sent."""

        async def never(host: str, port: int) -> trio.abc.Stream:
            await trio.sleep_forever()
            raise AssertionError(host, port)

        with pytest.raises(RequestTimeoutError, match="no connection to b:1 within 5 s") as caught:
            await Connection.open(never, "b", 1, client_id=None, timeout=5)
        assert autojump_clock.current_time() == pytest.approx(5)
        assert not caught.value.sent


async def test_a_missing_field_is_a_value_error(nursery: trio.Nursery) -> None:
    """A missing field is a ValueError, even if the broker supports old versions only."""
    ranges = {**RANGES, "heartbeat": (0, 2)}

    async def script(peer: Peer) -> None:
        await peer.negotiate(ranges)
        await peer.rest()

    connection = await opened(ScriptedBroker(nursery, script))
    with pytest.raises(ValueError, match="HeartbeatRequest v2 needs generation_id, group_id"):
        await connection.request("heartbeat", {"member_id": "m"}, timeout=10)
    with pytest.raises(ValueError, match="no version of HeartbeatRequest has a field typo"):
        await connection.request("heartbeat", {**HEARTBEAT, "typo": 1}, timeout=10)
    await connection.aclose()


async def test_a_response_that_is_too_large_for_its_api_is_not_read(nursery: trio.Nursery) -> None:
    """A response to a heartbeat of more than 4 KiB is refused before it arrives."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.request()
        await peer.stream.send_all(
            struct.pack(">i", SUPPORTED_REQUESTS["heartbeat"].max_response + 1)
        )
        await peer.rest()

    connection = await opened(ScriptedBroker(nursery, script))
    with pytest.raises(ProtocolError, match="announced a frame of 4097 bytes, the limit is 4096"):
        await beat(connection)
    assert connection.broken


async def test_a_large_response_is_decoded_in_a_thread(nursery: trio.Nursery) -> None:
    """``compute`` decodes it, with the same result."""
    named: list[str] = []

    async def compute(work: Callable[[], Any], name: str) -> Any:
        named.append(name)
        return await compute_inline(work, name)

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        member = {"member_id": "m", "group_instance_id": None, "metadata": bytes(LARGE_RESPONSE)}
        fields = {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
        more = {"leader": "m", "member_id": "m", "skip_assignment": False, "members": [member]}
        await peer.answer(request, error_code=0, **NO_TIME, **fields, **more)

    connection = await opened(ScriptedBroker(nursery, script), compute=compute)
    fields = {
        "group_id": "g",
        "session_timeout": timedelta(1),
        "rebalance_timeout": timedelta(1),
        "member_id": "m",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [],
        "reason": None,
    }
    answer = await connection.request("join_group", fields, timeout=5)
    assert len(answer.members[0].metadata) == LARGE_RESPONSE
    assert named == ["kgroup-decode JoinGroup"]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("given_up_by", ["timeout", "aclose", "nothing"])
async def test_a_request_that_is_given_up_is_not_sent_on(
    given_up_by: str, wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that has not read it yet never gets the whole of it, also with TLS in between."""
    if wrapped:

        async def secure(_: object, transport: trio.SocketStream, *__: str) -> trio.abc.Stream:
            return trio.StapledStream(transport, transport)

        monkeypatch.setattr(ConnectionSecurity, "secure", secure)
    fields = {"group_id": "g" * 10_000, "generation_id": 1, "member_id": "m"}
    given_up, over, received = trio.Event(), trio.Event(), bytearray()

    async def serve(stream: trio.SocketStream) -> None:
        await Peer(stream).negotiate()
        await given_up.wait()
        with suppress(trio.BrokenResourceError):
            async for data in stream:
                received.extend(data)
        over.set()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    listeners[0].socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        host, port = listeners[0].socket.getsockname()
        connection = await Connection.open(open_tcp, host, port, client_id="c", timeout=10)

        async def send() -> None:
            with pytest.raises(TransportError) as caught:
                await connection.request(
                    "heartbeat", fields, timeout=0.2 if given_up_by == "timeout" else 60
                )
            assert caught.value.sent

        async with trio.open_nursery() as sender:
            sender.start_soon(send)
            if given_up_by == "nothing":
                given_up.set()
                while len(received) < 10_000:
                    await trio.lowlevel.checkpoint()
            if given_up_by != "timeout":
                await trio.testing.wait_all_tasks_blocked()
                await connection.aclose()
        given_up.set()
        await over.wait()
        nursery.cancel_scope.cancel()
    assert (len(received) > 10_000) is (given_up_by == "nothing")
