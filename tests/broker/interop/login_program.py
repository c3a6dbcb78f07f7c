"""A foreign client that logs in by each mechanism in turn, as a program of its own.

By each it produces a record and reads the topic in a group of its own; it prints how many records
the group has read.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kgroup.security.unsecured_token import UnsecuredToken

TOPIC: Final = "t"
USER: Final = "alice"
PASSWORD: Final = "alice-secret"  # noqa: S105 # of a test
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PATIENCE: Final = 120.0
TOKEN: Final = UnsecuredToken({"sub": USER}, USER, lifetime=3600.0, extensions={})


def confluent_kafka(servers: str, ca: str, mechanism: str) -> int:
    """By librdkafka; it makes its token itself."""
    from confluent_kafka import Consumer, Producer

    login: dict[str, str | int | float | bool] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca,
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        login |= {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={USER}",
        }
    else:
        login |= {"sasl.username": USER, "sasl.password": PASSWORD}
    producer = Producer(login)
    producer.produce(TOPIC, mechanism)
    if producer.flush(PATIENCE):
        raise SystemExit("the record was not produced")
    consumer = Consumer({**login, "group.id": mechanism, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + PATIENCE
    read: list[bytes] = []
    while mechanism.encode() not in read and time.monotonic() < deadline:
        read += [message.value() or b"" for message in consumer.consume(100, 0.1)]
    consumer.close()
    return len(read)


def kafka_python(servers: str, ca: str, mechanism: str) -> int:
    """By kafka-python."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
        def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return TOKEN.make()[0]

    login: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": ca,
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        login["sasl_oauth_token_provider"] = Tokens()
    else:
        login |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**login)
    producer.send(TOPIC, mechanism.encode()).get(PATIENCE)
    producer.close(PATIENCE)
    consumer = KafkaConsumer(**login, group_id=mechanism, auto_offset_reset="earliest")
    consumer.partitions_for_topic(TOPIC)  # see kafka_python_client.py
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + PATIENCE
    read: list[bytes] = []
    while mechanism.encode() not in read and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=100).values():
            read += [record.value for record in records]
    consumer.close()
    return len(read)


def aiokafka(servers: str, ca: str, mechanism: str) -> int:
    """By aiokafka."""
    return asyncio.run(_aiokafka(servers, ca, mechanism))


async def _aiokafka(servers: str, ca: str, mechanism: str) -> int:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
        async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return TOKEN.make()[0]

    login: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=ca),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        login["sasl_oauth_token_provider"] = Tokens()
    else:
        login |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    async with AIOKafkaProducer(**login) as producer:
        await producer.send_and_wait(TOPIC, mechanism.encode())
    read = 0
    async with (
        asyncio.timeout(PATIENCE),
        AIOKafkaConsumer(
            TOPIC, **login, group_id=mechanism, auto_offset_reset="earliest"
        ) as consumer,
    ):
        async for record in consumer:
            read += 1
            if record.value == mechanism.encode():
                break
    return read


CLIENTS: Final[Mapping[str, Callable[[str, str, str], int]]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    name, servers, ca = sys.argv[1:]
    sys.stdout.write(json.dumps([CLIENTS[name](servers, ca, one) for one in MECHANISMS]))
