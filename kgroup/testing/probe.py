"""Whether a broker is ready, asked over the wire.

Not read from its log: Kafka opens its port before it answers, and answers before it is unfenced.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

PORTS: Final = range(20_000, 30_000)
"""Where brokers listen: below the ports that systems give to outgoing connections.

In that range a client that tries again and again to reach a broker that is restarting could
become, by chance, its own peer, and keep the port.
"""
PAUSE: Final = 0.05
"""Seconds between two looks."""
GROUP: Final = "kgroup-probe"
"""A group that is asked for offsets; it never has any, so the broker does not create it."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on now, chosen at random.

    Somebody else can take one before it is used; who uses them must be ready to choose again.
    """
    free: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"{host} has no {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


def wait_until_open(host: str, port: int, pause: Callable[[str], None]) -> None:
    """Wait for a port to be listened on.

    Args:
        host: where.
        port: which.
        pause: called between two looks with why the first was in vain; waits a little, or ends
            the waiting with an exception.
    """
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError as error:
            pause(str(error))
        else:
            return


def wait_until_serving(bootstrap_servers: str, pause: Callable[[str], None]) -> None:
    """Wait for a broker that tells its metadata and coordinates groups.

    Args:
        bootstrap_servers: ``host:port``.
        pause: as for ``wait_until_open``.
    """
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
    }
    admin = AdminClient(dict(settings))
    _until(lambda: bool(admin.list_topics(timeout=1.0).brokers), pause)
    consumer = Consumer({**settings, "group.id": GROUP})
    asked = [TopicPartition("__consumer_offsets", 0)]
    try:
        _until(lambda: bool(consumer.committed(asked, timeout=2.0)), pause)
    finally:
        consumer.close()


def _until(look: Callable[[], bool], pause: Callable[[str], None]) -> None:
    while True:
        try:
            if look():
                return
        except KafkaException as error:
            pause(str(error))
        else:
            pause("the broker knows of no broker")
