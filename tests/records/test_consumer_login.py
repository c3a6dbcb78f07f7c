"""The login of a Consumer: when it is made, and how it learns of other passwords and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
import trustme
from confluent_kafka import KafkaError, KafkaException

from kgroup.records import consumer_login, consumer_thread, lost_brokers
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.security.ssl_context_cache import RenewedFiles
from kgroup.types import TopicPartition
from kgroup.wire.logins import logins_of
from kgroup.worker_thread import compute_inline
from tests.records.scripted import record
from tests.records.test_consumer_thread import A, ScriptedConsumer, obeyed, running

FAR = 9e9


class LoggedIn(ScriptedConsumer):
    """A Consumer whose user and password can be changed."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Do what the real one does."""
        self._note("login", (username, password))


async def test_the_consumer_is_made_once_there_is_a_token() -> None:
    """What was commanded before is done then; librdkafka's callback returns the token."""
    consumer = LoggedIn()
    security = Security(
        protocol="SASL_PLAINTEXT",
        mechanism="OAUTHBEARER",
        token=lambda: Token("t", FAR, "alice", {"a": "b"}),
    )
    logins = logins_of(security, lambda: compute_inline)
    async with running(consumer, security=security) as source:
        source.prepare(["t"])
        source.assign(1, {A: 5})
        source.open(1, [A])
        assert not hasattr(consumer, "settings")
        await logins.for_new_connection()
        await consumer.until(lambda: ("assign", [(0, 5)]) in consumer.calls)
        give: Any = consumer.settings["oauth_cb"]
        assert await trio.to_thread.run_sync(give, "") == ("t", FAR, "alice", {"a": "b"})


async def test_a_source_closes_while_it_waits_for_a_token() -> None:
    """No Consumer is made then."""
    consumer = LoggedIn()
    security = Security(
        protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=lambda: Token("other", FAR)
    )
    async with running(consumer, security=security) as source:
        source.prepare(["t"])
    assert not hasattr(consumer, "settings")


async def test_another_password_is_given_to_the_consumer() -> None:
    """Once for each change, in the Consumer's thread."""
    consumer, passwords = LoggedIn(), ["one"]
    security = Security(
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        credentials=lambda: Credentials("alice", passwords[-1]),
    )
    logins = logins_of(security, lambda: compute_inline)
    await logins.for_new_connection()
    async with running(consumer, security=security) as source:
        source.prepare(["t"])
        await obeyed(source)
        assert consumer.settings["sasl.password"] == "one"
        passwords.append("two")
        for _ in range(2):
            await logins.for_new_connection()
        await obeyed(source)
    assert [call for call in consumer.calls if call[0] == "login"] == [("login", ("alice", "two"))]


async def test_files_count_as_renewed_once_they_can_be_read(tmp_path: Path) -> None:
    """A file that is half written is tried again; the Consumer's thread looks every 10 s."""
    file = tmp_path / "ca.pem"
    file.write_bytes(trustme.CA().cert_pem.bytes())
    security = Security(protocol="SSL", ca=file)
    files = RenewedFiles(security)
    login = consumer_login.ConsumerLogin(security, lambda: None)
    assert not files.renewed()
    assert not login.files_renewed(100.0)
    file.write_bytes(b"-----BEGIN ")
    assert not files.renewed()
    file.write_bytes(trustme.CA().cert_pem.bytes() + b"\n")
    assert [files.renewed(), files.renewed()] == [True, False]
    assert [login.files_renewed(at) for at in (105.0, 110.0, 120.0)] == [False, True, False]


def _brokers_are_lost(source: LibrdkafkaSource, consumer: ScriptedConsumer) -> None:
    del source
    consumer.request_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    consumer.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))


def _topics_are_left(source: LibrdkafkaSource, consumer: ScriptedConsumer) -> None:
    del consumer
    for epoch, name in ((2, "left"), (3, "left-too"), (4, "t")):
        source.assign(epoch, {TopicPartition(name, 0): 5})
        source.open(epoch, [TopicPartition(name, 0)])


@pytest.mark.parametrize("happens", [_brokers_are_lost, _topics_are_left])
async def test_a_consumer_is_kept_while_there_is_no_token_for_another(
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[LibrdkafkaSource, ScriptedConsumer], None],
) -> None:
    """It is replaced once there is a valid token again; meanwhile the thread serves it."""
    monkeypatch.setattr(lost_brokers, "INTERVAL", 0.0)
    monkeypatch.setattr(lost_brokers, "PATIENCE", 0.0)
    monkeypatch.setattr(consumer_thread, "MOST_FORMER_TOPICS", 0)
    first, second = ScriptedConsumer(), ScriptedConsumer()
    opened = [first, second]
    consumer: Any = SimpleNamespace(open=lambda settings: opened.pop(0).open(settings))
    tokens = [Token("one", FAR)]
    security = Security(
        protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=lambda: tokens[-1]
    )
    logins = logins_of(security, lambda: compute_inline)
    await logins.for_new_connection()
    async with running(consumer, security=security) as source:
        source.assign(1, {A: 0})
        source.open(1, [A])
        first.feed(record(A, 0))
        assert (await source.receive(1, [A], 1)).next_offset == 1
        logins.latest = attrs.evolve(tokens[0], expires_at=1.5e9)
        happens(source, first)
        polls = first.polls
        await first.until(lambda: first.polls > polls + 3)
        await obeyed(source)
        assert opened == [second]
        logins.latest = tokens[0]
        if happens is _topics_are_left:
            source.assign(5, {TopicPartition("other", 0): 5})
            source.open(5, [TopicPartition("other", 0)])
        await second.until(lambda: bool(second.calls))
        assert first.calls[-1] == ("close", None)


async def test_files_do_not_count_as_renewed_while_there_is_no_token(tmp_path: Path) -> None:
    """They do once there is one: until then no Consumer that has read them can be made."""
    file = tmp_path / "ca.pem"
    file.write_bytes(trustme.CA().cert_pem.bytes())
    token = Token("t", FAR)
    security = Security(protocol="SASL_SSL", mechanism="OAUTHBEARER", ca=file, token=lambda: token)
    login = consumer_login.ConsumerLogin(security, lambda: None)
    file.write_bytes(trustme.CA().cert_pem.bytes() + b"\n")
    assert not login.files_renewed(100.0)
    await logins_of(security, lambda: compute_inline).for_new_connection()
    assert [login.files_renewed(at) for at in (101.0, 120.0)] == [True, False]
