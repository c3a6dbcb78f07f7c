"""The broker watcher: when it requests the brokers."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kgroup.client.error_policy import LOGIN_INTERVAL, POLL_AGAIN, Reaction, Request
from kgroup.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    TransportError,
)
from kgroup.watchers.brokers import MAX_AGE, RETRY, broker_watcher


async def test_it_requests_them_now_and_then_and_once_they_are_suspected(
    autojump_clock: MockClock,
) -> None:
    """A request at each multiple of `MAX_AGE`, one for a suspicion, one some time after a failure.

    Members that began at different times request at the same ones.
    """
    suspected = trio.Event()
    fails = False
    times: list[float] = []
    reports: list[tuple[Request, BrokerError | TransportError, Reaction]] = []
    gone = ConnectionLostError("gone")

    async def suspicion() -> None:
        await suspected.wait()

    async def refresh() -> None:
        nonlocal suspected
        times.append(trio.current_time())
        await trio.sleep(1)
        if fails:
            raise gone  # and the brokers stay suspected
        suspected = trio.Event()

    await trio.sleep(17)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            broker_watcher, suspicion, refresh, lambda *failed: reports.append(failed)
        )
        await trio.sleep_until(2 * MAX_AGE + 50)
        assert times == [MAX_AGE, 2 * MAX_AGE]
        suspected.set()
        await trio.sleep_until(3 * MAX_AGE - 10)
        assert times[2:] == [2 * MAX_AGE + 50]
        fails = True
        suspected.set()
        await trio.sleep_until(3 * MAX_AGE - 10 + RETRY - 1)
        fails = False
        await trio.sleep_until(4 * MAX_AGE + RETRY)
        assert times[3:] == [3 * MAX_AGE - 10, 3 * MAX_AGE + RETRY, 4 * MAX_AGE]
        nursery.cancel_scope.cancel()
    assert reports == [(Request.METADATA, gone, POLL_AGAIN)]


async def test_what_a_broker_answers_with_an_error_is_requested_again_soon(
    autojump_clock: MockClock,
) -> None:
    """Only a refused login waits for longer, because an account may be locked."""
    times: list[float] = []
    errors: list[BrokerError] = [
        BrokerError(129, "REBOOTSTRAP_REQUIRED", "Metadata"),
        AuthenticationError(58, "SASL_AUTHENTICATION_FAILED", "SASL login", "wrong password"),
    ]

    async def suspicion() -> None:
        await trio.lowlevel.checkpoint()

    async def refresh() -> None:
        times.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if errors:
            raise errors.pop(0)
        await trio.sleep_forever()

    with trio.move_on_after(1000):
        await broker_watcher(suspicion, refresh, lambda *_: None)
    assert times == [0, RETRY, LOGIN_INTERVAL]


async def test_members_repeat_what_failed_together(autojump_clock: MockClock) -> None:
    """Whenever their brokers were suspected: a refused password is not tried once by each."""
    times: set[float] = set()

    async def refresh() -> None:
        times.add(trio.current_time())
        await trio.lowlevel.checkpoint()
        raise AuthenticationError(58, "SASL_AUTHENTICATION_FAILED", "SASL login", "wrong password")

    with trio.move_on_after(LOGIN_INTERVAL * 10 + 1):
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                await trio.sleep(5)
                nursery.start_soon(
                    broker_watcher, trio.lowlevel.checkpoint, refresh, lambda *_: None
                )
    later = sorted(time for time in times if time > LOGIN_INTERVAL)
    assert later == [LOGIN_INTERVAL * number for number in range(2, 11)]
