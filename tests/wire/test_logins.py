"""Logins, in virtual time: when a function of the program is called, and what a failure does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import AuthenticationError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.wire.logins import LONGEST_LOOKUP, PATIENCE, Logins, logins_of
from kgroup.worker_thread import compute_inline

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
    return Logins(security, compute_inline, now)


def with_password(function: Callable[[], Any]) -> Logins:
    """The logins of PLAIN with this function."""
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=function)
    return Logins(security, compute_inline, now)


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
    with pytest.raises(AuthenticationError, match="nothing to log in with: Security.token raised"):
        await logins.for_new_connection()
    provider.away = False
    assert await logins.for_new_connection() != old


async def fails() -> Token:
    """A function that raises."""
    await trio.lowlevel.checkpoint()
    raise ValueError("broken")


async def hangs() -> Token:
    """A function that does not return."""
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fails, "Security.token raised ValueError: broken"),
        (hangs, f"Security.token did not return within {LONGEST_LOOKUP:.0f} s"),
        (lambda: "text", "Security.token returned str, not Token"),
        (lambda: Token("t", 5.0), "Security.token returned a token that expired"),
    ],
)
async def test_without_a_token_the_error_says_why(
    autojump_clock: MockClock, function: Callable[[], Any], expected: str
) -> None:
    """The function is called twice, and then the login has failed."""
    with pytest.raises(AuthenticationError, match=expected):
        await made(function).for_new_connection()


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
