"""The embedded broker in a thread, for clients that block."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import Mock

import pytest
import trio
from confluent_kafka import Consumer, Producer

import kgroup
from kgroup.background.event_loop import BackgroundLoop
from kgroup.broker import Acl, BrokerSecurity, NewRecord
from kgroup.errors import ArgumentError, AuthorizationError, ConfigError, UsageError
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition

P0 = TopicPartition("orders", 0)


def test_clients_that_block_can_use_it(embedded_kafka: EmbeddedKafka) -> None:
    """A producer and a consumer of the same process write and read through it."""
    embedded_kafka.create_topic("orders")
    assert embedded_kafka.append("orders", 0, [b"first"]) == 0
    producer = Producer({"bootstrap.servers": embedded_kafka.bootstrap_servers})
    producer.produce("orders", b"second", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": embedded_kafka.bootstrap_servers,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    messages = [consumer.poll(30) for _ in range(2)]
    assert [one.value() for one in messages if one is not None] == [b"first", b"second"]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert embedded_kafka.committed("group")[P0].offset == 2


def test_calls_in_the_broker_s_thread(embedded_kafka: EmbeddedKafka) -> None:
    """Functions that are async, and those that are not; what they raise comes back."""
    broker = next(iter(embedded_kafka.cluster.nodes.values()))
    fault = embedded_kafka.call(broker.inject, "Heartbeat", "NOT_COORDINATOR", times=1)
    assert fault.error_code == 16
    embedded_kafka.call(fault.cancel)
    embedded_kafka.call(embedded_kafka.cluster.create_topic, "called", 1)
    with pytest.raises(ValueError, match="no API 'nope'"):
        embedded_kafka.call(broker.slow, 1.0, "nope")


OUTSIDE: Final[Sequence[Callable[[EmbeddedKafka], object]]] = [
    lambda kafka: kafka.cluster.nodes[1].kill(),
    lambda kafka: kafka.cluster.nodes[1].cut_connections(),
    lambda kafka: kafka.cluster.nodes[1].set_reachable(reachable=False),
    lambda kafka: kafka.cluster.nodes[1].inject("Heartbeat", "NOT_COORDINATOR"),
    lambda kafka: kafka.cluster.end_sessions(),
    lambda kafka: kafka.cluster.close(),
    lambda kafka: trio.run(kafka.cluster.nodes[1].stop),
    lambda kafka: trio.run(kafka.cluster.restart_coordinator),
    lambda kafka: trio.run(kafka.cluster.append, "orders", 0, [b"first"]),
    lambda kafka: asyncio.run(kafka.cluster.create_topic("more")),
    lambda kafka: asyncio.run(kafka.cluster.nodes[1].disconnect()),
]


@pytest.mark.parametrize("call", OUTSIDE)
def test_a_call_outside_of_the_broker_s_event_loop_is_refused(
    embedded_kafka: EmbeddedKafka, call: Callable[[EmbeddedKafka], object]
) -> None:
    """The error says how to make it, and the broker goes on."""
    embedded_kafka.create_topic("orders")
    with pytest.raises(UsageError, match=r"nothing was done; .* write kafka\.call\("):
        call(embedded_kafka)
    assert embedded_kafka.append("orders", 0, [b"first"]) == 0


def test_what_all_calls_of_a_broker_check(embedded_kafka: EmbeddedKafka) -> None:
    """Every method that a class of brokers has refuses another event loop, or only reads."""
    reads = {"leader_of", "coordinator_of", "coordinator_epoch", "open_stream"}
    for owner in (embedded_kafka.cluster, embedded_kafka.cluster.nodes[1]):
        methods = inspect.getmembers(type(owner), inspect.isfunction)
        for name in {name for name, _ in methods if not name.startswith("_")} - reads:
            call = getattr(owner, name)
            wanted = inspect.signature(call).parameters.values()
            given = [Mock() for one in wanted if one.kind == one.POSITIONAL_OR_KEYWORD]
            named = {one.name: 1.0 for one in wanted if one.kind == one.KEYWORD_ONLY}
            with pytest.raises(UsageError, match=rf"\b{name}\(\) was called outside"):
                if inspect.iscoroutine(returned := call(*given, **named)):
                    asyncio.run(returned)


def test_a_call_takes_a_function(embedded_kafka: EmbeddedKafka) -> None:
    """A coroutine is refused by what to pass in its place, and Python warns of none."""
    wrong: Any = embedded_kafka.cluster.groups()
    with pytest.raises(ArgumentError, match="do not call it"):
        embedded_kafka.call(wrong)


def test_it_needs_no_runtime(embedded_kafka: EmbeddedKafka) -> None:
    """Given to memory_runtime, it is refused, and the error says how its groups are made."""
    wrong: Any = embedded_kafka
    with pytest.raises(ArgumentError, match="made without runtime="):
        memory_runtime(wrong)


async def _fail() -> None:
    raise OSError("a defect")


@pytest.mark.parametrize("in_block", [False, True], ids=["alone", "after another error"])
def test_an_error_that_ends_the_brokers_is_reported(*, in_block: bool) -> None:
    """Calls have it as their cause; the end of the block raises it, or notes it on another one."""
    kafka = EmbeddedKafka()
    expected = pytest.raises(ZeroDivisionError) if in_block else pytest.raises(ExceptionGroup)
    with expected as raised, kafka:
        broker = next(iter(kafka.cluster.nodes.values()))
        kafka.call(broker._nursery.start_soon, _fail)
        kafka._loop.join()
        with pytest.raises(UsageError, match="has ended by an error") as refused:
            kafka.create_topic("t")
        assert "a defect" in str(getattr(refused.value.__cause__, "exceptions", ()))
        if in_block:
            raise ZeroDivisionError
    if in_block:
        (note,) = raised.value.__notes__
        assert "had ended by an error" in note
    else:
        assert "a defect" in repr(raised.value)


def test_several_brokers(own_embedded_kafka: type[EmbeddedKafka]) -> None:
    """It takes settings and a number of brokers, and leaders can be moved."""
    kafka = own_embedded_kafka(brokers=2, settings={"num.partitions": 3})
    assert len(kafka.bootstrap_servers.split(",")) == 2
    kafka.create_topic("orders")
    before = kafka.cluster.leader_of(P0)
    after = next(one for one in kafka.cluster.nodes if one != before)
    kafka.call(kafka.cluster.move_leader, P0, after)
    assert kafka.cluster.leader_of(P0) == after


def test_users_rights_and_tls(own_embedded_kafka: type[EmbeddedKafka]) -> None:
    """With security, a group logs in over TLS and may do what the rules allow, and no more."""
    rules = [Acl("alice", "read", "topic", "orders"), Acl("alice", "read", "group", "billing")]
    kafka = own_embedded_kafka(
        security=BrokerSecurity(users={"alice": "secret"}, tls=True, acls=rules)
    )
    kafka.create_topic("orders")
    security = kgroup.Security(
        protocol="SASL_SSL",
        ca=kafka.ca,
        mechanism="SCRAM-SHA-512",
        username="alice",
        password="secret",  # noqa: S106
    )

    def generation_of(group_id: str) -> int:
        config = kgroup.GroupConfig(
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group_id,
            topics=["orders"],
            security=security,
        )
        with kgroup.threaded.ConsumerGroup(config) as group:
            return group.next(60).generation_id

    assert generation_of("billing") == 1
    with pytest.raises(AuthorizationError, match="shipping"):
        generation_of("shipping")


def test_values_that_are_not_bytes_are_refused(embedded_kafka: EmbeddedKafka) -> None:
    """A str as a value or a key, or one value in place of a list, is refused with what to give."""
    embedded_kafka.create_topic("orders")
    wrong: list[Any] = ["first", ["first"], b"first", [b"first", 7]]
    for records, allowed in zip(
        wrong, ["a list of", r"'first'\.encode\(\)", "a list of", "bytes, or None"], strict=True
    ):
        with pytest.raises(ArgumentError, match=allowed):
            embedded_kafka.append("orders", 0, records)
    with pytest.raises(ArgumentError, match="key='k' is refused"):
        NewRecord(b"value", "k")  # type: ignore[arg-type]
    assert embedded_kafka.append("orders", 0, [b"first", NewRecord(None, b"key")]) == 0


def test_its_thread_ends_with_it() -> None:
    """Leaving the block joins the thread; before and after, calls are refused."""
    kafka = EmbeddedKafka()
    with pytest.raises(UsageError, match="is not running"):
        kafka.create_topic("orders")
    with kafka:
        names = {one.name for one in threading.enumerate()}
        assert "kgroup-embedded-kafka" in names
        assert "127.0.0.1" in repr(kafka)
    assert "kgroup-embedded-kafka" not in {one.name for one in threading.enumerate()}
    with pytest.raises(UsageError, match="is not running"):
        _ = kafka.bootstrap_servers


@pytest.mark.parametrize("method", ["start", "post"], ids=["entered", "left"])
def test_an_interrupt_as_its_block_is_entered_or_left(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The brokers and their thread end nevertheless, after an interrupt between two steps, too."""
    original = getattr(BackgroundLoop, method)

    def interrupted(loop: BackgroundLoop, *args: Any) -> None:
        monkeypatch.undo()
        if method == "start":
            original(loop)
        raise KeyboardInterrupt

    kafka = EmbeddedKafka()
    if method == "start":
        monkeypatch.setattr(BackgroundLoop, method, interrupted)
    with pytest.raises(KeyboardInterrupt), kafka:
        monkeypatch.setattr(BackgroundLoop, method, interrupted)
    kafka._loop.thread.join(30)
    assert not kafka._loop.thread.is_alive()


def test_a_wrong_setting_is_raised_to_the_caller() -> None:
    """A wrong setting raises in the caller, not in the thread."""
    with pytest.raises(ConfigError, match=r"no\.such\.thing"), EmbeddedKafka({"no.such.thing": 1}):
        pytest.fail("it runs")


def test_it_is_entered_once() -> None:
    """Another entry is refused while it runs and afterwards; the running one goes on."""
    kafka = EmbeddedKafka()
    with kafka:
        with pytest.raises(UsageError, match="entered only once; make another one"), kafka:
            pass
        kafka.create_topic("orders")
    with pytest.raises(UsageError, match="entered only once; make another one"), kafka:
        pass


def test_a_block_that_is_left_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends there at once, and the broker goes on in the parent, where alone calls are made."""
    with EmbeddedKafka() as kafka:
        parent = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: parent + 1)
            with pytest.raises(UsageError, match=r"a fork; call it there.*bootstrap_servers"):
                kafka.create_topic("lost")
            kafka.__exit__(None, None, None)
        kafka.create_topic("still-there")
