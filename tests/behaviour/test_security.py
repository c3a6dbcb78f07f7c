"""Groups on a real Kafka with TLS and logins."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from click.testing import CliRunner

from kgroup.cli import main
from kgroup.config import GroupConfig
from kgroup.errors import AuthenticationError
from kgroup.group import ConsumerGroup
from kgroup.notifier import Notifier
from kgroup.security.settings import SaslMechanism, Security
from kgroup.security.unsecured_token import UnsecuredToken
from kgroup.testing.admin import create_topic, end_offsets, produce
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener, unsecured_token
from kgroup.types import TopicPartition
from tests.behaviour.rights import EVERYONE_READS, grant
from tests.brokers import unique
from tests.security.identity_provider import Provider, provider

pytestmark = [pytest.mark.real_kafka, pytest.mark.xdist_group("security")]
USERS = {"alice": "alice-secret"}
RECORDS = 20
SOON = 150.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    """A Kafka with a secure listener, on which every user may read everything."""
    with RealKafka(secure=SecureListener(USERS)) as kafka:
        grant(kafka.bootstrap_servers, *EVERYONE_READS)
        yield kafka


def config(kafka: RealKafka, security: Security) -> GroupConfig:
    """A group of its own, with a topic that has records."""
    name = unique("secure")
    create_topic(kafka.bootstrap_servers, name, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=number % 2)
    producer.flush()
    return GroupConfig(
        bootstrap_servers=kafka.secure_servers, group_id=name, topics=[name], security=security
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_reading_and_committing_with_a_login(kafka: RealKafka, mechanism: str) -> None:
    """Both planes log in by each mechanism: records are read, and commits accepted."""
    assert kafka.secure is not None
    made = await trio.to_thread.run_sync(config, kafka, kafka.secure.login("alice", mechanism))
    read = 0
    with trio.fail_after(SOON):
        async with ConsumerGroup(made) as group:
            generation = await group.next()
            async for batch in generation.records():
                read += len(batch)
                await generation.commit({batch.partition: batch.next_offset})
                if read == RECORDS:
                    break
    assert read == RECORDS


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"password": "wrong"}, "SASL_AUTHENTICATION_FAILED.* check user name and password"),
        ({"ca": None}, "the certificate of .* was not accepted: unable to get local issuer"),
    ],
)
async def test_what_a_failed_login_says(
    kafka: RealKafka, settings: dict[str, Any], expected: str
) -> None:
    """The group ends with one error, which says what to check."""
    assert kafka.secure is not None
    usual: dict[str, Any] = {"ca": kafka.secure.ca, "username": "alice", "password": USERS["alice"]}
    security = Security(protocol="SASL_SSL", mechanism="PLAIN", **{**usual, **settings})
    made = await trio.to_thread.run_sync(config, kafka, security)
    with trio.fail_after(SOON):
        async with ConsumerGroup(made) as group:
            with pytest.raises(AuthenticationError, match=expected):
                await group.next()


@pytest.fixture
def properties(kafka: RealKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The property file of a client of the secure listener, with a reference to the password."""
    assert kafka.secure is not None
    (tmp_path / "ca.pem").write_text(kafka.secure.ca)
    monkeypatch.setenv("ALICE", USERS["alice"])
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "security.protocol = SASL_SSL\nsasl.mechanism = SCRAM-SHA-512\n"
        f"ssl.truststore.type = PEM\nssl.truststore.location = {tmp_path / 'ca.pem'}\n"
        f'sasl.jaas.config = {module} required username="alice" \\\n  password="${{env:ALICE}}";\n'
    )
    return file


async def test_reading_with_a_property_file(kafka: RealKafka, properties: Path) -> None:
    """The file of a Java client logs both planes in, and the command line too."""
    assert kafka.secure is not None
    plain = await trio.to_thread.run_sync(config, kafka, kafka.secure.login("alice"))
    made = GroupConfig.from_properties(
        properties,
        group_id=plain.group_id,
        topics=plain.topics,
        bootstrap_servers=plain.bootstrap_servers,
    )
    arguments = ["assign", f"--bootstrap-servers={kafka.secure_servers}", "--group=no-such-group"]
    with trio.fail_after(SOON):
        async with ConsumerGroup(made) as group:
            generation = await group.next()
            async for batch in generation.records():
                assert len(batch) > 0
                break
        result = await trio.to_thread.run_sync(
            CliRunner().invoke, main, [*arguments, f"--config={properties}"]
        )
    assert "group 'no-such-group' does not exist" in result.output
    (topic,) = plain.topics
    partition = TopicPartition(str(topic), 0)
    ends = partial(end_offsets, kafka.secure_servers, [partition], security=made.security)
    assert await trio.to_thread.run_sync(ends) == {partition: RECORDS // 2}


def token_properties(url: str) -> dict[str, str]:
    """The properties of a client of librdkafka that requests tokens there."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "client-secret",
    }


async def test_reading_with_tokens_of_an_identity_provider(kafka: RealKafka) -> None:
    """Properties alone let both planes log in with tokens of a provider, requested once."""
    assert kafka.secure is not None
    plain = await trio.to_thread.run_sync(config, kafka, kafka.secure.login("alice"))
    value, _ = UnsecuredToken({"sub": "alice"}, "alice", 600.0, {}).make()
    body = json.dumps({"access_token": value, "expires_in": 600}).encode()
    with provider(200, body) as url, trio.fail_after(SOON):
        made = GroupConfig.from_properties(
            {**token_properties(url), "ssl.ca.pem": kafka.secure.ca},
            group_id=plain.group_id,
            topics=plain.topics,
            bootstrap_servers=plain.bootstrap_servers,
        )
        read = 0
        async with ConsumerGroup(made) as group:
            generation = await group.next()
            async for batch in generation.records():
                read += len(batch)
                await generation.commit({batch.partition: batch.next_offset})
                if read == RECORDS:
                    break
        assert [path for path, _, _ in Provider.seen] == ["/token"]


async def test_an_identity_provider_that_is_away(kafka: RealKafka) -> None:
    """The group ends with one error that names the provider, and not its secret."""
    assert kafka.secure is not None
    url = "http://127.0.0.1:1/token"
    made = GroupConfig.from_properties(
        {**token_properties(url), "ssl.ca.pem": kafka.secure.ca},
        group_id="g",
        topics=["t"],
        bootstrap_servers=kafka.secure_servers,
    )
    with trio.fail_after(SOON), pytest.raises(AuthenticationError) as caught:
        async with ConsumerGroup(made) as group:
            await group.next()
    assert f"the identity provider {url} cannot be reached" in str(caught.value)
    assert "client-secret" not in repr(caught.value)


async def test_members_of_one_group_log_in_by_different_mechanisms(kafka: RealKafka) -> None:
    """They share the partitions, and read everything together."""
    secure = kafka.secure
    assert secure is not None
    name = unique("mixed")
    await trio.to_thread.run_sync(create_topic, kafka.bootstrap_servers, name, len(SaslMechanism))
    read: Counter[str] = Counter()
    shares: dict[SaslMechanism, int] = {}
    changed = Notifier()

    def security(mechanism: SaslMechanism) -> Security:
        if mechanism is not SaslMechanism.OAUTHBEARER:
            return secure.login("alice", mechanism)
        return Security(
            protocol="SASL_SSL",
            mechanism=mechanism,
            ca=secure.ca,
            token=lambda: unsecured_token("alice"),
        )

    async def take_part(mechanism: SaslMechanism) -> None:
        made = GroupConfig(
            bootstrap_servers=kafka.secure_servers,
            group_id=name,
            topics=[name],
            security=security(mechanism),
        )
        async with ConsumerGroup(made) as group:
            async for generation in group:
                shares[mechanism] = len(generation.assignment)
                changed.notify()
                async for batch in generation.records():
                    read.update((message.value() or b"").decode() for message in batch)
                    await generation.commit({batch.partition: batch.next_offset})
                    changed.notify()

    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            for mechanism in SaslMechanism:
                nursery.start_soon(take_part, mechanism)
            while shares != dict.fromkeys(SaslMechanism, 1):
                await changed.wait()
            values = [str(number) for number in range(RECORDS)]
            await trio.to_thread.run_sync(produce, kafka.bootstrap_servers, name, values)
            while len(read) < RECORDS:
                await changed.wait()
            nursery.cancel_scope.cancel()
    assert read == Counter(values)
