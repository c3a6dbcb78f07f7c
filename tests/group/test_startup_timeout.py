"""``startup_timeout``: a program that would rather end than wait for brokers that are away."""

from __future__ import annotations

import re

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.broker import in_memory
from kgroup.client.error_policy import Action
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, StartupTimeoutError, TransportError
from kgroup.events import RequestFailed
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from tests.group.harness import harness


async def test_brokers_that_are_away(autojump_clock: MockClock) -> None:
    """next() raises one error with the last failure; so does every later next()."""
    async with harness() as here:
        here.broker.set_reachable(reachable=False)
        began = trio.current_time()
        async with here.group(startup_timeout=7.0, request_timeout=1.0) as group:
            with pytest.raises(StartupTimeoutError, match="attempts failed, the last") as raised:
                await group.next()
            assert trio.current_time() - began == pytest.approx(7)
            assert isinstance(raised.value.__cause__, TransportError)
            *attempts, end = here.events_of(RequestFailed)
            assert attempts[-1].reason in str(raised.value)
            # A program that raises it much later, or nowhere, has it in its log.
            assert (end.reason, end.next_action) == (str(raised.value), Action.FAIL.value)
            with pytest.raises(StartupTimeoutError):
                await group.next()


async def test_ports_that_are_not_kafkas(autojump_clock: MockClock) -> None:
    """The error names each bootstrap server, what the port may be, once, and the general advice."""
    with trio.fail_after(60):
        async with in_memory() as broker, trio.open_nursery() as nursery:

            async def zeros(stream: trio.abc.Stream) -> None:
                async with stream:
                    await stream.receive_some()
                    await stream.send_all(bytes(8))

            async def opener(host: str, port: int) -> trio.abc.Stream:
                del host, port
                await trio.lowlevel.checkpoint()
                ours, theirs = trio.testing.memory_stream_pair()
                nursery.start_soon(zeros, theirs)
                return ours

            runtime = attrs.evolve(memory_runtime(broker), open_stream=opener)
            config = config_for(broker, bootstrap_servers="one:9092,two:9092", startup_timeout=7.0)
            async with ConsumerGroup(config, runtime=runtime) as group:
                with pytest.raises(StartupTimeoutError) as raised:
                    await group.next()
    text = str(raised.value)
    for server in ("one", "two"):
        assert f"{server}:9092 announced a frame of 0 bytes" in text
    assert text.count("the port may belong to a listener that expects TLS or a login") == 1
    assert "or another port. Otherwise check that the brokers run" in text


async def test_a_coordinator_that_refuses(autojump_clock: MockClock) -> None:
    """A coordinator that is found and answers no JoinGroup has not been reached either."""
    async with harness() as here:
        here.broker.inject("join_group", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        async with here.group(startup_timeout=7.0) as group:
            with pytest.raises(StartupTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS") as raised:
                await group.next()
            assert isinstance(raised.value.__cause__, BrokerError)


async def test_a_connection_that_nobody_answers(autojump_clock: MockClock) -> None:
    """The first attempt is cut short by the limit."""
    async with harness() as here:
        here.broker.slow(3600.0)
        async with here.group(startup_timeout=3.0) as group:
            with pytest.raises(StartupTimeoutError, match="no attempt has ended"):
                await group.next()


async def test_topics_that_nobody_lists(autojump_clock: MockClock) -> None:
    """A member with a pattern needs metadata before it joins: the limit counts there too."""
    async with harness() as here:
        here.broker.slow(3600.0, "metadata")
        async with here.group(startup_timeout=3.0, topics=[re.compile("t.*")]) as group:
            began = trio.current_time()
            with pytest.raises(StartupTimeoutError):
                await group.next()
            assert trio.current_time() - began == pytest.approx(3)


async def test_members_that_are_waited_for(autojump_clock: MockClock) -> None:
    """The limit is for reaching the coordinator, not for the group's rebalance."""
    async with harness() as here:
        here.broker.slow(20.0, "join_group", times=1)
        async with here.group(startup_timeout=3.0, rebalance_timeout=60.0) as group:
            await group.next()


async def test_brokers_that_go_away_later(autojump_clock: MockClock) -> None:
    """Once the group was joined, brokers that are away are waited for as ever."""
    async with harness() as here, here.group(startup_timeout=3.0) as group:
        generation = await group.next()
        here.broker.set_reachable(reachable=False)
        await generation.ending.wait()
        await trio.sleep(60)
        here.broker.set_reachable(reachable=True)
        await group.next()
