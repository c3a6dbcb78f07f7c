"""Clients configured for the new group protocol (KIP-848) learn that it is not supported."""

from __future__ import annotations

import pytest
import trio
from confluent_kafka import Consumer, KafkaError

from kgroup.broker import serve
from kgroup.testing.java import run_java
from kgroup.testing.tools import TOOLS
from tests.broker.interop.clients import beside, until


@pytest.mark.real_kafka
async def test_java_s_consumer_names_the_setting() -> None:
    """The consumer ends at once, and its error names the setting to change."""
    async with serve() as broker:
        await broker.create_topic("t")
        settings = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t")
        done = await trio.to_thread.run_sync(
            lambda: run_java(
                TOOLS["kafka-verifiable-consumer"],
                *settings,
                *("--group-id", "g", "--group-protocol", "consumer"),
            )
        )
        assert "Set group.protocol=classic on the consumer configs" in done.stderr


async def test_confluent_kafka_s_consumer_gets_a_fatal_error() -> None:
    """The error has Kafka's code for an unsupported version."""
    async with serve() as broker:
        await broker.create_topic("t")

        def work() -> None:
            errors: list[KafkaError] = []
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "g",
                    "group.protocol": "consumer",
                    "log_level": 0,
                }
            )
            consumer.subscribe(["t"])

            def step() -> None:
                message = consumer.poll(0.1)
                error = None if message is None else message.error()
                if error is not None:
                    errors.append(error)

            try:
                until(lambda: bool(errors), step, "an error")
            finally:
                consumer.close()
            assert errors[0].code() == KafkaError._FATAL
            assert "API version not supported" in str(errors[0])

        await beside(work)
