"""A hostile client against the embedded broker: every API that it serves, every version, any bytes.

A case is one connection with one to three requests, or one of the stories of several requests and
connections in ``tests.hostile.stories``. Each request is made from kio's class, with names that the
broker knows. One of its fields has an extreme value, or its bytes are changed at random, or it is
sent as it is. The broker may send responses that can be read, close the
connection, or leave a request that waits for others without a response. It must have no internal
error, and must still serve an honest client. A new API of the broker is covered without a change
here.
"""

from __future__ import annotations

import logging
import resource
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, Final
from uuid import UUID

import trio
import trio.testing
from kio.index import load_request_schema

from kgroup.broker import EmbeddedBroker, in_memory
from kgroup.broker.apis import APIS
from kgroup.broker.broker_settings import MOST_PARTITIONS
from kgroup.broker.time_slices import SLICE
from kgroup.errors import ProtocolError
from kgroup.wire import codec
from kgroup.wire.versions import API_KEYS
from tests.broker.record_batches import batch
from tests.broker.wire import Client, joining
from tests.hostile import extremes
from tests.hostile.stories import play_batches, play_members

LENGTH: Final = struct.Struct(">i")
MEMBERS: Final = 0.05
"""The part of the cases that are of members of one group."""
BATCHES: Final = 0.05
"""The part of the cases that are of batches with impossible numbers."""
PORTION: Final = 100
"""Cases for one broker; between them only its topic is created again."""
PATIENCE: Final = 0.5
"""Virtual seconds to wait for an answer that may never come."""
WAITS: Final = frozenset({"fetch", "join_group", "sync_group", "produce"})
"""Requests that may get no response yet: they wait for records or members, or expect none."""
LONGEST_ANSWER: Final = 16 << 20
MORE_MEMORY: Final = 256 << 10
"""KiB by which the process may grow in a portion of cases."""
LONGEST_SLICE: Final = MOST_PARTITIONS + SLICE
"""Steps without a checkpoint: a topic's partitions are one at most."""
PROPERTIES: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1,
    "kgroup.max.partitions": 12_000,
    "num.partitions": 2,
}
#: Values that the broker knows, by field name; other fields have kio's zero or empty text.
KNOWN: Final[Mapping[str, Any]] = {
    "allow_auto_topic_creation": True,
    "client_software_name": "hostile",
    "client_software_version": "1",
    "committed_offset": 1,
    "configuration_keys": None,
    "coordinator_keys": ("group",),
    "count": 3,
    "cursor": None,
    "group_id": "group",
    "groups_names": ("group",),
    "key": "group",
    "max_bytes": 1 << 20,
    "max_wait": timedelta(milliseconds=10),
    "member_id": "",
    "min_bytes": 0,
    "name": "topic",
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "producer_epoch": -1,
    "producer_id": -1,
    "protocol_type": "consumer",
    "rebalance_timeout": timedelta(milliseconds=50),
    "records": batch(b"one", b"two"),
    "replication_factor": 1,
    "resource_name": "topic",
    "resource_type": 2,
    "response_partition_limit": 10,
    "session_timeout": timedelta(milliseconds=50),
    "timestamp": -1,
    "topic": "topic",
    "topic_names": ("topic",),
    "transaction_timeout": timedelta(seconds=1),
    "transactional_id": "transaction",
    "v3_and_below_transactional_id": "transaction",
}
#: Values of fields whose name means something else in another API.
KNOWN_TO: Final[Mapping[str, Mapping[str, Any]]] = {
    "describe_groups": {"groups": ("group",)},
    "create_topics": {"name": "other", "assignments": (), "configs": ()},
    "incremental_alter_configs": {"name": "retention.bytes", "value": "1000"},
    "alter_configs": {"name": "retention.bytes", "value": "1000"},
    "init_producer_id": {"transactional_id": None},
}
SERVED: Final = tuple(
    (api, version)
    for api, offered in APIS.items()
    for version in range(offered.lowest, offered.highest + 1)
)


def play(seed: int, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Play the cases with these numbers; yields those that ended in a way that is not allowed."""
    for start in range(0, len(numbers), PORTION):
        some = numbers[start : start + PORTION]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clock = trio.testing.MockClock(autojump_threshold=0)
        with _silent_log():
            wrong = trio.run(_play_some, seed, some, clock=clock)
        yield from wrong
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > MORE_MEMORY and start:
            yield some[0], f"up to case {some[-1]} the process grew by {grown >> 10} MB"


@contextmanager
def _silent_log() -> Iterator[None]:
    """Silence the broker's warnings about closed connections; internal errors are recorded."""
    log = logging.getLogger("kgroup.broker")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


async def _play_some(seed: int, numbers: Sequence[int]) -> list[tuple[int, str]]:
    wrong: list[tuple[int, str]] = []
    async with in_memory(PROPERTIES, random=Random(0)) as broker:
        await broker.create_topic("honest", 1)
        for number in numbers:
            await _settle(broker)
            faults = await _case(broker, Random(f"{seed}:{number}"))
            wrong += [(number, fault) for fault in faults]
        try:
            await serve_honest_client(broker)
        except Exception as error:  # noqa: BLE001 # any error is a result of the cases
            wrong.append((numbers[-1], f"an honest client afterwards: {error!r}"))
    return wrong


async def _settle(broker: EmbeddedBroker) -> None:
    """Restore the topic that the requests name."""
    if broker.cluster.topics.get("topic") is None:
        await broker.create_topic("topic", 2)
        await broker.append("topic", 0, [b"a", b"b"])


async def _case(broker: EmbeddedBroker, random: Random) -> list[str]:
    cluster = broker.cluster
    seen, cluster.time_slices.longest = cluster.internal_errors.seen, 0
    kind = random.random()
    if kind < MEMBERS:
        said, fault = await play_members(broker, random)
    elif kind < MEMBERS + BATCHES:
        said, fault = await play_batches(broker, random)
        await broker.delete_topic("topic")
    else:
        said, fault = await _connection(broker, random)
    faults = [] if fault is None else [fault]
    if cluster.internal_errors.seen > seen:
        faults += [f"{one.during}: {one.error!r}" for one in cluster.internal_errors.latest[-1:]]
    if cluster.time_slices.longest > LONGEST_SLICE:
        faults.append(f"{cluster.time_slices.longest} steps without a checkpoint")
    return [f"{fault} after {said}" for fault in faults]


async def _connection(broker: EmbeddedBroker, random: Random) -> tuple[str, str | None]:
    """Send some requests on one connection; returns them, and what was wrong with a response."""
    stream = await broker.open_stream(broker.host, broker.port)
    topic = broker.cluster.topics.get("topic")
    topic_id = None if topic is None else topic.topic_id
    said: list[str] = []
    fault: str | None = None
    async with stream:
        for _ in range(random.randint(1, 3)):
            api, version, body, words = _request(random, topic_id)
            said.append(f"{api} v{version}, {words}")
            try:
                fault = await _exchange(stream, api, version, body)
            except (trio.BrokenResourceError, EOFError):
                break
            if fault is not None:
                break
    return "; ".join(said), fault


async def _exchange(stream: trio.abc.Stream, api: str, version: int, body: bytes) -> str | None:
    """Send a request and check the response; returns what is wrong with it, or None.

    Raises:
        EOFError: the broker has closed the connection, which is allowed, or the request waits, and
            so would all that follow it on this connection.
    """
    await stream.send_all(LENGTH.pack(len(body)) + body)
    client = Client(stream)
    answer: bytes | None = None
    with trio.move_on_after(PATIENCE):
        answer = await client.frame()
    if answer is None:
        if api in WAITS:
            raise EOFError("later requests would wait for this one")
        return "no answer"
    if len(answer) > LONGEST_ANSWER:
        return f"an answer of {len(answer)} bytes"
    if body[:8] != _prefix(api, version):
        return None  # another request or correlation id: only the frame is checked
    try:
        correlation_id, _ = codec.decode_response(api, version, answer)
    except ProtocolError as error:
        return f"an answer that cannot be read: {error}"
    return None if correlation_id == 7 else f"correlation id {correlation_id}"


def _request(random: Random, topic_id: UUID | None) -> tuple[str, int, bytes, str]:
    """A request's API, version and bytes, and a description of what is wrong with it."""
    api = random.choice(list(APIS))
    version = random.choice([served for name, served in SERVED if name == api])
    entity = _entity(api, version, topic_id)
    header = {
        "request_api_key": API_KEYS[api],
        "request_api_version": version,
        "correlation_id": 7,
        "client_id": "hostile",
    }
    kind = random.random()
    if kind < 0.5:
        change = random.choice(random.choice(_changes(api, version, topic_id)))
        return api, version, extremes.message(entity, change, **header), str(change)
    body = extremes.message(entity, None, **header)
    if kind < 0.6:
        return api, version, body, "as it is"
    return api, version, _mutated(random, body), "its bytes changed"


def _prefix(api: str, version: int) -> bytes:
    return struct.pack(">hhi", API_KEYS[api], version, 7)


@cache
def _entity(api: str, version: int, topic_id: UUID | None) -> Any:
    request: Any = load_request_schema(API_KEYS[api], version)
    return extremes.sample(request, {**KNOWN, "topic_id": topic_id, **KNOWN_TO.get(api, {})})


@cache
def _changes(api: str, version: int, topic_id: UUID | None) -> list[list[extremes.Change]]:
    by_path: dict[extremes.Path, list[extremes.Change]] = {}
    for change in extremes.changes(_entity(api, version, topic_id)):
        by_path.setdefault(change.path, []).append(change)
    return list(by_path.values())


def _mutated(random: Random, body: bytes) -> bytes:
    """A body with bytes changed, removed, inserted or copied, except for the first four."""
    data = bytearray(body)
    for _ in range(random.randint(1, 8)):
        at = random.randrange(4, len(data) + 1)
        change = random.randrange(5)
        if change == 0:
            data[at : at + 1] = bytes([random.randrange(256)])
        elif change == 1:
            del data[at : at + random.randint(1, 8)]
        elif change == 2:
            data[at:at] = random.randbytes(random.randint(1, 8))
        elif change == 3:
            size = random.choice((1, 2, 4, 8))
            data[at : at + size] = random.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * size
        else:
            start = random.randrange(4, len(data) + 1)
            data[at:at] = data[start : start + random.randint(1, 64)]
    return bytes(data)


async def serve_honest_client(broker: EmbeddedBroker) -> None:
    """Join, produce, fetch and commit, as an honest client does.

    Raises:
        AssertionError: the client was not served.
    """
    client = await Client.open(broker, "honest")
    async with client.stream:
        with trio.fail_after(60):
            await _be_honest(client)


async def _be_honest(client: Client) -> None:
    joined = await client.request("join_group", 3, **joining(group_id="honest"))
    assert int(joined.error_code) == 0, joined
    who = {"group_id": "honest", "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": b"a"}]
    synced = await client.request(
        "sync_group", 3, **who, generation_id=joined.generation_id, assignments=given
    )
    assert synced.assignment == b"a", synced
    part = {"index": 0, "records": batch(b"value")}
    produced = await client.request(
        "produce",
        9,
        transactional_id=None,
        acks=1,
        timeout=timedelta(seconds=1),
        topic_data=[{"name": "honest", "partition_data": [part]}],
    )
    offset = produced.responses[0].partition_responses[0].base_offset
    assert offset >= 0, produced
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    fetched = await client.request(
        "fetch",
        4,
        replica_id=-1,
        max_wait=timedelta(seconds=1),
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        topics=[{"topic": "honest", "partitions": [wanted]}],
    )
    assert b"value" in fetched.responses[0].partitions[0].records, fetched
    done = {"partition_index": 0, "committed_offset": offset + 1, "committed_metadata": ""}
    committed = await client.request(
        "offset_commit",
        7,
        **who,
        generation_id_or_member_epoch=joined.generation_id,
        topics=[{"name": "honest", "partitions": [done]}],
    )
    assert int(committed.topics[0].partitions[0].error_code) == 0, committed
    left = await client.request("leave_group", 2, **who)
    assert int(left.error_code) == 0, left
