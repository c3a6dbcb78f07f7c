"""Headers that confluent-kafka cannot read end neither a worker nor its process."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import confluent_kafka
import trio

from kgroup.broker import EmbeddedBroker, batches, serve
from kgroup.broker.records import records_of
from kgroup.dead_letters import headers_for
from kgroup.record_headers import UNREADABLE, headers_of
from tests.broker.record_batches import NOW
from tests.broker.wire import Client

NAME = b"\xff\xfe"
"""A header's name that is no UTF-8; Kafka admits it."""


def odd_batch() -> bytes:
    """A batch with one record, whose header has that name."""
    header = bytes([2, len(NAME) << 1]) + NAME + bytes([2]) + b"v"
    body = bytes([0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + header
    data = bytes([len(body) << 1]) + body
    return batches.assemble(data, count=1, base_timestamp=NOW, max_timestamp=NOW)


async def consumed(broker: EmbeddedBroker) -> confluent_kafka.Message:
    """Write such a record, and read it with librdkafka."""
    await broker.create_topic("t", 1)
    client = Client(await trio.open_tcp_stream(broker.host, broker.port))
    async with client.stream:
        await client.request(
            "produce",
            9,
            transactional_id=None,
            acks=1,
            timeout=timedelta(seconds=1),
            topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": odd_batch()}]}],
        )
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "not used"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        message = await trio.to_thread.run_sync(partial(consumer.poll, 60))
    finally:
        await trio.to_thread.run_sync(consumer.close)
    assert message is not None
    assert message.error() is None
    return message


async def test_unreadable_headers_are_replaced_by_one_that_says_so() -> None:
    """The first look replaces them for good, so that later ones, also of the program, are safe."""
    async with serve() as broker:
        message = await consumed(broker)
    for _ in range(100):  # so often that the interpreter has made its calls quick
        assert headers_of(confluent_kafka.Message(headers=[("a", b"1")])) == [("a", b"1")]
    for _ in range(3):
        assert headers_of(message) == [UNREADABLE]
    assert message.headers() == [UNREADABLE]


async def test_a_record_with_unreadable_headers_can_be_parked() -> None:
    """Its dead letter has that header, and those that say where it came from."""
    async with serve() as broker:
        message = await consumed(broker)
    headers = headers_for(message, ValueError("x"), 3, "g")  # type: ignore[arg-type]
    assert headers[0] == UNREADABLE
    assert ("dead_letter.topic", b"t") in headers


def test_the_embedded_broker_reads_them_as_java_does() -> None:
    """Its own readers get a replacement character for each byte that is no UTF-8."""
    data = odd_batch()
    (record,) = records_of(data, batches.header_of(data))
    assert record.headers == (("��", b"v"),)


def test_other_headers_are_returned_as_they_are() -> None:
    """Nothing is replaced, and no headers are None."""
    message = confluent_kafka.Message(topic="t", headers=[("a", b"1"), ("a", None)])
    assert headers_of(message) == [("a", b"1"), ("a", None)]
    assert headers_of(confluent_kafka.Message(topic="t")) is None
