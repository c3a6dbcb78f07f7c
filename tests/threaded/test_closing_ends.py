"""Closing a threaded group ends in any way and without a broker, as in tests/closing for trio.

A failure here would never end: each test has far more time than the few seconds that closing may
take with these settings, and does not check the time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, final

import pytest

from kgroup.events import GenerationDraining, GenerationStarted, HandlerStillRunning, RequestFailed
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup, Generation
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness, RecordedEvents, thread, wait
from tests.threaded.test_signals import program

SHORT: Final[Mapping[str, Any]] = {
    # The session ends in the drain, and not before it, if the machine pauses for some seconds.
    "session_timeout": 5.0,
    "drain_timeout": 20.0,
    "close_timeout": 0.5,
    "request_timeout": 1.0,
}


class Boom(Exception):  # noqa: N818 # what it is called does not matter
    """What the body raises."""


@pytest.fixture
def own() -> Iterator[EmbeddedKafka]:
    """A broker for one test, which may lose it."""
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
    with EmbeddedKafka(settings) as kafka:
        yield kafka


def gone(kafka: EmbeddedKafka) -> None:
    """Cut its connections, and refuse new ones."""
    (node,) = kafka.cluster.nodes.values()
    kafka.call(node.stop)


def silent(kafka: EmbeddedKafka) -> None:
    """Keep its connections, and answer nothing."""
    (node,) = kafka.cluster.nodes.values()

    async def be_silent() -> None:
        node.set_reachable(reachable=False)

    kafka.call(be_silent)


Loss = Callable[[EmbeddedKafka], None]
lost = pytest.mark.parametrize("lose", [gone, silent])
ways = pytest.mark.parametrize("way", ["shutdown", "close", "leave", "raise"])


@final
class Events:
    """The events that a member and its test wait for."""

    def __init__(self) -> None:
        self.handling = threading.Event()
        self.leave = threading.Event()
        self.let_go = threading.Event()


def member(group: ConsumerGroup, way: str, events: Events) -> None:
    """Be a member with one handler thread that runs until it is let go."""

    def be_stuck() -> None:
        events.handling.set()
        wait(events.let_go)

    with suppress(Boom), group:
        for generation in group:
            generation.start(be_stuck)
            if way in ("shutdown", "close"):
                generation.wait_ended()
                continue
            wait(events.leave)
            if way == "raise":
                raise Boom
            break


@lost
@ways
def test_the_broker_is_lost_while_a_handler_drains(
    own: EmbeddedKafka, way: str, lose: Loss
) -> None:
    """The block ends, and the thread that is stuck is named and left behind."""
    here, recorded = Harness(Kafka(EMBEDDED, own.bootstrap_servers)), RecordedEvents()
    here.create()
    events = Events()
    group = here.group(recorded, **SHORT)
    closing = None
    with thread(member, group, way, events):
        wait(events.handling)
        if way in ("shutdown", "close"):
            closing = threading.Thread(target=getattr(group, way), daemon=True)
            closing.start()
        events.leave.set()
        recorded.wait(GenerationDraining)
        lose(own)
    if closing is not None:
        closing.join(SOON)
        assert not closing.is_alive()
    assert recorded.of(HandlerStillRunning)
    assert "closed" in repr(group)
    events.let_go.set()


@lost
@pytest.mark.parametrize("way", ["shutdown", "close"])
def test_the_broker_is_lost_before_a_body_that_reads(
    own: EmbeddedKafka, way: str, lose: Loss
) -> None:
    """The records end, and so do the loop and the block."""
    here, recorded = Harness(Kafka(EMBEDDED, own.bootstrap_servers)), RecordedEvents()
    here.create()
    group = here.group(recorded, **SHORT)

    def read() -> None:
        with group:
            for generation in group:
                read_all(generation)

    def read_all(generation: Generation) -> None:
        for _ in generation.records():
            raise AssertionError("there are none")

    with thread(read):
        recorded.wait(GenerationStarted)
        lose(own)
        recorded.wait(RequestFailed)
        getattr(group, way)()
    assert "closed" in repr(group)


@lost
def test_there_never_was_a_broker(own: EmbeddedKafka, lose: Loss) -> None:
    """A thread that waits in next() is released, and the block ends."""
    here, recorded = Harness(Kafka(EMBEDDED, own.bootstrap_servers)), RecordedEvents()
    lose(own)
    group = here.group(recorded, **SHORT)

    def work() -> None:
        with group:
            assert list(group) == []

    with thread(work):
        recorded.wait(RequestFailed)
        group.close()


def test_a_program_that_gets_sigterm_and_loses_its_broker(own: EmbeddedKafka) -> None:
    """With the handler of docs/threads.md, the process ends although a thread is stuck."""
    here = Harness(Kafka(EMBEDDED, own.bootstrap_servers))
    here.create(1, 1)
    with program("lost", here) as running:
        running.until("stuck")
        running.process.send_signal(signal.SIGTERM)
        running.until("draining")
        gone(own)
        assert running.ends() == 0
    assert running.said[-2:] == ["over", ""]
    assert "left False" in running.said


def test_a_worker_that_loses_its_partitions_in_its_drain(own: EmbeddedKafka) -> None:
    """The last line does not say that its work is finished, nor that it has left."""
    with ExitStack() as stack:
        workers = []
        for place in ("on trio", "in threads", "on asyncio"):  # they wait for the loss together
            here = Harness(Kafka(EMBEDDED, own.bootstrap_servers))
            here.create(1, 1)
            name = f"cut by a loss {place}"
            workers.append(stack.enter_context(program(name, here, errors=True)))
        for running in workers:
            running.until("holding")
        for running in workers:
            running.process.send_signal(signal.SIGTERM)
            running.until("draining")
        silent(own)
        for running in workers:
            assert running.ends() == 0
    for running in workers:
        assert "left False" in running.said
        (line,) = [one for one in running.said if one.startswith("kgroup: the worker of group")]
        assert "records that it has processed and not committed will be read again" in line
        assert "has finished its work" not in line
        assert "ended, but had lost its partitions before that" in line
        assert "the coordinator has not confirmed that it leaves" in line
