"""What a refused connection, login or request says on a real Kafka: one error that names the cure.

``CASES`` is the table; the one in docs/security.md says the same to users. A row that is not
retried ends the group with one error, after one event and without a line of librdkafka. A row that
is retried, because a broker that restarts looks the same, gives an event at each attempt.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

import attrs
import pytest
import trio
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import ScramMechanism, UserScramCredentialDeletion

from kgroup.config import GroupConfig
from kgroup.errors import (
    AuthenticationError,
    AuthorizationError,
    CommitFailedError,
    FatalGroupError,
)
from kgroup.events import Event, RecordSourceFailed, RequestFailed
from kgroup.generation.record_stream import RecordStream
from kgroup.group import ConsumerGroup
from kgroup.security.credentials import Token
from kgroup.security.settings import Security
from kgroup.testing.admin import create_topic, produce
from kgroup.testing.java import QUICK
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener, unsecured_token
from kgroup.types import TopicPartition
from tests.behaviour.rights import grant, right
from tests.brokers import unique
from tests.security.signed_tokens import signed_token, write_keys

pytestmark = [pytest.mark.real_kafka, pytest.mark.xdist_group("security")]
SOON: Final = 150.0
SESSION: Final = 2.0
MOST_EVENTS: Final = 6
TOPIC: Final = "login-failures"
GROUP: Final = "login-failures"
LONG_AGO: Final = datetime(2020, 1, 1)  # noqa: DTZ001 # trustme wants it naive
USERS: Final = {
    name: f"{name}-secret" for name in ("alice", "topics", "groups", "hidden", "taken", "revoked")
}
WRONG: Final = "wrong"
AUDIENCE: Final = "orders-cluster"
VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)
KEYS: Final = Path(tempfile.gettempdir()) / f"{unique('keys')}.json"
AUTHORITY: Final = trustme.CA()
FOREIGN: Final = trustme.CA()
LISTENERS: Final = {
    "tls": SecureListener(USERS, name="SECURE", authority=AUTHORITY),
    "expired": SecureListener(USERS, name="EXPIRED", authority=AUTHORITY, expires_at=LONG_AGO),
    "elsewhere": SecureListener(
        USERS, name="ELSEWHERE", authority=AUTHORITY, certified=("elsewhere.test",)
    ),
    "mutual": SecureListener(name="MUTUAL", authority=AUTHORITY, client_certificates=True),
    "sessions": SecureListener(
        USERS, name="SESSIONS", authority=AUTHORITY, session_lifetime=SESSION
    ),
    "signed": SecureListener(
        name="SIGNED",
        authority=AUTHORITY,
        properties={
            "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": KEYS.as_uri(),
            "listener.name.signed.sasl.oauthbearer.expected.audience": AUDIENCE,
        },
    ),
    "password": SecureListener(
        USERS,
        name="PASSWORD",
        tls=False,
        properties={"listener.name.password.sasl.enabled.mechanisms": "PLAIN"},
    ),
}


def pem(authority: trustme.CA) -> str:
    """The authority's own certificate."""
    return authority.cert_pem.bytes().decode()


def login(**changes: Any) -> Security:
    """What alice gives, with these changes; None leaves a setting out."""
    usual: dict[str, Any] = {
        "protocol": "SASL_SSL",
        "ca": pem(AUTHORITY),
        "mechanism": "PLAIN",
        "username": "alice",
        "password": USERS["alice"],
    }
    given = {**usual, **changes}
    return Security(**{name: value for name, value in given.items() if value is not None})


def user(name: str) -> Security:
    """What a user gives."""
    return login(username=name, password=USERS[name])


def without_login(**settings: Any) -> Security:
    """TLS alone."""
    return Security(protocol="SSL", ca=pem(AUTHORITY), **settings)


def shown(authority: trustme.CA, **details: Any) -> Security:
    """A client certificate that this authority has issued."""
    issued = authority.issue_cert("client.test", **details)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
    return without_login(certificate=chain, key=issued.private_key_pem.bytes().decode())


def token(made: Token) -> Security:
    """A login with this token."""
    plain: dict[str, Any] = dict.fromkeys(("username", "password"))
    return login(mechanism="OAUTHBEARER", token=lambda: made, **plain)


@final
@attrs.frozen
class Case:
    """A row of the table.

    Attributes:
        name: what is wrong.
        port: the listener that the client connects to; "plain" has neither TLS nor a login.
        security: what the client is given.
        says: what the error or event must say.
        error: the class of the error; None if kgroup tries again.
        topics: the topics that the group subscribes to.
    """

    name: str
    port: str
    security: Security
    says: str
    error: type[FatalGroupError] | None = AuthenticationError
    topics: tuple[str, ...] = (TOPIC,)


CASES: Final = (
    Case("plain text to TLS", "tls", Security(), "its port expects TLS; use protocol SSL or"),
    Case(
        "a login in plain text to TLS",
        "tls",
        login(protocol="SASL_PLAINTEXT", ca=None),
        "its port expects TLS; use protocol SSL or",
    ),
    Case("TLS to plain text", "plain", without_login(), "if this repeats, the port does not", None),
    Case("no login", "password", Security(), "a listener that asks for a login: use", None),
    Case(
        "a login where none is",
        "plain",
        login(protocol="SASL_PLAINTEXT", ca=None),
        "this port has no login; use protocol PLAINTEXT, or another port",
    ),
    Case("unknown CA", "tls", login(ca=pem(FOREIGN)), "local issuer certificate; set Security.ca"),
    Case("expired broker", "expired", login(), "certificate has expired; renew it on the broker"),
    Case("wrong host", "elsewhere", login(), "not valid for '127.0.0.1'; connect by a name"),
    Case("no certificate", "mutual", without_login(), "it asks for a client certificate"),
    Case("foreign certificate", "mutual", shown(FOREIGN), "do not know the client certificate"),
    Case("old certificate", "mutual", shown(AUTHORITY, not_after=LONG_AGO), "or it expired"),
    Case(
        "mechanism not enabled",
        "password",
        login(protocol="SASL_PLAINTEXT", ca=None, mechanism="SCRAM-SHA-256"),
        r"\(UNSUPPORTED_SASL_MECHANISM\): the broker has these mechanisms: PLAIN; use one",
    ),
    Case("unknown user", "tls", login(username="bob"), "check user name and password"),
    Case("wrong password", "tls", login(password=WRONG), "check user name and password"),
    Case(
        "wrong SCRAM password",
        "tls",
        login(password=WRONG, mechanism="SCRAM-SHA-512"),
        "check user name and password",
    ),
    Case(
        "expired token",
        "tls",
        token(unsecured_token("alice", -5.0)),
        r"a token that expired \d+ s ago",
    ),
    Case(
        "a token that is none",
        "tls",
        token(attrs.evolve(unsecured_token("alice"), value="garbage")),
        "refused the token .* it is valid for",
    ),
    Case(
        "a token for another audience",
        "signed",
        token(signed_token("alice", "another-cluster")),
        "refused the token .* it is valid for .*: check its issuer, audience and scope",
    ),
    Case(
        "topic but not group",
        "tls",
        user("topics"),
        f"group '{GROUP}' was .*GROUP_AUTHORIZATION_FAILED.* grant the user READ on the group",
        AuthorizationError,
    ),
    Case(
        "group but not topic",
        "tls",
        user("groups"),
        f"topic '{TOPIC}' was .*TOPIC_AUTHORIZATION_FAILED.* grant the user READ .*, or correct",
        AuthorizationError,
    ),
    Case(
        "some of the topics",
        "tls",
        login(),
        "topic 'another' was .*TOPIC_AUTHORIZATION_FAILED",
        AuthorizationError,
        (TOPIC, "another"),
    ),
    Case(
        "READ without DESCRIBE",
        "tls",
        user("hidden"),
        f"topic '{TOPIC}' was .*TOPIC_AUTHORIZATION_FAILED.* grant the user READ .*, or correct",
        AuthorizationError,
    ),
)


def topic_right(
    user: str,
    operation: AclOperation = AclOperation.READ,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """A user's right to the topic of these tests."""
    return right(ResourceType.TOPIC, TOPIC, user, operation, permission)


RIGHTS: Final = (
    *(topic_right(name) for name in ("alice", "topics", "hidden", "revoked")),
    *(right(ResourceType.GROUP, GROUP, name) for name in ("alice", "groups", "hidden", "revoked")),
    topic_right("hidden", AclOperation.DESCRIBE, AclPermissionType.DENY),
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    """A Kafka with all these listeners, a topic, and the rights of the users."""
    write_keys(KEYS)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={KEYS.as_uri()}"
    try:
        with RealKafka(secure=list(LISTENERS.values()), java_options=[*QUICK, allowed]) as kafka:
            create_topic(kafka.bootstrap_servers, TOPIC)
            grant(kafka.bootstrap_servers, *RIGHTS)
            yield kafka
    finally:
        KEYS.unlink()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_a_failed_login_says(
    kafka: RealKafka, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    """One error and one event, or one event an attempt; librdkafka says nothing."""
    servers = kafka.bootstrap_servers
    if case.port != "plain":
        servers = kafka.servers_of(LISTENERS[case.port])
    made = GroupConfig(
        bootstrap_servers=servers, group_id=GROUP, topics=case.topics, security=case.security
    )
    repeated = trio.Event()
    reasons: list[str] = []

    def on_event(event: Event) -> None:
        assert not isinstance(event, RecordSourceFailed), event
        if isinstance(event, RequestFailed):
            reasons.append(event.reason)
            if len(reasons) == 2:
                repeated.set()

    with trio.fail_after(SOON), caplog.at_level(logging.DEBUG, "kgroup.librdkafka"):
        async with ConsumerGroup(made, on_event=on_event) as group:
            if case.error is None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(group.next)
                    await repeated.wait()
                    nursery.cancel_scope.cancel()
            else:
                with pytest.raises(case.error, match=case.says) as raised:
                    await group.next()
                assert reasons == [str(raised.value)]
    for text in reasons:
        assert re.search(case.says, text)
    if case.security != Security():
        assert not [line for line in caplog.records if line.name == "kgroup.librdkafka"]


async def test_a_right_that_is_taken_away_and_given_back(kafka: RealKafka) -> None:
    """The reader gets one error; if it reads on, records follow once it may read them again."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    made = GroupConfig(
        bootstrap_servers=kafka.servers_of(LISTENERS["tls"]),
        group_id=GROUP,
        topics=[TOPIC],
        security=user("taken"),
    )
    partition = TopicPartition(TOPIC, 0)
    described = topic_right("taken", AclOperation.DESCRIBE)
    read = topic_right("taken")

    def take_away() -> None:
        a: Any = read
        mine = AclBindingFilter(
            a.restype,
            a.name,
            a.resource_pattern_type,
            a.principal,
            a.host,
            a.operation,
            a.permission_type,
        )
        for ended in admin.delete_acls([mine]).values():
            ended.result(SOON)

    async def next_value(stream: RecordStream) -> object:
        (message,) = (await anext(stream)).messages
        return message.value()

    in_thread = trio.to_thread.run_sync
    allowed_group = right(ResourceType.GROUP, GROUP, "taken")
    await in_thread(grant, kafka.bootstrap_servers, described, read, allowed_group)
    with trio.fail_after(SOON):
        async with ConsumerGroup(made) as group:
            generation = await group.next()
            stream = generation.records()
            await in_thread(produce, kafka.bootstrap_servers, TOPIC, ["first"])
            assert await next_value(stream) == b"first"
            await in_thread(take_away)
            with pytest.raises(AuthorizationError, match=f"{TOPIC}-0 cannot be read: .* READ"):
                await anext(stream)
            with pytest.raises(CommitFailedError, match="TOPIC_AUTHORIZATION_FAILED"):
                await generation.commit({partition: 1})
            await in_thread(produce, kafka.bootstrap_servers, TOPIC, ["second"])
            await in_thread(grant, kafka.bootstrap_servers, read)
            assert await next_value(stream) == b"second"
            await generation.commit({partition: 2})


async def test_a_user_that_is_deleted_is_told_when_the_session_ends(kafka: RealKafka) -> None:
    """The group ends with one error at the next login; nothing is repeated without end."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    made = GroupConfig(
        bootstrap_servers=kafka.servers_of(LISTENERS["sessions"]),
        group_id=GROUP,
        topics=[TOPIC],
        security=login(mechanism="SCRAM-SHA-512", username="revoked", password=USERS["revoked"]),
        close_timeout=SOON,  # the attempt to leave is not cut off, even if the machine pauses
    )

    def delete_user() -> None:
        kind = ScramMechanism.SCRAM_SHA_512
        ended = admin.alter_user_scram_credentials([UserScramCredentialDeletion("revoked", kind)])
        ended["revoked"].result(SOON)

    events: list[Event] = []
    with trio.fail_after(SOON):
        async with ConsumerGroup(made, on_event=events.append) as group:
            generation = await group.next()
            await trio.to_thread.run_sync(delete_user)
            await generation.ending.wait()
            with pytest.raises(AuthenticationError, match="SCRAM-SHA-512 failed .*check user name"):
                await group.next()
    # The topics' watcher, the heartbeat and LeaveGroup each need a login, until one ends the group.
    failed = [event.request for event in events if isinstance(event, RequestFailed)]
    assert failed.count("Heartbeat") == failed.count("LeaveGroup") == 1
    assert len(failed) <= MOST_EVENTS
    assert len([event for event in events if isinstance(event, RecordSourceFailed)]) <= 2


async def test_a_token_for_the_right_audience_is_accepted(kafka: RealKafka) -> None:
    """The listener that refuses another audience lets this token in, on both planes."""
    await trio.to_thread.run_sync(produce, kafka.bootstrap_servers, TOPIC, ["x"])
    made = GroupConfig(
        bootstrap_servers=kafka.servers_of(LISTENERS["signed"]),
        group_id=GROUP,
        topics=[TOPIC],
        security=token(signed_token("alice", AUDIENCE)),
    )
    with trio.fail_after(SOON):
        async with ConsumerGroup(made) as group:
            generation = await group.next()
            async for batch in generation.records():
                assert len(batch) > 0
                break
