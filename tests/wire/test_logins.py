"""Logins, in virtual time: when a function of the program is called, and what a failure does."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kgroup.errors import AuthenticationError, ConnectionLostError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.wire.login import ConnectionSecurity
from kgroup.wire.logins import (
    _LOGINS,
    FIRST_WAIT,
    LONGEST_LOOKUP,
    LONGEST_QUIET,
    MOST_CALLS,
    PATIENCE,
    SHORTEST_WAIT,
    Logins,
    logins_of,
)
from kgroup.worker_thread import WorkerThread, compute_inline

EPOCH = 1_000_000.0
LIFETIME = 100.0


def now() -> float:
    """The time of day, which is virtual too."""
    return EPOCH + trio.current_time()


class Provider:
    """A function that returns tokens, or fails."""

    def __init__(self, lifetime: float = LIFETIME) -> None:
        self.calls: list[float] = []
        self.away = False
        self.lifetime = lifetime

    async def __call__(self) -> Token:
        """Return another token."""
        self.calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.away:
            raise ConnectionError("no route to the provider")
        return Token(f"token-{len(self.calls)}", now() + self.lifetime)


def made(function: Callable[[], Any]) -> Logins:
    """The logins of OAUTHBEARER with this function."""
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=function)
    return Logins(security, lambda: compute_inline, now)


def with_password(function: Callable[[], Any]) -> Logins:
    """The logins of PLAIN with this function."""
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=function)
    return Logins(security, lambda: compute_inline, now)


async def test_a_token_is_replaced_at_80_percent_of_its_lifetime(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Each token is fetched once for all connections, and again when 20 % of it is left."""
    began = trio.current_time()
    provider = Provider()
    logins = made(provider)
    for _ in range(2):  # two members
        nursery.start_soon(logins.keep_fresh, lambda _: None)
    await trio.sleep(2.5 * LIFETIME)
    assert [round(at - began) for at in provider.calls] == [0, 80, 160, 240]
    assert await logins.for_new_connection() == logins.for_renewal() == logins.latest


async def test_a_provider_that_is_away_is_asked_again_with_a_back_off(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The old token is used while it holds; the failures are reported with what happens next."""
    provider, reports = Provider(), list[str]()
    logins = made(provider)
    nursery.start_soon(logins.keep_fresh, reports.append)
    await trio.sleep(1)
    old, provider.away = logins.latest, True
    await trio.sleep(0.95 * LIFETIME)
    assert await logins.for_new_connection() == old
    assert 4 <= len(provider.calls) <= 10
    assert reports[0] == (
        "Security.token raised ConnectionError: no route to the provider; the present token is"
        " valid for 20 s; the next attempt is in 1 s"
    )
    await trio.sleep(0.1 * LIFETIME)
    assert logins.for_renewal() is None
    with pytest.raises(
        ConnectionLostError, match="nothing to log in with: Security.token raised"
    ) as caught:
        await logins.for_new_connection()
    assert not caught.value.sent
    provider.away = False
    await trio.sleep(LONGEST_QUIET)
    assert await logins.for_new_connection() != old


async def test_many_connections_do_not_call_a_provider_that_is_away_in_turn(
    autojump_clock: MockClock,
) -> None:
    """Those of a short time after a failure fail by it, and the time doubles to `LONGEST_QUIET`."""
    provider = Provider()
    logins = made(provider)
    await logins.for_new_connection()
    await trio.sleep(LIFETIME)
    provider.away, minute = True, 60
    provider.calls.clear()
    for _ in range(10 * minute):
        with pytest.raises(ConnectionLostError, match="no route to the provider; the last token"):
            await logins.for_new_connection()
        await trio.sleep(0.1)
    assert minute / LONGEST_QUIET <= len(provider.calls) <= minute / LONGEST_QUIET + 3
    provider.away = False
    await trio.sleep(LONGEST_QUIET)
    assert isinstance(await logins.for_new_connection(), Token)
    await trio.sleep(LIFETIME)
    provider.away = True
    provider.calls.clear()
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            await logins.for_new_connection()
        await trio.sleep(FIRST_WAIT)
    assert len(provider.calls) == 2  # the pauses start at the shortest again after a success


async def test_a_refused_token_is_waited_for_and_a_refused_password_is_not(
    autojump_clock: MockClock,
) -> None:
    """A broker's clock may be ahead; but librdkafka sends a password again, and locks accounts."""
    provider = Provider()
    tokens = made(provider)
    tokens.refuse(await tokens.for_new_connection())
    provider.away = True
    for _ in range(3):
        with pytest.raises(
            ConnectionLostError, match="no route to the provider; a broker refused what was looked"
        ):
            await tokens.for_new_connection()
    provider.away = False
    await trio.sleep(FIRST_WAIT)
    assert await tokens.for_new_connection() == tokens.latest

    async def look_up() -> Credentials:
        await trio.lowlevel.checkpoint()
        if passwords.latest is not None:
            raise OSError("the vault is sealed")
        return Credentials("alice", "one")

    passwords = with_password(look_up)
    passwords.refuse(await passwords.for_new_connection())
    with pytest.raises(AuthenticationError, match="the vault is sealed; a broker refused what"):
        await passwords.for_new_connection()


async def test_tokens_that_hardly_live_are_not_asked_for_without_a_pause(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A provider that answers nonsense is not called as fast as it answers."""
    provider = Provider(lifetime=0.002)
    nursery.start_soon(made(provider).keep_fresh, lambda _: None)
    await trio.sleep(10 * SHORTEST_WAIT)
    assert 2 <= len(provider.calls) <= 11


class UnprintableError(Exception):
    """An exception whose own text raises."""

    def __str__(self) -> str:
        raise TypeError("no text")


async def test_an_exception_without_a_text_is_a_failure_like_others(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """It is reported, and the next attempt is made; the present token is used meanwhile."""
    calls, reports = list[float](), list[str]()

    async def fetch_once() -> Token:
        calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(calls) > 1:
            raise UnprintableError
        return Token("token", now() + LIFETIME)

    logins = made(fetch_once)
    nursery.start_soon(logins.keep_fresh, reports.append)
    await trio.sleep(0.95 * LIFETIME)
    assert await logins.for_new_connection() == logins.latest
    assert len(calls) > 2
    assert reports[0] == (
        "Security.token raised UnprintableError; the present token is valid for 20 s; the next"
        " attempt is in 1 s"
    )


async def fails() -> Token:
    """A function that raises."""
    await trio.lowlevel.checkpoint()
    raise ValueError("broken")


def raises_without_text() -> Token:
    """A function whose exception cannot be printed."""
    raise UnprintableError


async def hangs() -> Token:
    """A function that does not return."""
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fails, "Security.token raised ValueError: broken"),
        (raises_without_text, "Security.token raised UnprintableError;"),
        (hangs, f"Security.token did not return within {LONGEST_LOOKUP:.0f} s"),
        (lambda: "text", "Security.token returned str, not Token"),
        (lambda: Token("t", 5.0), "Security.token returned a token that expired"),
        (
            lambda: Token("t", 3600),
            "expires_at=3600 is a time, in seconds since 1970; to a lifetime",
        ),
    ],
)
async def test_without_a_token_the_error_says_why(
    autojump_clock: MockClock, function: Callable[[], Any], expected: str
) -> None:
    """The function is called twice, and then the login has failed."""
    with pytest.raises(AuthenticationError, match=expected):
        await made(function).for_new_connection()


@pytest.mark.parametrize("hanging", [MOST_CALLS - 1, MOST_CALLS])
async def test_a_function_that_hangs_is_called_again(mock_clock: MockClock, hanging: int) -> None:
    """The next attempt calls it in another thread, until so many calls hang; the error says so."""
    began, release, calls = threading.Semaphore(0), threading.Event(), list[int]()

    def fetch() -> Token:
        calls.append(len(calls))
        if len(calls) <= hanging:
            began.release()
            assert release.wait(60)
        return Token("token", now_outside + LIFETIME)

    async def fail(expected: str) -> None:
        with pytest.raises(AuthenticationError, match=expected):
            await logins.for_new_connection()

    async def begin_and_hang() -> None:
        assert await trio.to_thread.run_sync(lambda: began.acquire(timeout=60))
        mock_clock.jump(LONGEST_LOOKUP)

    async def pass_pause() -> None:
        await wait_all_tasks_blocked()
        mock_clock.jump(FIRST_WAIT)

    now_outside = now()
    security = Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=fetch)
    logins = Logins(security, WorkerThread, now)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "did not return within 20 s; there is none")
            await begin_and_hang()
            await pass_pause()
            await begin_and_hang()
        if hanging == MOST_CALLS:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    fail, "3 calls of it still run.*let its requests have a time-out"
                )
                await begin_and_hang()
                await pass_pause()
                await wait_all_tasks_blocked()
                mock_clock.jump(LONGEST_LOOKUP)  # no call begins: the second attempt waits
            release.set()
        assert isinstance(await logins.for_new_connection(), Token)
        assert len(calls) == hanging + 1
    finally:
        release.set()


async def test_a_password_is_looked_up_for_each_new_connection(autojump_clock: MockClock) -> None:
    """If that fails or takes long, the last one is used, and a report says so."""
    passwords, reports = ["one"], list[str]()

    async def look_up() -> Credentials:
        await trio.sleep(0.1 if passwords[-1] != "slow" else 2 * PATIENCE)
        if passwords[-1] == "away":
            raise OSError("the vault is sealed")
        return Credentials("alice", passwords[-1])

    logins = with_password(look_up)
    assert await logins.for_new_connection() == Credentials("alice", "one")
    passwords.append("two")
    assert logins.for_renewal() == Credentials("alice", "one")
    assert await logins.for_new_connection() == Credentials("alice", "two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logins.keep_fresh, reports.append)
        await trio.sleep(1)
        for word in ("away", "slow"):
            passwords.append(word)
            assert await logins.for_new_connection() == Credentials("alice", "two")
        nursery.cancel_scope.cancel()
    assert reports == [
        "Security.credentials raised OSError: the vault is sealed; the last ones are used",
        "Security.credentials takes more than 5 s; the last ones are used",
    ]


async def test_a_connection_with_little_time_takes_the_last_password_in_time(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A function that hangs leaves half of the time for the login itself."""
    found, reports = [Credentials("alice", "one")], list[str]()

    async def look_up() -> Credentials:
        await trio.lowlevel.checkpoint()
        if not found:
            await trio.sleep_forever()
        return found.pop()

    logins = with_password(look_up)
    nursery.start_soon(logins.keep_fresh, reports.append)
    first = await logins.for_new_connection()
    began = trio.current_time()
    with trio.fail_after(2):
        assert await logins.for_new_connection() == first
        assert trio.current_time() - began == pytest.approx(1)
    assert reports == ["Security.credentials takes more than 1 s; the last ones are used"]


async def test_a_refused_password_is_looked_up_in_the_background(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The data plane asks again and again; the function is called with a back-off, until it helps.

    Who listens hears of the change.
    """
    calls, passwords, heard = list[float](), ["one"], list[str]()

    def look_up() -> Credentials:
        calls.append(trio.current_time())
        return Credentials("alice", passwords[-1])

    logins = with_password(look_up)
    await logins.for_new_connection()
    logins.listen("key", lambda: heard.append("changed"))
    nursery.start_soon(logins.keep_fresh, lambda _: None)
    for number in range(100):
        logins.request_lookup()
        await trio.sleep(0.3)
        if number == 90:
            passwords.append("two")
    await trio.sleep(40)
    assert len(calls) <= 8
    assert (heard, logins.latest) == (["changed"], Credentials("alice", "two"))


async def test_logins_of_settings_that_are_gone_are_forgotten() -> None:
    """A program that makes settings for each of its connections keeps nothing of the last ones."""
    for _ in range(3):
        security = ConnectionSecurity(
            Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=with_nothing)
        )
        await security.look_up()
    del security
    gc.collect()
    assert len(_LOGINS.get()) == 0


async def test_logins_outlive_the_settings_that_they_were_made_for() -> None:
    """A member with equal settings keeps them once the first member's settings are gone."""
    one, same = (
        Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=with_nothing)
        for _ in range(2)
    )
    shared = logins_of(one, lambda: compute_inline)
    del one
    gc.collect()
    assert logins_of(same, lambda: compute_inline) is shared


def with_nothing() -> Credentials:
    """A function for user name and password."""
    return Credentials("alice", "secret")


async def test_members_with_equal_settings_share_their_logins() -> None:
    """An identity provider is called once for all of them."""

    def provider() -> Token:
        return Token("token", time.time() + LIFETIME)

    one, same = (
        Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=provider)
        for _ in range(2)
    )
    other = Security(
        protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=lambda: Token("token", 1.0)
    )
    shared = logins_of(one, lambda: compute_inline)
    assert logins_of(same, lambda: compute_inline) is shared
    assert logins_of(other, lambda: compute_inline) is not shared
    first, second = await shared.for_new_connection(), await shared.for_new_connection()
    assert first is second
