"""The embedded broker under attack: a request's cost is bounded, and others are served."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedBroker, batches, in_memory
from kgroup.broker.apis import APIS
from kgroup.broker.broker_settings import MOST_PARTITIONS
from kgroup.broker.groups.timers import TimerKind, TimerName
from kgroup.broker.memory_pipe import pipe
from kgroup.broker.time_slices import FREE, SLICE
from kgroup.error_codes import ErrorCode
from kgroup.errors import FetchError
from kgroup.types import TopicPartition
from kgroup.wire import codec
from kgroup.wire.versions import API_KEYS
from tests.broker.record_batches import NOW, batch
from tests.broker.wire import LENGTH, Client, commit, joining
from tests.hostile import broker as hostile

CASES: Final = 10_000
"""The number of cases in this suite; ``python -m tests.hostile --broker`` plays any number."""
MEGABYTE: Final = 1 << 20
TP: Final = TopicPartition("t", 0)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """A broker with topic t; afterwards it must serve an honest client without internal errors."""
    async with in_memory(hostile.PROPERTIES | {"kgroup.max.partitions": 50_000}) as made:
        await made.create_topic("t", 1)
        await made.create_topic("honest", 1)
        yield made
        await hostile.serve_honest_client(made)
        assert not made.cluster.internal_errors.latest


def produce_of(records: bytes) -> dict[str, Any]:
    """A Produce to t-0."""
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout": timedelta(seconds=1),
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records}]}],
    }


def fetch_of(count: int, wait: float, topic: str = "t") -> dict[str, Any]:
    """A Fetch that names so many partitions of a topic and waits up to ``wait`` seconds."""
    parts = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1}
        for number in range(count)
    ]
    return {
        "replica_id": -1,
        "max_wait": timedelta(seconds=wait),
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": parts}],
    }


async def code_of(broker: EmbeddedBroker, records: bytes) -> int:
    """Produce a batch and return the error."""
    client = await Client.open(broker)
    async with client.stream:
        answer = await client.request("produce", 9, **produce_of(records))
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("start", range(0, CASES, 2_500))
def test_any_request_is_answered_or_ends_its_connection_only(start: int) -> None:
    """A hostile request may end its own connection and do nothing else."""
    assert not list(hostile.play(10, range(start, start + 2_500)))


def test_every_api_is_among_the_cases() -> None:
    """Every API that the broker serves is attacked."""
    assert {api for api, _ in hostile.SERVED} == set(APIS)
    for api, version in hostile.SERVED:
        assert hostile._entity(api, version, None) is not None


# Record batches.


@pytest.mark.parametrize("codec", range(5))
async def test_a_batch_cannot_claim_more_records_than_its_bytes_hold(
    broker: EmbeddedBroker, codec: int
) -> None:
    """A count of 2**31-1 records in 68 bytes is refused, compressed or not."""
    liar = batches.assemble(
        bytes(7), count=2**31 - 1, base_timestamp=NOW, max_timestamp=NOW, compression=codec
    )
    assert await code_of(broker, liar) == ErrorCode.INVALID_RECORD
    assert broker.log.end_offset(TP) == 0


@pytest.mark.parametrize(
    "records",
    [
        b"\x0d" + bytes(6),
        b"\x80" * 7,
        b"\xff" * 7,
        b"\x0c" + bytes(5),
        bytes(7),
        b"\x0c" + bytes(7),
        b"\x00\x18" + bytes(12),
        b"\x1c" + bytes(5) + b"\x1c" + bytes(8) + b"\x13" + bytes(5),
    ],
    ids=[
        "length -7",
        "endless length",
        "ones",
        "cut off",
        "length 0",
        "one byte more",
        "length 0 before another",
        "back by 10 and on to the end",
    ],
)
async def test_records_must_be_contiguous(broker: EmbeddedBroker, records: bytes) -> None:
    """A record whose length leads back, too far, or nowhere is refused."""
    count = max(1, len(records) // 7)
    liar = batches.assemble(records, count=count, base_timestamp=NOW, max_timestamp=NOW)
    assert await code_of(broker, liar) == ErrorCode.INVALID_RECORD


def bomb(size: int) -> bytes:
    """A gzip batch with one record of this many bytes."""
    packer = zlib.compressobj(9, wbits=31)
    length = bytearray()
    number = (size + 10) << 1
    while number > 0x7F:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    length.append(number)
    data = packer.compress(bytes(length))
    for _ in range(0, size, MEGABYTE):
        data += packer.compress(bytes(MEGABYTE))
    return batches.assemble(
        data + packer.flush(), count=1, base_timestamp=NOW, max_timestamp=NOW, compression=1
    )


async def test_what_a_batch_decompresses_to_is_bounded(broker: EmbeddedBroker) -> None:
    """A gzip batch of 100 kB that decompresses to 100 MB is refused, never wholly in memory."""
    attack = bomb(100 * MEGABYTE)
    assert len(attack) < MEGABYTE
    tracemalloc.start()
    try:
        assert await code_of(broker, attack) == ErrorCode.MESSAGE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 80 * MEGABYTE
    finally:
        tracemalloc.stop()


async def test_records_that_cannot_be_read_are_found_by_time_as_a_whole(
    broker: EmbeddedBroker,
) -> None:
    """A corrupt record harms neither ListOffsets nor a reader in the process."""
    garbage = batches.assemble(
        b"\x0c" + b"\xff" * 6, count=1, base_timestamp=NOW, max_timestamp=NOW
    )
    assert await code_of(broker, garbage) == ErrorCode.NONE
    client = await Client.open(broker)
    part = {"partition_index": 0, "timestamp": 5, "current_leader_epoch": -1}
    answer = await client.request(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "t", "partitions": [part]}],
    )
    assert answer.topics[0].partitions[0].offset == 0
    with pytest.raises(FetchError, match="cannot be read"):
        broker.log.read(TP, 0, 10)
    await client.stream.aclose()


# Requests with many items.


async def overtaken(
    broker: EmbeddedBroker, attack: Callable[[Client], Awaitable[Any]], longest: int = 2 * SLICE
) -> Any:
    """Send an attack, and check that another client's requests are answered before it.

    Args:
        broker: is attacked.
        attack: a request of many steps.
        longest: how many of them may follow each other without a checkpoint.

    Returns:
        the answer to the attack.
    """
    attacker, other = await Client.open(broker), await Client.open(broker)
    answered: list[str] = []
    answer: list[Any] = []

    async def send_beside() -> None:
        for _ in range(5):
            await other.request(
                "metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=False
            )
            answered.append("other")

    async def attack_it() -> None:
        answer.append(await attack(attacker))
        answered.append("attack")

    async with attacker.stream, other.stream, trio.open_nursery() as nursery:
        nursery.start_soon(attack_it)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(send_beside)
    assert answered == ["other"] * 5 + ["attack"]
    assert broker.cluster.time_slices.longest <= longest
    return answer[0]


async def test_others_are_served_beside_a_metadata_request_of_many_names(
    broker: EmbeddedBroker,
) -> None:
    """Other clients are served while tens of thousands of topics are looked up or created."""
    topics = [{"name": f"name-{number}"} for number in range(20_000)]
    answer = await overtaken(
        broker,
        lambda client: client.request(
            "metadata", 4, topics=topics, allow_auto_topic_creation=False
        ),
    )
    assert len(answer.topics) == 20_000


async def test_more_items_than_allowed_end_the_connection(broker: EmbeddedBroker) -> None:
    """A request with more than kgroup.request.max.items items is not read."""
    client = await Client.open(broker)
    await client.send(
        "metadata", 4, topics=[{"name": "a"}] * 20_001, allow_auto_topic_creation=False
    )
    assert await client.is_closed()


async def test_others_are_served_beside_a_fetch_of_many_partitions(
    autojump_clock: trio.testing.MockClock, broker: EmbeddedBroker
) -> None:
    """Other clients are served between the partitions of a long Fetch."""
    await broker.create_topic("many", 10_000)
    answer = await overtaken(
        broker,
        lambda client: client.request("fetch", 4, **fetch_of(10_000, 1, "many")),
    )
    assert len(answer.responses[0].partitions) == 10_000


async def join(client: Client, protocols: int = 1) -> Any:
    """Join a group with so many protocols."""
    offered = [{"name": f"{number}", "metadata": b""} for number in range(protocols)]
    fields = joining(group_id="group", protocols=offered)
    return await client.request("join_group", 3, **fields)


async def test_parked_requests_hold_up_no_long_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A parked JoinGroup, SyncGroup or Fetch does not hold up other long requests."""
    async with in_memory({"group.initial.rebalance.delay.ms": 3000}) as broker:
        await broker.create_topic("t", 2 * FREE)
        clients = [await Client.open(broker) for _ in range(2)]
        answers: dict[Client, Any] = {}

        async def ask(client: Client) -> None:
            answers[client] = await join(client, protocols=2 * FREE)

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(ask, client)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            assert not broker.cluster.time_slices.lock.locked()
        (follower,) = [one for one in clients if not answers[one].members]
        await follower.send(
            "sync_group",
            3,
            group_id="group",
            generation_id=answers[follower].generation_id,
            member_id=answers[follower].member_id,
            group_instance_id=None,
            assignments=[{"member_id": "of no meaning", "assignment": b""}] * (2 * FREE),
        )
        reader = await Client.open(broker)
        await reader.send("fetch", 4, **fetch_of(2 * FREE, 5))
        await trio.testing.wait_all_tasks_blocked()
        assert not broker.cluster.time_slices.lock.locked()
        for client in (*clients, reader):
            await client.stream.aclose()


async def test_others_are_served_beside_batches_of_many_records(broker: EmbeddedBroker) -> None:
    """Other clients are served while 560,000 records in four batches are checked."""
    many = batches.assemble(
        (b"\x0c" + bytes(6)) * 140_000, count=140_000, base_timestamp=NOW, max_timestamp=NOW
    )
    request = produce_of(many)
    request["topic_data"][0]["partition_data"] *= 4
    answer = await overtaken(broker, lambda client: client.request("produce", 9, **request))
    codes = [int(part.error_code) for part in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE] * 4


async def test_a_batch_that_is_too_large_is_not_read(broker: EmbeddedBroker) -> None:
    """A batch of 14 MB is refused by its size, before its records are read."""
    large = batches.assemble(bytes(14 * MEGABYTE), count=1, base_timestamp=NOW, max_timestamp=NOW)
    assert await code_of(broker, large) == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_response_has_a_limit_too(broker: EmbeddedBroker) -> None:
    """A small request for the same thing many times gets a bounded response."""
    client = await Client.open(broker)
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    answer = await client.request(
        "describe_configs", 1, resources=[asked] * 10_000, include_synonyms=True
    )
    assert {int(one.error_code) for one in answer.results} == {ErrorCode.POLICY_VIOLATION}
    await client.stream.aclose()


async def test_a_topic_named_twice_is_answered_once(broker: EmbeddedBroker) -> None:
    """As in Kafka, a topic named twice is in the response once."""
    client = await Client.open(broker)
    answer = await client.request(
        "metadata", 4, topics=[{"name": "t"}] * 1000, allow_auto_topic_creation=False
    )
    assert [topic.name for topic in answer.topics] == ["t"]
    await client.stream.aclose()


async def test_partitions_are_limited_in_a_request_and_in_all(broker: EmbeddedBroker) -> None:
    """269 bytes cannot create 200,000 logs, nor many requests more than 50,000."""
    client = await Client.open(broker)

    async def create(*names: str) -> set[int]:
        answer = await client.request(
            "create_topics",
            4,
            timeout=timedelta(seconds=1),
            validate_only=False,
            topics=[
                {
                    "name": name,
                    "num_partitions": 10_000,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": (),
                }
                for name in names
            ],
        )
        return {int(topic.error_code) for topic in answer.topics}

    assert await create(*[f"many-{number}" for number in range(20)]) == {ErrorCode.POLICY_VIOLATION}
    for number in range(4):
        assert await create(f"one-{number}") == {ErrorCode.NONE}
    assert await create("one-too-many") == {ErrorCode.POLICY_VIOLATION}
    answer = await client.request(
        "create_partitions",
        1,
        timeout=timedelta(seconds=1),
        validate_only=False,
        topics=[{"name": "t", "count": 10_000, "assignments": None}],
    )
    assert int(answer.results[0].error_code) == ErrorCode.POLICY_VIOLATION
    await client.stream.aclose()


async def test_others_are_served_beside_partitions_that_are_only_validated(
    broker: EmbeddedBroker,
) -> None:
    """Other clients are served while 10,000 partitions of each of many topics are validated."""
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        await broker.create_topic(name, 1)
    topics = [{"name": name, "count": 10_000, "assignments": None} for name in names]
    answer = await overtaken(
        broker,
        lambda client: client.request(
            "create_partitions",
            1,
            timeout=timedelta(seconds=1),
            validate_only=True,
            topics=topics,
        ),
        longest=MOST_PARTITIONS + SLICE,
    )
    assert {int(one.error_code) for one in answer.results} == {ErrorCode.NONE}


async def test_a_topic_named_twice_in_create_partitions_is_refused(broker: EmbeddedBroker) -> None:
    """As in Kafka, the topic gets an error and does not grow."""
    client = await Client.open(broker)
    answer = await client.request(
        "create_partitions",
        1,
        timeout=timedelta(seconds=1),
        validate_only=False,
        topics=[{"name": "t", "count": 10_000, "assignments": None}] * 1000,
    )
    assert [int(one.error_code) for one in answer.results] == [ErrorCode.INVALID_REQUEST]
    assert broker.cluster.topics.partitions("t") == 1
    await client.stream.aclose()


# Bytes and connections.


async def test_a_number_without_an_end_costs_nothing(broker: EmbeddedBroker) -> None:
    """A varint of a megabyte of 0xFF closes its connection at once."""
    client = await Client.open(broker)
    prefix = struct.pack(">hhi", API_KEYS["produce"], 9, 1)
    await client.send_frame(prefix + b"\xff" * MEGABYTE)
    assert await client.is_closed()


async def test_a_client_that_sends_nothing_is_disconnected(
    autojump_clock: trio.testing.MockClock, broker: EmbeddedBroker
) -> None:
    """A silent client is disconnected after connections.max.idle.ms, even within a request."""
    silent, halfway, alive = [await Client.open(broker) for _ in range(3)]
    await halfway.stream.send_all(LENGTH.pack(1000) + b"abc")
    await trio.sleep(500)
    await alive.request("metadata", 4, topics=[], allow_auto_topic_creation=False)
    assert await silent.is_closed()
    assert await halfway.is_closed()
    assert trio.current_time() == 600
    assert await alive.is_closed()
    assert trio.current_time() == 1100


async def test_a_request_that_waits_is_not_idle(
    autojump_clock: trio.testing.MockClock, broker: EmbeddedBroker
) -> None:
    """A Fetch may wait longer than a connection may be idle."""
    client = await Client.open(broker)
    await client.request("fetch", 4, **fetch_of(1, 2000))
    assert trio.current_time() == 2000
    await client.stream.aclose()


async def test_half_requests_give_way_to_whole_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Beyond queued.max.request.bytes, the connection longest without progress is closed."""
    async with in_memory({"queued.max.request.bytes": 4 * MEGABYTE}) as broker:
        await broker.create_topic("t", 1)
        stalled = [await Client.open(broker) for _ in range(8)]
        for client in stalled:
            await client.stream.send_all(LENGTH.pack(50 * MEGABYTE) + bytes(MEGABYTE))
            await trio.testing.wait_all_tasks_blocked()
        assert await stalled[0].is_closed()
        assert await code_of(broker, batch(bytes(MEGABYTE // 2))) == ErrorCode.NONE
        with trio.move_on_after(1) as scope:
            await stalled[-1].is_closed()
        assert scope.cancelled_caught


async def test_small_halves_of_requests_count_too(autojump_clock: trio.testing.MockClock) -> None:
    """Many connections with a little of a request each are not beyond the limit."""
    del autojump_clock
    async with in_memory({"queued.max.request.bytes": MEGABYTE}) as broker:
        stalled = [await Client.open(broker) for _ in range(20)]
        for client in stalled:
            await client.stream.send_all(LENGTH.pack(MEGABYTE) + bytes(MEGABYTE // 16))
            await trio.testing.wait_all_tasks_blocked()
        assert await stalled[0].is_closed()
        assert MEGABYTE // 2 < broker._endpoint._bytes_in_flight.total <= MEGABYTE
        assert broker.cut_connections() == 15


async def test_a_request_in_many_pieces_takes_no_more_memory_than_its_bytes() -> None:
    """A client that sends two bytes at a time costs what it sends."""
    pieces = 10_000
    async with in_memory() as broker:
        client = await Client.open(broker)
        await client.stream.send_all(LENGTH.pack(2 * pieces + 10))
        await trio.testing.wait_all_tasks_blocked()
        tracemalloc.start()
        try:
            for _ in range(pieces):
                await client.stream.send_all(b"ab")
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert tracemalloc.get_traced_memory()[0] < 5 * pieces
        finally:
            tracemalloc.stop()


async def test_a_request_that_has_arrived_counts_no_more(broker: EmbeddedBroker) -> None:
    """A JoinGroup in two pieces, which waits, does not give way to others' halves of requests.

    Bytes behind it count.
    """
    client = await Client.open(broker)
    protocols = [{"name": "range", "metadata": bytes(10_000)}]
    fields = joining(protocols=protocols)
    frame = codec.encode_request("join_group", 3, fields, correlation_id=1, client_id="test")
    whole = LENGTH.pack(len(frame)) + frame
    queued = broker._endpoint._bytes_in_flight
    behind = await Client.open(broker)
    for sender, piece, held in (
        (client, whole[:8_000], 8_000),
        (client, whole[8_000:], 0),
        (behind, whole + bytes(5_000), len(whole) + 5_000),
    ):
        await sender.stream.send_all(piece)
        await trio.testing.wait_all_tasks_blocked()
        assert queued.total == held
    await client.stream.aclose()
    await behind.stream.aclose()


async def test_connections_are_limited(autojump_clock: trio.testing.MockClock) -> None:
    """Beyond max.connections the connection that was idle longest is closed."""
    async with in_memory({"max.connections": 3}) as broker:
        clients = []
        for _ in range(4):
            clients.append(await Client.open(broker))
            await trio.sleep(1)
        assert await clients[0].is_closed()
        for client in clients[1:]:
            await client.request("metadata", 4, topics=[], allow_auto_topic_creation=False)


async def test_connections_that_come_at_once_are_limited_too() -> None:
    """Each new connection closes another one, even before the first of those has ended."""
    async with in_memory({"max.connections": 3}) as broker:
        for _ in range(3):
            await Client.open(broker)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            broker.accept(pipe()[0], "memory")
        await trio.testing.wait_all_tasks_blocked()
        assert broker.cut_connections() == 3


@pytest.mark.parametrize("by_broker", [False, True])
async def test_bytes_of_a_connection_that_is_gone_count_no_more(
    broker: EmbeddedBroker, *, by_broker: bool
) -> None:
    """The bytes of an incomplete request are released with its connection."""
    client = await Client.open(broker)
    await client.stream.send_all(LENGTH.pack(50 * MEGABYTE) + bytes(MEGABYTE))
    await trio.testing.wait_all_tasks_blocked()
    queued = broker._endpoint._bytes_in_flight
    assert queued.total >= MEGABYTE
    if by_broker:
        broker.cut_connections()
    else:
        await client.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert queued.total == 0


async def test_connections_of_one_address_are_limited(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The connection beyond an address's limit is closed; its others stay."""
    async with in_memory({"max.connections.per.ip": 2}) as broker:
        clients = [await Client.open(broker) for _ in range(3)]
        assert await clients[2].is_closed()
        for client in clients[:2]:
            await client.request("metadata", 4, topics=[], allow_auto_topic_creation=False)


# Internal errors, and limits of what clients store.


async def test_a_timer_that_fails_stops_neither_the_broker_nor_other_timers(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is recorded, and all other timers still run."""
    async with in_memory(hostile.PROPERTIES) as broker:
        (node,) = broker.cluster.brokers.values()
        with monkeypatch.context() as patch:
            patch.setattr(node.groups, "deliver", lambda _: 1 / 0)
            node.groups.coordinator._registry.timers.set(TimerName(TimerKind.RETENTION), 5.0)
            node.groups.alarm.reschedule()
            await trio.sleep(6)
        assert [one.during for one in broker.cluster.internal_errors.latest] == ["a timer"]
        await broker.create_topic("honest", 1)
        await hostile.serve_honest_client(broker)


async def test_what_a_client_stored_bounds_no_others_answer(broker: EmbeddedBroker) -> None:
    """A list config that grows with every request still fits its response."""
    name = "leader.replication.throttled.replicas"
    client = await Client.open(broker)

    async def append(value: str) -> int:
        config = {"name": name, "config_operation": 2, "value": value}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [config]}
        answer = await client.request(
            "incremental_alter_configs", 0, resources=[resource], validate_only=False
        )
        return int(answer.responses[0].error_code)

    first, second = (
        ",".join(f"{partition}:{broker}" for partition in range(100_000, 102_200))
        for broker in (1, 2)
    )
    assert await append(first) == ErrorCode.NONE
    assert await append(second) == ErrorCode.INVALID_CONFIG
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": [name]}
    answer = await client.request("describe_configs", 1, resources=[asked], include_synonyms=False)
    assert answer.results[0].configs[0].value == first
    answer = await client.request(
        "describe_configs", 1, resources=[asked] * 5_000, include_synonyms=False
    )
    assert {int(one.error_code) for one in answer.results} == {ErrorCode.POLICY_VIOLATION}
    await client.stream.aclose()


async def test_no_text_is_longer_than_the_oldest_version_can_encode(broker: EmbeddedBroker) -> None:
    """A name of 40 kB is refused, because no response in v0 could contain it."""
    client = await Client.open(broker)
    await client.send("find_coordinator", 4, key_type=0, coordinator_keys=["a" * 40_000])
    assert await client.is_closed()


async def test_groups_are_limited() -> None:
    """Neither a JoinGroup nor a commit may create a group beyond the limit."""
    async with in_memory(hostile.PROPERTIES | {"kgroup.max.groups": 1}) as broker:
        await broker.create_topic("t", 1)
        client = await Client.open(broker)
        assert await commit(client, 5, group_id="first") == ErrorCode.NONE
        assert await commit(client, 5, group_id="second") == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await join(client)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await commit(client, 5, group_id="first") == ErrorCode.NONE
        await client.stream.aclose()


async def test_a_message_that_quotes_a_client_stays_readable(broker: EmbeddedBroker) -> None:
    """An error message shortens the longest group id to fit."""
    client = await Client.open(broker)
    answer = await client.request(
        "describe_groups", 6, groups=["g" * 32_767], include_authorized_operations=False
    )
    assert len(answer.groups[0].group_id) == 32_767
    assert len(answer.groups[0].error_message) < 3_000
    await client.stream.aclose()


async def test_protocols_are_limited(broker: EmbeddedBroker) -> None:
    """A member cannot make the vote of its group count 20,000 protocols."""
    client = await Client.open(broker)
    assert int((await join(client, protocols=1001)).error_code) == ErrorCode.POLICY_VIOLATION
    assert int((await join(client, protocols=1000)).error_code) == ErrorCode.NONE
    await client.stream.aclose()
