"""``startup_timeout``: a program that would rather end than wait for brokers that are away."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, StartupTimeoutError, TransportError
from kgroup.events import RequestFailed
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
            assert str(here.events_of(RequestFailed)[-1].reason) in str(raised.value)
            with pytest.raises(StartupTimeoutError):
                await group.next()


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
