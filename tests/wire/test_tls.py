"""TLS over memory streams: which certificates are accepted, and what each refusal says."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kgroup.errors import (
    AuthenticationError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
)
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context
from kgroup.wire.connection import Connection
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.tls import open_tls
from tests.wire.scripted import Peer, ScriptedBroker

AUTHORITY = trustme.CA()
FOREIGN = trustme.CA()
LONG_AGO = datetime(2020, 1, 1)  # noqa: DTZ001 # trustme wants it naive
HOST = "broker.test"


def pem(authority: trustme.CA) -> str:
    """The authority's own certificate."""
    return authority.cert_pem.bytes().decode()


def server(
    certificate: trustme.LeafCert, *, clients: bool = False, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """The context of a broker."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if clients:
        AUTHORITY.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    if newest is not None:
        context.maximum_version = newest
    return context


def client(**settings: Any) -> Security:
    """The settings of a client that trusts the authority."""
    return Security(protocol="SSL", **{"ca": pem(AUTHORITY), **settings})


def shown(authority: trustme.CA, **details: Any) -> dict[str, str]:
    """A client certificate, as settings."""
    issued = authority.issue_cert("client.test", **details)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
    return {"certificate": chain, "key": issued.private_key_pem.bytes().decode()}


async def handshake(context: ssl.SSLContext, security: Security, host: str = HOST) -> bytes:
    """What the client reads first after its handshake with such a broker."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        # trio.SSLStream would not send the alert of a handshake that fails.
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        broker = context.wrap_bio(incoming, outgoing, server_side=True)
        done = False
        while not done:
            try:
                broker.do_handshake()
                broker.write(b"hello")
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                done = True
            with suppress(trio.BrokenResourceError):  # the client refused, and has closed
                await theirs.send_all(outgoing.read())
            if not done:
                received = await theirs.receive_some()
                incoming.write(received)
                done = not received

    failure: Exception | None = None
    read = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            stream = await open_tls(ours, client_context(security), host, "the broker")
            read = bytes(await stream.receive_some())
        except (AuthenticationError, ConnectionLostError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return read


@pytest.mark.parametrize(
    ("name", "host"),
    [
        (HOST, HOST),
        (HOST, f"{HOST}."),
        (HOST, HOST.upper()),
        ("*.brokers.test", "b1.brokers.test"),
        ("bücher.test", "bücher.test"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:DB8:0::1"),
    ],
)
async def test_the_certificate_may_name_the_host_in_these_ways(name: str, host: str) -> None:
    """Names in any case, with a trailing dot, international ones, and IP addresses are found."""
    assert await handshake(server(AUTHORITY.issue_cert(name)), client(), host) == b"hello"


async def test_the_name_is_not_checked_if_the_settings_say_so() -> None:
    """``check_hostname`` switches off the name alone: the authority must be known all the same."""
    context = server(AUTHORITY.issue_cert("elsewhere.test"))
    assert await handshake(context, client(check_hostname=False)) == b"hello"
    with pytest.raises(AuthenticationError, match="unable to get local issuer"):
        await handshake(context, client(check_hostname=False, ca=pem(FOREIGN)))


@pytest.mark.parametrize(
    ("issued", "expected"),
    [
        (lambda: FOREIGN.issue_cert(HOST), "unable to get local issuer.*; set Security.ca"),
        (lambda: AUTHORITY.issue_cert(HOST, not_after=LONG_AGO), "expired; renew it.* the clock"),
        (lambda: AUTHORITY.issue_cert("elsewhere.test"), f"not valid for '{HOST}'; connect by"),
        (lambda: AUTHORITY.issue_cert("127.0.0.1"), f"not valid for '{HOST}'; connect by"),
    ],
)
async def test_a_certificate_that_is_not_accepted(
    issued: Callable[[], trustme.LeafCert], expected: str
) -> None:
    """The error says what is wrong with it and what to do, and is none that is retried."""
    with pytest.raises(AuthenticationError, match=f"certificate of the broker .*{expected}"):
        await handshake(server(issued()), client())


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "it asks for a client certificate"),
        (shown(FOREIGN), "it does not know the authority|do not know the client certificate"),
        (shown(AUTHORITY, not_after=LONG_AGO), "the client certificate has expired"),
    ],
)
async def test_a_client_certificate_that_is_not_accepted(
    newest: ssl.TLSVersion, settings: dict[str, str], expected: str
) -> None:
    """The same error in the handshake (TLS 1.2) and at the first read after it (TLS 1.3)."""
    context = server(AUTHORITY.issue_cert(HOST), clients=True, newest=newest)
    with pytest.raises(AuthenticationError, match=f"the broker refused .*({expected})"):
        await handshake(context, client(**settings))


async def test_a_client_certificate_that_is_accepted() -> None:
    """The certificate and key of the settings are shown to a broker that asks for them."""
    context = server(AUTHORITY.issue_cert(HOST), clients=True)
    assert await handshake(context, client(**shown(AUTHORITY))) == b"hello"


async def test_an_authority_without_key_identifiers_is_accepted() -> None:
    """Many private authorities lack what Python 3.13 demands by default and librdkafka does not."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private authority")])

    def issue(subject: x509.Name, extension: x509.ExtensionType, public: Any) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(LONG_AGO)
            .not_valid_after(datetime(2999, 1, 1))  # noqa: DTZ001 # as above
            .add_extension(extension, critical=False)
            .sign(key, hashes.SHA256())
        )

    own = ec.generate_private_key(ec.SECP256R1())
    root = issue(name, x509.BasicConstraints(ca=True, path_length=None), key.public_key())
    names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
    leaf = issue(x509.Name([]), names, own.public_key())
    private = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(private + leaf.public_bytes(Encoding.PEM)).tempfile() as file:
        context.load_cert_chain(file)
    security = client(ca=root.public_bytes(Encoding.PEM).decode())
    assert not client_context(security).verify_flags & ssl.VERIFY_X509_STRICT
    assert await handshake(context, security) == b"hello"


async def test_a_port_without_tls_is_retried() -> None:
    """Kafka closes the connection, as a broker does that restarts: the error names both."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.aclose)
        with pytest.raises(ConnectionLostError, match="starting or stopping; if this repeats, .*"):
            await open_tls(ours, client_context(client()), HOST, "the broker")


async def test_a_port_that_answers_in_another_protocol() -> None:
    """An answer that is no TLS is certain, and not retried."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(AuthenticationError, match="does not speak TLS on this port"):
        await open_tls(ours, client_context(client()), HOST, "the broker")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("noise", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n", bytes(5)])
async def test_noise_on_a_connection_that_has_worked(newest: ssl.TLSVersion, noise: bytes) -> None:
    """It ends the connection, as a cut does, and says nothing about TLS or certificates."""
    ours, theirs = trio.testing.memory_stream_pair()
    context = server(AUTHORITY.issue_cert(HOST), newest=newest)

    async def serve() -> None:
        secured = trio.SSLStream(theirs, context, server_side=True)
        await secured.send_all(b"hello")
        await theirs.send_all(noise)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        stream = await open_tls(ours, client_context(client()), HOST, "the broker")
        assert await stream.receive_some() == b"hello"
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"again")


async def test_a_name_that_openssl_does_not_take() -> None:
    """A broker may advertise such a name; it is one lost connection, and the stream is closed."""
    ours, theirs = trio.testing.memory_stream_pair()
    with pytest.raises(ConnectionLostError, match=r"no certificate can be for '\.test'"):
        await open_tls(ours, client_context(client()), ".test", "the broker")
    assert await theirs.receive_some() == b""


async def test_a_handshake_has_the_deadline_of_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A broker that never answers in the handshake costs the time-out, and no stream stays open."""
    async with trio.open_nursery() as nursery:
        broker = ScriptedBroker(nursery, Peer.rest, Peer.rest)
        security = ConnectionSecurity(client())
        with pytest.raises(RequestTimeoutError, match="no TLS handshake with .* within 5 s"):
            await Connection.open(
                broker.open, HOST, 9093, client_id=None, timeout=5, security=security
            )
        assert trio.current_time() == pytest.approx(5, abs=0.5)
        with trio.move_on_after(1) as scope:
            await Connection.open(
                broker.open, HOST, 9093, client_id=None, timeout=5, security=security
            )
        assert scope.cancelled_caught
    # The scripts ended, because both streams were closed.


@pytest.mark.parametrize("version", [1, 3])
async def test_plain_text_to_a_port_with_tls(version: int) -> None:
    """The TLS alert with which the port answers is recognised, and is none that is retried."""

    async def alert(peer: Peer) -> None:
        await peer.frames.receive()
        await peer.stream.send_all(bytes([0x15, 3, version, 0, 2, 2, 0x50]))

    async with trio.open_nursery() as nursery:
        broker = ScriptedBroker(nursery, alert)
        with pytest.raises(AuthenticationError, match="its port expects TLS; use protocol SSL or"):
            await Connection.open(broker.open, HOST, 9093, client_id=None, timeout=5)


async def test_a_tls_alert_on_a_connection_that_has_worked() -> None:
    """A port that has answered without TLS does not expect it: the response is invalid."""

    async def alert(peer: Peer) -> None:
        await peer.negotiate()
        await peer.frames.receive()
        await peer.stream.send_all(bytes([0x15, 3, 3, 0, 2, 2, 0x50]))

    request: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    async with trio.open_nursery() as nursery:
        broker = ScriptedBroker(nursery, alert)
        connection = await Connection.open(broker.open, HOST, 9093, client_id=None, timeout=5)
        with pytest.raises(ProtocolError, match="announced a frame of"):
            await connection.request("heartbeat", request, timeout=5)
        assert connection.broken


async def test_plain_text_to_a_port_with_a_login() -> None:
    """A broker that closes at the first request may wait for a login: the error says so, once."""

    async def close(peer: Peer) -> None:
        await peer.negotiate()
        await peer.request()

    request: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    async with trio.open_nursery() as nursery:
        broker = ScriptedBroker(nursery, close)
        connection = await Connection.open(broker.open, HOST, 9092, client_id=None, timeout=5)
        with pytest.raises(ConnectionLostError, match="a listener that asks for a login"):
            await connection.request("heartbeat", request, timeout=5)


async def test_a_broker_with_an_older_version_is_refused() -> None:
    """The error names the setting; nothing is tried again."""
    context = server(AUTHORITY.issue_cert(HOST), newest=ssl.TLSVersion.TLSv1_2)
    assert await handshake(context, client()) == b"hello"
    with pytest.raises(
        AuthenticationError, match="no version of TLS that Security.minimum_version allows"
    ):
        await handshake(context, client(minimum_version="TLSv1.3"))
