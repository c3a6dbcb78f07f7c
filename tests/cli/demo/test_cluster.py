"""The demo's requests to a cluster, on both brokers, and the errors when they fail."""

from __future__ import annotations

import uuid

import pytest
import trio

from kgroup.broker import BrokerSecurity, serve
from kgroup.cli.demo import DemoError
from kgroup.cli.demo.cluster import DemoCluster, LineProducer
from kgroup.security.credentials import Token
from kgroup.security.settings import Security
from kgroup.testing.secure_listener import unsecured_token
from tests.brokers import Kafka


@pytest.fixture
def cluster(kafka: Kafka) -> DemoCluster:
    """A topic's and a group's name on a broker; neither is there yet."""
    name = f"demo-{uuid.uuid4().hex}"
    return DemoCluster(kafka.bootstrap_servers, topic=name, group_id=name)


async def test_lines_go_to_all_partitions_in_turn(cluster: DemoCluster) -> None:
    """Ten consecutive lines go to each, new partitions included; every offset is recorded."""
    await trio.to_thread.run_sync(cluster.create_topic, 2)
    producer = LineProducer(cluster.bootstrap_servers, cluster.topic, ["a", "", *"b" * 53])
    await producer.spread_over(2)
    producer.send(30)
    await trio.to_thread.run_sync(cluster.add_partitions, 3)
    await producer.spread_over(3)
    producer.send(1000)
    await producer.flush()
    assert (producer.sent, producer.left) == (55, 0)
    lines = sorted((line, partition) for (partition, _), line in producer.placed.items())
    expected = [0] * 10 + [1] * 10 + [0] * 10 + [0] * 10 + [1] * 10 + [2] * 5
    assert lines == list(enumerate(expected))
    assert await trio.to_thread.run_sync(cluster.committed, 3) == {0: 0, 1: 0, 2: 0}
    await trio.to_thread.run_sync(cluster.remove)


async def test_a_producer_that_has_lost_its_brokers_is_replaced(
    cluster: DemoCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one sends what is left, in order, and nothing is missing."""
    await trio.to_thread.run_sync(cluster.create_topic, 1)
    producer = LineProducer(cluster.bootstrap_servers, cluster.topic, [*"abcdefgh"])
    await producer.spread_over(1)
    producer.send(2)
    await producer.flush()
    first = producer._producer
    monkeypatch.setattr("kgroup.cli.demo.cluster.has_broker", lambda *_: False)
    producer.send(4)  # it may be without a broker for a short time
    assert producer._producer is first
    monkeypatch.setattr("kgroup.cli.demo.cluster.LOST", 0.0)
    producer.send(2)
    assert producer._producer is not first
    monkeypatch.undo()
    await producer.flush()
    placed = [line for _, line in sorted(producer.placed.items())]
    assert sorted(set(placed)) == list(range(8))
    assert placed == sorted(placed)
    await trio.to_thread.run_sync(cluster.remove)


async def test_a_token_is_looked_up() -> None:
    """A cluster that demands a token takes the topic, the lines and the requests for offsets."""

    def token() -> Token:
        return unsecured_token("alice")

    login = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=token)
    async with serve(security=BrokerSecurity(mechanisms=["OAUTHBEARER"])) as broker:
        servers = broker.bootstrap_servers
        cluster = await trio.to_thread.run_sync(DemoCluster, servers, "demo", "demo", login)
        await trio.to_thread.run_sync(cluster.create_topic, 1)
        producer = await trio.to_thread.run_sync(LineProducer, servers, "demo", ["a", "b"], login)
        await producer.spread_over(1)
        producer.send(2)
        await producer.flush()
        assert producer.placed == {(0, 0): 0, (0, 1): 1}
        assert await trio.to_thread.run_sync(cluster.committed, 1) == {0: 0}
        await trio.to_thread.run_sync(cluster.remove)


def test_a_login_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's error says what the function of ``Security`` has raised."""
    monkeypatch.setattr("kgroup.wire.logins.FIRST_WAIT", 0.01)

    def token() -> Token:
        raise OSError("the provider is away")

    login = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=token)
    with pytest.raises(DemoError, match="the provider is away"):
        DemoCluster("127.0.0.1:1", "demo", "demo", login)


def test_a_refusal_is_reported(cluster: DemoCluster) -> None:
    """The error says what failed, for which topic, and the cluster's reason."""
    with pytest.raises(DemoError, match="cannot have more partitions: .*(nknown|no) topic"):
        cluster.add_partitions(3)
    with pytest.raises(
        DemoError, match=f"topic {cluster.topic} could not be deleted: .*(nknown|no) topic"
    ):
        cluster.remove()
    cluster.create_topic(1)
    with pytest.raises(DemoError, match="cannot be created: .*already exists"):
        cluster.create_topic(1)
    cluster.remove()


async def test_a_refused_line_is_reported(
    cluster: DemoCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted topic accepts no lines, and has no partitions in the metadata."""
    monkeypatch.setattr("kgroup.cli.demo.cluster.FLUSH_TIMEOUT", 1.0)
    producer = LineProducer(cluster.bootstrap_servers, cluster.topic, ["a"])
    with pytest.raises(DemoError, match="did not reach 1 partitions within"):
        await producer.spread_over(1)
    producer.partitions = 1
    producer.send(1)
    with pytest.raises(DemoError, match="the cluster refused a line|were not acknowledged"):
        await producer.flush()
