"""Finds free ports and waits until a broker is ready, by requests over the network.

A broker's log does not show it: Kafka opens its port before it answers, and answers before it is
unfenced.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Final

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

PORTS: Final = range(20_000, 30_000)
"""The ports of brokers, below those that systems use for outgoing connections.

In that range, a client that keeps connecting to a broker that is restarting could by accident
connect to itself and so keep the port.
"""
PAUSE: Final = 0.05
"""Seconds between two attempts."""
GROUP: Final = "kgroup-probe"
"""The group whose offsets are fetched; it never commits any, so no broker creates it."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Random ports on which no process listens now.

    Another process can take one before it is used; callers must be ready to choose again. The seed
    of ``random`` has no part in it: a plugin of pytest sets it to the same in all worker processes,
    which would then all choose the same ports.
    """
    free: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"{host} does not have {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


def listening(pid: int) -> set[int]:
    """The TCP ports on which a process listens; none if it has ended.

    A connection to a port does not show it: another process may have taken the port and answer.
    """
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return set()
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def wait_until_open(pid: int, port: int, pause: Callable[[str], None]) -> None:
    """Wait until a process listens on a port.

    Args:
        pid: the process.
        port: the port.
        pause: called after each failed attempt with the reason; waits a little, or raises to end
            the waiting.
    """
    while port not in listening(pid):
        pause(f"it does not listen on port {port} yet")


def wait_until_serving(bootstrap_servers: str, pause: Callable[[str], None]) -> None:
    """Wait until a broker returns metadata and coordinates groups.

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
    partitions = [TopicPartition("__consumer_offsets", 0)]
    try:
        _until(lambda: bool(consumer.committed(partitions, timeout=2.0)), pause)
    finally:
        consumer.close()


def _until(is_ready: Callable[[], bool], pause: Callable[[str], None]) -> None:
    while True:
        try:
            if is_ready():
                return
        except KafkaException as error:
            pause(str(error))
        else:
            pause("the broker does not list any broker")
