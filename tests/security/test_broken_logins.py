"""Every way to log in, broken at every step: no report of the error has the secret.

A report has the texts of an error and of all that it comes of, and the local variables of kgroup's
functions and of the libraries that they call (`tests.security.frames`). Each case is a login path,
breaks it in its own way as often as it has steps, and returns the errors.
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
import random
import re
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import attrs
import confluent_kafka
import pytest
import trio
import trustme
from confluent_kafka import KafkaError, KafkaException
from cryptography.hazmat.primitives import serialization
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.cli.admin_client import AdminConnection, client_settings
from kgroup.cli.consume.reading import ConsumeOptions, Reading
from kgroup.cli.demo.cluster import DemoCluster, LineProducer
from kgroup.config import GroupConfig
from kgroup.group import ConsumerGroup
from kgroup.records.librdkafka import CONSUMERS, Consumers, LibrdkafkaSource
from kgroup.security.credentials import Credentials, Token
from kgroup.security.oidc import OidcClientCredentials
from kgroup.security.settings import SaslMechanism, Security
from kgroup.security.ssl_contexts import client_context
from kgroup.security.unsecured_token import jwt_part
from kgroup.spark.consumer_pool import PooledConsumer
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.testing import admin
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import IsolationLevel, TopicPartition
from kgroup.wire.codec import decode_request, encode_response
from kgroup.wire.connection import Connection
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.logins import logins_of
from kgroup.wire.metadata_request import metadata_fields
from kgroup.worker_thread import compute_inline
from tests.security.frames import frames

KEY: Final = "hunter2"
WORD: Final = f"{KEY}-secret"
"""The secret of every login; its beginning is enough to recognise it."""
FAR: Final = 9e9
TOKEN: Final = f"{jwt_part({'alg': 'none'})}.{jwt_part({'sub': 'alice', 'jti': WORD, 'exp': FAR})}."
SESSION: Final = 5.0
MOST_STEPS: Final = 30
"""More than one login has; a group's connections go on."""
TIMEOUT: Final = 10.0


def in_base64(text: str) -> Iterator[str]:
    """What every text in base64 contains that has this one in it, wherever that begins."""
    for before, skipped in enumerate((0, 2, 3)):
        data = b"\0" * before + text.encode()
        yield base64.b64encode(data).decode()[skipped : len(data) * 8 // 6]


SHOWN: Final = re.compile("|".join([KEY, *in_base64(KEY), r"[,b]p=[A-Za-z0-9+/]{40}"]))
"""The secret, also in base64, or SCRAM's proof, which a dictionary can be tried on."""


def test_the_secret_is_recognised() -> None:
    """In every form in which it is sent."""
    for text in (
        repr(f"\0alice\0{WORD}".encode()),
        *(base64.b64encode(f"{user}:{WORD}".encode()).decode() for user in ("a", "ab", "abc")),
        TOKEN,
    ):
        assert SHOWN.search(text), text


# The exchange with a broker, in virtual time.


@final
@attrs.define(eq=False, repr=False)
class Breaking(trio.abc.Stream):
    """A stream of which one send or receive, counted together, goes wrong."""

    stream: trio.abc.Stream
    fault: Callable[[Breaking], Awaitable[bytes]]
    at: int
    count: int = 0
    sent: bytes = b""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send it, or what the fault has in its place."""
        self.count += 1
        self.sent = bytes(data)
        await self.stream.send_all(await self.fault(self) if self.count == self.at else data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive something, or what the fault has in its place."""
        self.count += 1
        if self.count == self.at:
            return await self.fault(self)
        return await self.stream.receive_some(max_bytes)

    async def wait_send_all_might_not_block(self) -> None:
        """See trio."""
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """See trio."""
        await self.stream.aclose()


async def reset(_: Breaking) -> bytes:
    """The peer resets the connection."""
    raise trio.BrokenResourceError("reset") from ConnectionResetError(104, "reset by peer")


async def closed(_: Breaking) -> bytes:
    """The stream was closed."""
    raise trio.ClosedResourceError


async def eof(_: Breaking) -> bytes:
    """The peer ends the stream, or what is sent is lost."""
    return b""


async def noise(_: Breaking) -> bytes:
    """Something that is no frame at all."""
    return random.Random(1).randbytes(200)


async def echo(stream: Breaking) -> bytes:
    """What the client has sent."""
    return stream.sent


async def unreadable(stream: Breaking) -> bytes:
    """A response to the request whose body is that of the request."""
    body = stream.sent[8:12] + b"\xff" + stream.sent[12:]
    return struct.pack(">i", len(body)) + body


async def repeated(stream: Breaking) -> bytes:
    """A refusal that quotes what the client has sent, but for the proof of SCRAM.

    A proof is of this login only, and nobody can try passwords on it without the salt.
    """
    request = decode_request(stream.sent[4:])
    if request.api != "sasl_authenticate":
        return b""
    said = re.sub(rb"p=.*", b"p=", request.entity.auth_bytes)
    fields = {"error_code": 58, "error_message": repr(said), "auth_bytes": said}
    if request.version:
        fields["session_lifetime"] = timedelta(0)
    body = encode_response(request.api, request.version, fields, request.correlation_id)
    return struct.pack(">i", len(body)) + body


async def hangs(_: Breaking) -> bytes:
    """Nothing happens any more."""
    await trio.sleep_forever()
    raise AssertionError


async def cancelled(stream: Breaking) -> bytes:
    """The program is cancelled."""
    stream.scope.cancel()
    return await hangs(stream)


async def interrupted(_: Breaking) -> bytes:
    """A signal handler of the program raises."""
    raise KeyboardInterrupt


FAULTS: Final = (reset, closed, eof, noise, hangs, cancelled, interrupted)
WRONG_FRAMES: Final = (echo, unreadable, repeated)
"""Possible only where the bytes on the network are those of the exchange."""

Errors = list[BaseException]


@contextmanager
def kept(errors: Errors) -> Iterator[None]:
    """A block whose exceptions are kept; a cancellation goes on."""
    try:
        yield
    except trio.Cancelled as error:
        errors.append(error)
        raise
    except BaseException as error:  # noqa: BLE001 # whatever comes is examined
        errors.append(error)


async def use(broker: EmbeddedBroker, security: Security, open_stream: Any) -> None:
    """Log in, send a request, and one more when the session has to be renewed."""
    connection = await Connection.open(
        open_stream,
        broker.host,
        broker.port,
        client_id="c",
        timeout=TIMEOUT,
        security=ConnectionSecurity(security),
    )
    try:
        for _ in range(2):
            await connection.request("metadata", partial(metadata_fields, ()), timeout=TIMEOUT)
            await trio.sleep(0.9 * SESSION)
    finally:
        await connection.aclose()


async def join(broker: EmbeddedBroker, security: Security, open_stream: Any) -> None:
    """Begin a generation of a group, and go on until its sessions have to be renewed."""
    config = config_for(broker, security=security, startup_timeout=4 * TIMEOUT)
    runtime = attrs.evolve(memory_runtime(broker), open_stream=open_stream)
    async with ConsumerGroup(config, runtime=runtime) as group:
        generation = await group.next()
        with trio.move_on_after(2 * SESSION):
            await generation.wait_ended()


async def broken_once(
    broker: EmbeddedBroker, security: Security, fault: Any, at: int, errors: Errors, use: Any
) -> bool:
    """Use connections whose n-th step goes wrong; whether one has so many steps."""
    streams: list[Breaking] = []
    with trio.CancelScope() as scope:

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            stream = await broker.open_stream(host, port)
            streams.append(Breaking(stream, fault, at, scope=scope))
            return streams[-1]

        with kept(errors):
            await use(broker, security, open_stream)
    return any(stream.count >= at for stream in streams)


def exchange(make: Callable[[], Security], *, tls: bool = False, use: Any = use) -> Errors:
    """Break a login at each step, in each way."""

    async def main() -> Errors:
        errors: Errors = []
        secured = BrokerSecurity(
            users={"alice": WORD}, mechanisms=list(SaslMechanism), tls=tls, session_lifetime=SESSION
        )
        async with in_memory(security=secured) as broker:
            await broker.create_topic("topic", 1)
            for fault in FAULTS if tls else (*FAULTS, *WRONG_FRAMES):
                at, found = 1, len(errors)
                security = make()
                if tls:
                    security = attrs.evolve(security, protocol="SASL_SSL", ca=broker.ca)
                while at < MOST_STEPS and await broken_once(
                    broker, security, fault, at, errors, use
                ):
                    at += 1
                # ApiVersions and Metadata have steps of their own.
                assert at > 10, fault
                assert len(errors) - found > 2, fault  # a group recovers from most
        return errors

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def logging_in(mechanism: str, **settings: Any) -> Security:
    """The settings of a login."""
    return Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, **settings)


def by_password(mechanism: str) -> Security:
    """A login by a fixed password."""
    return logging_in(mechanism, username="alice", password=WORD)


def by_credentials() -> Security:
    """A login by a password that is looked up."""
    return logging_in("PLAIN", credentials=lambda: Credentials("alice", WORD))


def by_token() -> Security:
    """A login by a token."""
    return logging_in("OAUTHBEARER", token=lambda: Token(TOKEN, FAR))


def oidc(port: int) -> OidcClientCredentials:
    """Tokens from an identity provider on this machine."""
    return OidcClientCredentials(
        token_endpoint=f"http://127.0.0.1:{port}/token",
        client_id="me",
        client_secret=WORD,
        timeout=0.2,
    )


def by_oidc() -> Errors:
    """A login by tokens from an identity provider."""
    with identity_provider(lambda _: GRANTED) as port:
        return exchange(lambda: logging_in("OAUTHBEARER", token=oidc(port)))


# What the program's functions return.


def lookup(make: Callable[[Any], Security]) -> Errors:
    """A function that fails or returns something else, when a connection is opened."""

    def fail() -> None:
        raise RuntimeError("no vault")

    async def garbage() -> object:
        return [WORD]

    async def hang() -> None:
        await trio.sleep_forever()

    async def main() -> Errors:
        errors: Errors = []
        async with in_memory(security=BrokerSecurity(users={"alice": WORD})) as broker:
            for function in (
                fail,
                garbage,
                hang,
                lambda: WORD,
                lambda: ("alice", WORD),
                lambda: {"password": WORD},
                lambda: Credentials("alice", WORD + "\0"),
                lambda: Token(WORD, 1.0),
                lambda: Token(f"{WORD} ", FAR),
            ):
                with kept(errors):
                    await use(broker, make(function), broker.open_stream)
        assert len(errors) == 9
        return errors

    return trio.run(main, clock=MockClock(autojump_threshold=0))


# An identity provider, on a socket.

BODY: Final = json.dumps({"access_token": TOKEN, "expires_in": 300}).encode()


def response(status: str, body: bytes) -> bytes:
    """A whole response of HTTP."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


GRANTED: Final = response("200 OK", BODY)


@contextmanager
def identity_provider(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """A provider that answers each request with these bytes and closes, or says nothing for None.

    Its port.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(5)
                    request = client.recv(65536)
                    if b"\r\n\r\n" in request and request.endswith(b"\r\n\r\n"):
                        request += client.recv(65536)
                    if (said := answer(request)) is None:
                        client.recv(1)  # until the client gives up
                    else:
                        client.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def provider() -> Errors:
    """The provider is away, silent, cut off after each few bytes, or answers what it should not."""
    errors: Errors = []
    opaque = json.dumps({"access_token": TOKEN.replace(".", "")}).encode()
    spaced = json.dumps({"access_token": f"{WORD} {TOKEN}", "expires_in": 5}).encode()
    refused = json.dumps({"error": WORD, "error_description": f"no {WORD}"}).encode()

    def quoting(request: bytes) -> bytes:
        login = next(line for line in request.splitlines() if line.startswith(b"Authorization"))
        refusal = {"error": "invalid", "error_description": login.decode()}
        return response("401 No", json.dumps(refusal).encode())

    answers: list[Callable[[bytes], bytes | None]] = [
        lambda _: None,
        lambda request: request,
        lambda request: response("200 OK", request),
        lambda request: response("500 No", request),
        lambda request: b"HTTP/1.1 " + request,
        quoting,
        *(lambda _, end=end: GRANTED[:end] for end in range(0, len(GRANTED) - 1, 7)),
        *(lambda _, body=body: response("200 OK", body) for body in (opaque, spaced, b"[1]")),
        lambda _: response("200 OK", b'"' + BODY),
        lambda _: response("401 No", refused),
        lambda _: response(f"302 {WORD}", b"").replace(b"\r\n", b"\r\nLocation: /\r\n", 1),
        # One of two chunks is whole.
        lambda _: (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n1\r\n"
            % (len(BODY), BODY)
        ),
    ]
    for answer in answers:
        with identity_provider(answer) as port, kept(errors):
            oidc(port)()
    with kept(errors):
        oidc(port)()
    assert len(errors) == len(answers) + 1
    return errors


# Keys and certificates.


def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Errors:
    """A key that cannot be read, decrypted, or written for OpenSSL to read it."""
    issued = trustme.CA().issue_cert("localhost")
    chain = "".join(part.bytes().decode() for part in issued.cert_chain_pems)
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"another"),
    ).decode()
    marked = f"{encrypted}\n{WORD}\n"
    file = tmp_path / "chain.pem"
    file.write_text(chain)
    errors: Errors = []
    cases: tuple[dict[str, Any], ...] = (
        {"key": marked},
        {"key": marked, "key_password": WORD},
        {"key": encrypted, "key_password": WORD},
        {"key": f"-----BEGIN PRIVATE KEY-----\n{WORD}\n-----END PRIVATE KEY-----"},
        {"key": WORD},
        {"key": WORD, "certificate": str(file)},
        {"key": marked, "certificate": "/nowhere.pem", "key_password": WORD},
    )
    for settings in cases:
        with kept(errors):
            client_context(Security(protocol="SSL", **{"certificate": chain, **settings}))
    written = Path.write_text

    def full(self: Path, data: str, **options: Any) -> int:
        if self.name == "key.pem":
            raise OSError(28, "No space left on device")
        return written(self, data, **options)

    with monkeypatch.context() as patch, kept(errors):
        patch.setattr(Path, "write_text", full)
        client_context(Security(protocol="SSL", certificate=chain, key=marked))
    assert len(errors) == 8
    return errors


# librdkafka's clients.


def refuse(*_: object) -> Any:
    """What a client says that cannot start."""
    raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "no thread"))


def everything(**login: Any) -> Security:
    """A secret in each setting that can have one."""
    return Security(
        protocol="SASL_SSL",
        ca="/nowhere.pem",
        certificate="client.pem",
        key=f"-----BEGIN PRIVATE KEY-----\n{WORD}\n",
        key_password=WORD,
        mechanism="OAUTHBEARER" if "token" in login else "PLAIN",
        **login,
    )


LOGINS: Final[tuple[Any, ...]] = (
    {"username": "alice", "password": WORD},
    {"credentials": lambda: Credentials("alice", WORD)},
    {"token": lambda: Token(TOKEN, FAR)},
)


def consumers(monkeypatch: pytest.MonkeyPatch) -> Errors:
    """A Consumer of a member's own, or a shared one, that cannot be made, or has no thread."""

    async def start(security: Security, *, shared: bool, errors: Errors) -> None:
        CONSUMERS.set(Consumers(most_own=0 if shared else 1))
        config = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"], security=security)
        source = LibrdkafkaSource(config, lambda *_: None, open_consumer=refuse)
        partition = TopicPartition("t", 0)
        async with source:
            with kept(errors):
                if security.dynamic:
                    logins = logins_of(security, lambda: compute_inline)  # as a group keeps them
                    await logins.for_new_connection()
                source.prepare(["t"])
                source.assign(1, {partition: 0})
                source.open(1, [partition])
                with trio.fail_after(100):
                    await source.receive(1, [partition], 1)

    errors: Errors = []
    for login in LOGINS:
        for shared in (False, True):
            trio.run(partial(start, everything(**login), shared=shared, errors=errors))

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for shared in (False, True):
            trio.run(partial(start, everything(**LOGINS[0]), shared=shared, errors=errors))
    assert len(errors) == 8
    return errors


def clients(monkeypatch: pytest.MonkeyPatch) -> Errors:
    """Producers, admin clients and Consumers of the command line, of tests and of Spark."""

    def fail() -> Credentials:
        raise RuntimeError("no vault")

    static = everything(**LOGINS[0])
    partition = TopicPartition("t", 0)
    monkeypatch.setenv("KGROUP_TEST_SECRET", WORD)
    executor = {
        "client": {"security.protocol": "SASL_SSL", "ssl.ca.location": "/nowhere.pem"},
        "secrets": {"sasl.password": "env:KGROUP_TEST_SECRET"},
    }
    unset = {**executor, "secrets": {**executor["secrets"], "ssl.key.password": "env:KGROUP_UNSET"}}

    def read(security: Security) -> Reading:
        level = IsolationLevel.READ_COMMITTED
        options = ConsumeOptions(
            bootstrap_servers="h:1",
            security=security,
            isolation=level,
            topics=(),
            group_id=None,
            from_beginning=True,
            positions={partition: 0},
            timeout=1.0,
        )
        return Reading(options, print)

    def pooled(settings: Any) -> PooledConsumer:
        made = ReaderSettings(bootstrap_servers=["h:1"], **settings)
        return PooledConsumer(made, None, confluent_kafka.Consumer)

    calls: list[Callable[[], object]] = [
        lambda: client_settings("h:1", everything(credentials=fail)),
        *(
            partial(use, security)
            for use in (lambda security: AdminConnection("h:1", security, 1.0), read)
            for security in (everything(credentials=fail), *(everything(**one) for one in LOGINS))
        ),
        lambda: admin.produce("h:1", "t", [b"x"], security=static),
        lambda: admin.create_topic("h:1", "t", security=static),
        lambda: admin.committed_offsets("h:1", "g", [partition], security=static),
        lambda: admin.end_offsets("h:1", [partition], security=static),
        lambda: DemoCluster("h:1", "t", "g", static),
        lambda: LineProducer("h:1", "t", ["x"], static),
        lambda: pooled(executor),
        lambda: pooled(unset),
    ]
    errors: Errors = []
    for call in calls:
        with kept(errors):
            call()
    assert len(errors) == len(calls)
    return errors


PATHS: Final[dict[str, Callable[..., Errors]]] = {
    **{one.value: partial(exchange, partial(by_password, one.value)) for one in SaslMechanism}
    | {"OAUTHBEARER": partial(exchange, by_token)},
    "credentials": partial(exchange, by_credentials),
    "a group": partial(exchange, partial(by_password, "PLAIN"), use=join),
    "in TLS": partial(exchange, partial(by_password, "PLAIN"), tls=True),
    "OIDC": by_oidc,
    "what credentials return": partial(
        lookup, lambda function: logging_in("PLAIN", credentials=function)
    ),
    "what token returns": partial(
        lookup, lambda function: logging_in("OAUTHBEARER", token=function)
    ),
    "the identity provider": provider,
    "keys": keys,
    "consumers": consumers,
    "other clients": clients,
}


@pytest.mark.parametrize("path", PATHS)
def test_no_broken_login_shows_the_secret(
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither an error and what it comes of, nor their local variables, nor the log."""
    caplog.set_level(logging.DEBUG)
    break_it = PATHS[path]
    wanted = inspect.signature(break_it).parameters
    fixtures = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    errors = break_it(**{name: one for name, one in fixtures.items() if name in wanted})
    shown = {text[:200] for error in errors for text in frames(error) if SHOWN.search(text)}
    assert sorted(shown) == []
    assert not SHOWN.search(caplog.text), caplog.text
