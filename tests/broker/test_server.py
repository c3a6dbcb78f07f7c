"""The life of a broker, and the faults that a test can give it."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import BrokerSettings, EmbeddedBroker, NewRecord, endpoint, in_memory, serve
from kgroup.broker.replicas import NO_LEADER
from kgroup.errors import ConfigError, UsageError
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.broker.wire import Client, commit, connected, joining


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """A broker in memory."""
    async with in_memory() as made:
        yield made


async def heartbeat(client: Client) -> int:
    """Send a heartbeat of an unknown member; return the error."""
    answer = await client.request("heartbeat", 4, group_id="g", generation_id=1, member_id="m")
    return int(answer.error_code)


async def over_tcp(broker: EmbeddedBroker) -> Client:
    """Connect by TCP."""
    return Client(await trio.open_tcp_stream(broker.host, broker.port))


async def test_a_served_broker_is_where_it_says() -> None:
    """Metadata names the address to which the client connected."""
    async with serve() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        client = await over_tcp(broker)
        (node,) = (await client.request("metadata", 1, topics=[])).brokers
        assert (node.host, node.port) == (broker.host, broker.port)
        assert repr(broker) == f"<EmbeddedBroker 1 at {broker.bootstrap_servers}, up>"
        await client.stream.aclose()


async def test_a_name_is_served_on_all_of_its_addresses() -> None:
    """A host name listens on one port on all its addresses; 0.0.0.0 is advertised as 127.0.0.1."""
    async with serve("localhost") as broker:
        assert broker.host == "localhost"
        for *_, address in socket.getaddrinfo("localhost", broker.port, type=socket.SOCK_STREAM):
            stream = await trio.open_tcp_stream(str(address[0]), broker.port)
            await stream.aclose()
    async with serve("0.0.0.0") as broker:  # noqa: S104 # on purpose
        assert broker.host == "127.0.0.1"
        await (await over_tcp(broker)).stream.aclose()


async def test_all_addresses_share_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a name has several addresses and port 0 was given, all use the first one's port."""
    opened, ports = trio.open_tcp_listeners, list[int]()

    async def open_two(port: int, *, host: str) -> list[trio.SocketListener]:
        ports.append(port)
        listeners = await opened(port, host=host)
        return listeners if port else [*listeners, *await opened(port, host=host)]

    monkeypatch.setattr(trio, "open_tcp_listeners", open_two)
    async with serve() as broker:
        assert ports == [0, broker.port]
        await (await over_tcp(broker)).stream.aclose()


async def test_a_client_that_is_gone_before_it_is_served_is_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection reset before it was accepted is not logged."""
    async with serve() as broker:
        with socket.create_connection((broker.host, broker.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await (await over_tcp(broker)).stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
    assert not caplog.records


async def test_an_ipv6_address_is_written_in_brackets() -> None:
    """An IPv6 address has brackets, which separate it from the port."""
    async with in_memory() as broker:
        broker.cluster.brokers[1].set_address("::1", 9092)
        assert broker.bootstrap_servers == "[::1]:9092"


async def test_a_port_in_use_is_an_error() -> None:
    """A second broker on the same port raises an error; the first keeps serving."""
    async with serve() as first:
        with pytest.raises(OSError, match="in use"):
            async with serve(port=first.port):
                pass
        await (await over_tcp(first)).stream.aclose()


async def test_what_the_body_raises_is_raised_as_it_is() -> None:
    """The body's own error is raised without an exception group."""
    mine = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        async with serve():
            raise mine
    assert raised.value is mine


async def test_a_broker_ends_when_it_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Cancellation from outside closes its connections at once."""
    with trio.move_on_after(5) as scope:
        async with connected() as (_, client):
            await client.send("join_group", 3, **joining())
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == 5


async def test_a_broker_that_is_cancelled_gives_its_port_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No socket of it stays bound, whichever of its tasks ends first."""
    reserved: list[socket.socket] = []

    def noting(listeners: Sequence[trio.SocketListener]) -> list[socket.socket]:
        made = close_and_reserve(listeners)
        reserved.extend(made)
        return made

    close_and_reserve = endpoint._close_and_reserve
    monkeypatch.setattr(endpoint, "_close_and_reserve", noting)
    for _ in range(10):  # trio runs the tasks in any order
        with trio.CancelScope() as scope:
            async with serve():
                scope.cancel()
                await trio.sleep_forever()
    # Another process may have the port by now, so that binding it again would prove nothing.
    assert reserved
    assert {one.fileno() for one in reserved} == {-1}


async def test_a_disconnected_broker_comes_back_on_its_port() -> None:
    """Disconnecting closes connections and refuses new ones; a restarted broker has its state."""
    async with serve() as broker:
        address = broker.bootstrap_servers
        await broker.create_topic("t", 3)
        client = await over_tcp(broker)
        await client.request("metadata", 1, topics=[])
        await broker.disconnect()
        assert await client.is_closed()
        assert "down" in repr(broker)
        with pytest.raises(OSError):  # noqa: PT011 # the text is the platform's
            await over_tcp(broker)
        await broker.start()
        await broker.start()
        assert broker.bootstrap_servers == address
        again = await over_tcp(broker)
        (topic,) = (await again.request("metadata", 1, topics=None)).topics
        assert len(topic.partitions) == 3
        for one in (client, again):
            await one.stream.aclose()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_stopped_broker_keeps_its_port(host: str) -> None:
    """While a broker is stopped or killed its port refuses clients, and no other program gets it.

    Without this, a port of the range from which the system gives out ports was taken now and then
    when the broker started again; or its clients had met another test's broker there.
    """
    async with serve(host) as broker:
        for _ in range(2):
            for end in (broker.stop, broker.kill):
                if (ending := end()) is not None:
                    await ending
                with pytest.raises(OSError, match="connect"):
                    await over_tcp(broker)
                with (
                    pytest.raises(OSError, match="in use"),
                    socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other,
                ):
                    other.bind((host, broker.port))
                await broker.start()
                client = await over_tcp(broker)
                assert await heartbeat(client) == 25
                await client.stream.aclose()


async def test_a_disconnected_broker_refuses_in_memory(broker: EmbeddedBroker) -> None:
    """Without a listener, or at another address, connecting fails as by TCP."""
    with pytest.raises(ConnectionRefusedError, match="memory:1$"):
        await broker.open_stream(broker.host, 1)
    await broker.disconnect()
    with pytest.raises(ConnectionRefusedError):
        await broker.open_stream(broker.host, broker.port)
    await broker.start()
    await Client.open(broker)


async def test_a_single_broker_is_a_cluster_of_one(broker: EmbeddedBroker) -> None:
    """After its shutdown nothing has a leader, as in a larger cluster, until it starts again."""
    await broker.create_topic("t")
    replicas = broker.cluster.topics.log_and_replicas("t", 0)[1]
    seen = []
    for change in (broker.stop, broker.stop, broker.start):
        await change()
        seen.append((broker.is_up, replicas.leader))
    assert seen == [(False, NO_LEADER), (False, NO_LEADER), (True, broker.node_id)]
    await Client.open(broker)


async def test_an_unreachable_broker_is_silent(autojump_clock: trio.testing.MockClock) -> None:
    """Requests and new connections hang without an error, and are answered afterwards."""
    async with connected() as (broker, client):
        broker.set_reachable(reachable=False)
        await client.send("metadata", 1, topics=[])
        with trio.move_on_after(60) as silent:
            await client.frame()
        with trio.move_on_after(60) as hanging:
            await broker.open_stream(broker.host, broker.port)
        assert silent.cancelled_caught
        assert hanging.cancelled_caught
        broker.set_reachable(reachable=True)
        await client.answer("metadata", 1)


async def test_an_answer_that_was_due_while_unreachable_comes_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A parked JoinGroup completes meanwhile, and its response arrives when the network is back."""
    async with connected() as (broker, client):
        await client.send("join_group", 3, **joining())
        await trio.testing.wait_all_tasks_blocked()
        broker.set_reachable(reachable=False)
        with trio.move_on_after(5) as scope:
            await client.frame()
        assert scope.cancelled_caught
        broker.set_reachable(reachable=True)
        assert (await client.answer("join_group", 3)).generation_id == 1


async def test_connections_can_be_cut_by_client(broker: EmbeddedBroker) -> None:
    """Only the named client's connections are closed."""
    clients = [await Client.open(broker, name) for name in ("a", "b", "a")]
    for client in clients:
        await client.request("metadata", 1, topics=[])
    assert broker.cut_connections("a") == 2
    assert await clients[0].is_closed()
    assert await clients[2].is_closed()
    await clients[1].request("metadata", 1, topics=[])
    assert broker.cut_connections() == 1


async def test_errors_and_slowness_can_be_injected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An injected error replaces the response, after an injected delay."""
    async with connected() as (broker, client):
        fault = broker.inject("heartbeat", 27, times=1)
        broker.slow(2.5, "heartbeat", times=2)
        assert [await heartbeat(client) for _ in range(3)] == [27, 25, 25]
        assert fault.seen == 1
        assert trio.current_time() == 5


async def test_the_coordinator_fails_over_to_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """While it is away, all requests get NOT_COORDINATOR; then it loads its groups."""
    async with connected(group_initial_rebalance_delay_ms=0) as (broker, client):
        await broker.create_topic("t")
        member = (await client.request("join_group", 3, **joining())).member_id
        sync = {
            "group_id": "g",
            "generation_id": 1,
            "member_id": member,
            "assignments": [{"member_id": member, "assignment": b"all"}],
        }
        assert int((await client.request("sync_group", 3, **sync)).error_code) == 0
        parked = await Client.open(broker)
        await parked.send("join_group", 3, **joining())
        await trio.testing.wait_all_tasks_blocked()
        beat = {"group_id": "g", "generation_id": 1, "member_id": member}
        sync["assignments"] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: broker.restart_coordinator(away=1, loading=1))
            assert int((await parked.answer("join_group", 3)).error_code) == 16
            assert int((await client.request("heartbeat", 3, **beat)).error_code) == 16
            await trio.sleep(1.5)
            assert int((await client.request("sync_group", 3, **sync)).error_code) == 14
        assert int((await client.request("heartbeat", 3, **beat)).error_code) == 0
        assert (await client.request("sync_group", 3, **sync)).assignment == b"all"


async def test_the_coordinators_writes_can_fail(autojump_clock: trio.testing.MockClock) -> None:
    """An assignment that cannot be written gets Kafka's error, which has a name and a number."""
    async with connected(group_initial_rebalance_delay_ms=0) as (broker, client):
        await broker.create_topic("t")
        member = (await client.request("join_group", 3, **joining())).member_id
        broker.fail_coordinator_writes(19)
        sync = {
            "group_id": "g",
            "generation_id": 1,
            "member_id": member,
            "assignments": [{"member_id": member, "assignment": b"all"}],
        }
        assert int((await client.request("sync_group", 3, **sync)).error_code) == 15
        again = await client.request("join_group", 3, **{**joining(), "member_id": member})
        assert (int(again.error_code), again.generation_id) == (0, 2)
        broker.fail_coordinator_writes("NOT_ENOUGH_REPLICAS")
        sync["generation_id"] = 2
        assert int((await client.request("sync_group", 3, **sync)).error_code) == 15
        with pytest.raises(ValueError, match=r"not with REBALANCE_IN_PROGRESS \(27\)"):
            broker.fail_coordinator_writes("REBALANCE_IN_PROGRESS")
        with pytest.raises(ValueError, match="there is no error 'NOT_ENOUGH'"):
            broker.fail_coordinator_writes("NOT_ENOUGH")


async def test_records_can_be_appended_without_a_producer(broker: EmbeddedBroker) -> None:
    """Values or records are written as one batch, and the first offset is returned."""
    await broker.create_topic("t", 2)
    assert await broker.append("t", 1, [b"a", b"b"]) == 0
    record = NewRecord(None, b"k", [("h", b"v")], timestamp=5)
    assert await broker.append("t", 1, [record]) == 2
    read = broker.log.read(TopicPartition("t", 1), 0, 10)
    assert [(one.key, one.value) for one in read.records] == [
        (None, b"a"),
        (None, b"b"),
        (b"k", None),
    ]
    assert read.records[2].timestamp == 5
    assert read.records[2].headers == (("h", b"v"),)


async def test_the_callers_mistakes_are_usage_errors(broker: EmbeddedBroker) -> None:
    """A call that Kafka would refuse raises a UsageError."""
    await broker.create_topic("t", 2)
    with pytest.raises(UsageError, match="already exists"):
        await broker.create_topic("t")
    with pytest.raises(UsageError, match="has 2 partitions and cannot have 1"):
        await broker.add_partitions("t", 1)
    with pytest.raises(UsageError, match="no topic 'u'"):
        await broker.delete_topic("u")
    with pytest.raises(UsageError, match="there is no t-2"):
        await broker.append("t", 2, [b"a"])
    with pytest.raises(ValueError, match="at least one"):
        await broker.append("t", 0, [])
    await broker.add_partitions("t", 3)
    await broker.append("t", 2, [b"a"])


async def test_committed_offsets_can_be_read(broker: EmbeddedBroker) -> None:
    """A group's committed offsets can be read until their topic is deleted."""
    await broker.create_topic("t", 2)
    client = await Client.open(broker)
    assert await commit(client, partition=1) == 0
    assert await broker.committed("g") == {TopicPartition("t", 1): OffsetAndMetadata(7, -1, "m")}
    assert await broker.committed("unknown") == {}
    assert [group.state for group in await broker.groups()] == ["Empty"]
    await broker.delete_topic("t")
    assert await broker.committed("g") == {}


@pytest.mark.parametrize(("offset", "epoch"), [(-1, -1), (-2, 0), (-(2**63), -1), (7, -2)])
async def test_committed_offsets_can_be_read_whatever_clients_commit(
    broker: EmbeddedBroker, offset: int, epoch: int
) -> None:
    """A negative offset is left out, and a negative epoch is none."""
    await broker.create_topic("t")
    client = await Client.open(broker)
    part = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": "m",
    }
    await client.request(
        "offset_commit",
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [part]}],
    )
    read = {TopicPartition("t", 0): OffsetAndMetadata(7, -1, "m")} if offset >= 0 else {}
    assert await broker.committed("g") == read


@pytest.mark.parametrize("how", [in_memory, serve])
async def test_settings_are_read_by_kafkas_names(how: Any) -> None:
    """Properties and a settings object are accepted; an unknown property is refused at once."""
    for settings in ({"num.partitions": 5}, BrokerSettings(default_partitions=5)):
        async with how(settings=settings) as broker:
            await broker.create_topic("t")
            assert broker.cluster.topics.partitions("t") == 5
    with pytest.raises(ConfigError, match="num_partitions"):
        async with how(settings={"num_partitions": 5}):
            pass


async def test_in_memory_everything_follows_from_seed_and_clock(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two brokers with the same seed give the same ids and times."""

    async def play() -> tuple[object, ...]:
        plain = dict.fromkeys(
            ("include_cluster_authorized_operations", "include_topic_authorized_operations"), False
        )
        async with in_memory(random=random.Random(7)) as broker:
            await broker.create_topic("t")
            client = await Client.open(broker)
            answer = await client.request("metadata", 10, topics=None, **plain)
            member = (await client.request("join_group", 4, **joining())).member_id
            await trio.sleep(1.5)
            await broker.append("t", 0, [b"a"])
            time = broker.log.read(TopicPartition("t", 0), 0, 1).records[0].timestamp
            return answer.cluster_id, answer.topics[0].topic_id, member, time

    first = await play()
    assert await play() == first
    assert first[3] == 1_600_000_001_500


async def test_a_transaction_times_out(autojump_clock: trio.testing.MockClock) -> None:
    """The broker aborts a transaction that takes too long."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        given = await client.request(
            "init_producer_id",
            4,
            transactional_id="x",
            transaction_timeout=timedelta(seconds=30),
        )
        await client.request(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
        log = broker.cluster.topics.log("t", 0)
        await trio.sleep(29)
        assert log.end_offset == 0
        await log.wait_beyond(0, committed=False)
        assert trio.current_time() == 30
        assert log.end_offset == 1
