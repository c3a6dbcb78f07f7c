"""A connection: the order of responses, bad requests, unsupported versions, internal errors."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedBroker
from kgroup.broker.apis import APIS
from kgroup.broker.handlers import metadata
from kgroup.broker.internal_errors import InternalErrors
from kgroup.wire.codec import encode_request
from kgroup.wire.versions import API_KEYS
from tests.broker.record_batches import batch
from tests.broker.wire import LENGTH, Client, connected, joining

PREFIX = struct.Struct(">hhih")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A connection to a broker in memory."""
    async with connected() as (_, made):
        yield made


async def test_answers_come_in_the_order_of_the_requests(client: Client) -> None:
    """Requests that were sent at once are answered one after the other."""
    for version in (0, 3, 2):
        await client.send("find_coordinator", version, key="g", key_type=0)
    for version in (0, 3, 2):
        assert (await client.answer("find_coordinator", version)).port == 9092


async def test_a_parked_join_delays_later_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A heartbeat behind a JoinGroup on its connection waits; on another one it does not."""
    async with connected() as (broker, client):
        other = await Client.open(broker)
        await client.send("join_group", 3, **joining())
        await client.send("metadata", 1, topics=[])
        await trio.testing.wait_all_tasks_blocked()
        await other.request("metadata", 1, topics=[])
        assert trio.current_time() == 0
        assert (await client.answer("join_group", 3)).generation_id == 1
        await client.answer("metadata", 1)
        assert trio.current_time() == 3


async def test_a_request_can_come_byte_by_byte(client: Client) -> None:
    """A request is read correctly, however its bytes arrive."""
    body = encode_request("metadata", 1, {"topics": []}, correlation_id=1, client_id=None)
    for byte in LENGTH.pack(len(body)) + body:
        await client.stream.send_all(bytes([byte]))
    assert (await client.answer("metadata", 1)).brokers[0].port == 9092


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (LENGTH.pack(-1), "a request of -1 bytes"),
        (LENGTH.pack(3) + b"abc", "a request of 3 bytes"),
        (LENGTH.pack(2**31 - 1), "a request of 2147483647 bytes"),
        (LENGTH.pack(12) + PREFIX.pack(999, 0, 1, -1) + b"xx", "API 999"),
        (LENGTH.pack(12) + PREFIX.pack(3, 99, 1, -1) + b"xx", "version 99"),
        (LENGTH.pack(12) + PREFIX.pack(3, 1, 1, -1) + b"\x7f\xff", "Metadata v1"),
        (LENGTH.pack(22) + PREFIX.pack(38, 1, 1, -1) + bytes(12), "not offered"),
    ],
    ids=["negative", "short", "huge", "no such API", "no such version", "cut off", "not offered"],
)
async def test_a_bad_request_ends_its_connection_only(
    caplog: pytest.LogCaptureFixture, sent: bytes, why: str
) -> None:
    """The connection is closed, the reason is logged, and other connections stay open."""
    async with connected() as (broker, client):
        await client.stream.send_all(sent)
        assert await client.is_closed()
        assert why in caplog.text
        other = await Client.open(broker)
        await other.request("metadata", 1, topics=[])


async def test_of_many_bad_connections_few_are_logged(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """Ten at once and one every 10 s; the rest are counted, with the next line or at the end."""

    async def send_bad_requests(broker: EmbeddedBroker, count: int) -> list[str]:
        caplog.clear()
        for _ in range(count):
            client = await Client.open(broker)
            await client.stream.send_all(LENGTH.pack(-1))
            assert await client.is_closed()
        return [record.getMessage() for record in caplog.records]

    one = "connection from /memory closed: a request of -1 bytes"
    async with connected() as (broker, _):
        assert await send_bad_requests(broker, 10) == [one] * 10
        assert await send_bad_requests(broker, 5) == []
        await trio.sleep(10)
        left_out, after = await send_bad_requests(broker, 3)
        assert left_out.startswith("5 more connections closed")
        assert after == one
        caplog.clear()
    (left_out,) = (record.getMessage() for record in caplog.records)
    assert left_out.startswith("2 more connections closed")


async def test_a_client_that_leaves_midway_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An incomplete frame is logged; a connection closed between frames is not."""
    await client.stream.send_all(LENGTH.pack(100) + b"abc")
    await client.stream.send_eof()  # type: ignore[attr-defined]
    assert await client.is_closed()
    assert "bytes into a request" in caplog.text


async def test_a_client_that_closes_between_requests_is_not_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A client may close its connection at any time between two requests."""
    await client.request("metadata", 1, topics=[])
    await client.stream.send_eof()  # type: ignore[attr-defined]
    assert await client.is_closed()
    assert not caplog.records


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    client: Client,
) -> None:
    """The response has error 35 and the offered versions, and any client can read it (KIP-511)."""
    await client.send_frame(PREFIX.pack(API_KEYS["api_versions"], 99, 1, -1))
    answer = await client.answer("api_versions", 0)
    assert int(answer.error_code) == 35
    offered = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    api = APIS["api_versions"]
    assert offered == {API_KEYS["api_versions"]: (api.lowest, api.highest)}


async def test_a_version_that_is_not_offered_is_refused(client: Client) -> None:
    """The client gets UNSUPPORTED_VERSION, and its connection stays open."""
    answer = await client.request(
        "end_txn",
        5,
        transactional_id="x",
        producer_id=1,
        producer_epoch=0,
        committed=True,
    )
    assert int(answer.error_code) == 35
    await client.request("metadata", 1, topics=[])


async def test_an_internal_error_is_kept_without_what_its_functions_worked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred are kept for tests: their tracebacks would keep requests and a client's data."""

    def fail(*_: object) -> None:
        try:
            raise LookupError("first")
        except LookupError as error:
            raise ZeroDivisionError from error

    async with connected() as (broker, client):
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "_coordinator", fail)
            await client.request("find_coordinator", 3, key="g", key_type=0)
        (internal,) = broker.cluster.internal_errors.latest
    assert isinstance(internal.error, ZeroDivisionError)
    assert internal.error.__traceback__ is None
    assert isinstance(internal.error.__cause__, LookupError)
    assert internal.error.__cause__.__traceback__ is None


def test_an_internal_error_whose_causes_form_a_circle() -> None:
    """It is kept like others, and so are the exceptions of a group: none has a traceback."""

    def raised(error: Exception) -> Exception:
        try:
            raise error
        except Exception as one:  # noqa: BLE001 # for its traceback
            return one

    first, second = raised(ValueError("first")), raised(ValueError("second"))
    first.__cause__, second.__cause__ = second, first
    group = raised(ExceptionGroup("both", [first]))
    kept = InternalErrors()
    kept.record("a test", group)
    assert [one.__traceback__ for one in (group, first, second)] == [None] * 3


async def test_an_internal_error_is_answered_and_logged(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a handler raises, only this request gets UNKNOWN_SERVER_ERROR."""
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "_coordinator", lambda *_: 1 / 0)
        answer = await client.request("find_coordinator", 3, key="g", key_type=0)
    assert int(answer.error_code) == -1
    assert "internal error of the embedded broker: find_coordinator v3" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    answer = await client.request("find_coordinator", 3, key="g", key_type=0)
    assert int(answer.error_code) == 0


async def test_an_answer_that_cannot_be_encoded_is_an_internal_error(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and only this request gets UNKNOWN_SERVER_ERROR."""
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "_coordinator", lambda *_: {"key": "", "nonsense": 1})
        answer = await client.request("find_coordinator", 3, key="g", key_type=0)
    assert int(answer.error_code) == -1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    answer = await client.request("find_coordinator", 3, key="g", key_type=0)
    assert int(answer.error_code) == 0


async def test_large_requests_and_answers() -> None:
    """A batch of a megabyte is stored and returned unchanged."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        value = bytes(1_000_000)
        await _produce(client, 1, batch(value))
        await client.answer("produce", 9)
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        answer = await client.request(
            "fetch",
            4,
            max_wait=timedelta(0),
            min_bytes=1,
            topics=[{"topic": "t", "partitions": [part]}],
        )
        assert value in answer.responses[0].partitions[0].records


async def test_what_kafka_never_answers_is_never_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The older copy of a repeated parked JoinGroup gets no response, nor do requests behind it.

    Such a connection is closed once it has been idle for too long, as Kafka's is.
    """
    async with connected() as (broker, first):
        second = await Client.open(broker)
        given = (await first.request("join_group", 4, **joining())).member_id
        await first.send("join_group", 4, **joining(member_id=given))
        await first.send("metadata", 1, topics=[])
        await trio.testing.wait_all_tasks_blocked()
        answer = await second.request("join_group", 4, **joining(member_id=given))
        assert answer.generation_id == 1
        with trio.move_on_after(590) as scope:
            await first.frame()
        assert scope.cancelled_caught
        assert await first.is_closed()


async def test_a_client_that_hangs_up_while_parked_stays_a_member(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its JoinGroup completes, and the member is removed when its session ends."""
    async with connected() as (broker, client):
        await client.send("join_group", 3, **joining())
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        await trio.sleep(5)
        (group,) = await broker.groups()
        assert (group.state, len(group.members)) == ("CompletingRebalance", 1)
        await trio.sleep(20)
        (group,) = await broker.groups()
        assert (group.state, len(group.members)) == ("Empty", 0)


async def _produce(client: Client, acks: int, data: bytes) -> None:
    part = {"index": 0, "records": data}
    topics = [{"name": "t", "partition_data": [part]}]
    await client.send(
        "produce",
        9,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=topics,
    )


async def test_without_acks_there_is_no_answer() -> None:
    """Produce with acks=0 has no response: the next one belongs to the next request."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await _produce(client, 0, batch(b"a"))
        await client.request("metadata", 1, topics=[])
        assert broker.cluster.topics.log("t", 0).end_offset == 1


@pytest.mark.parametrize("injected", [True, False])
async def test_without_acks_an_error_closes_the_connection(
    caplog: pytest.LogCaptureFixture, injected: bool
) -> None:
    """A closed connection is the only way to report it to a producer with acks=0."""

    def fault(broker: EmbeddedBroker) -> bytes:
        if injected:
            broker.inject("produce", 6)
        return batch(b"a") if injected else b"no batch"

    async with connected() as (broker, client):
        await broker.create_topic("t")
        await _produce(client, 0, fault(broker))
        assert await client.is_closed()
        assert "wants no response" in caplog.text or "produce with acks=0" in caplog.text
