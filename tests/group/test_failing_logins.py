"""A member whose function for tokens fails, in virtual time."""

from __future__ import annotations

import random
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, in_memory
from kgroup.errors import AuthenticationError
from kgroup.events import Event, RequestFailed
from kgroup.group import ConsumerGroup
from kgroup.security.credentials import Token
from kgroup.security.settings import SaslMechanism, Security
from kgroup.security.unsecured_token import jwt_part
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import Cause
from kgroup.wire import logins

USER: Final = "alice"
LIFETIME: Final = 60.0
"""Seconds that a token is valid."""
AWAY: Final = 600.0
"""Seconds for which the provider is away, many times a token's lifetime and the session."""
SECURED: Final = BrokerSecurity(mechanisms=(SaslMechanism.OAUTHBEARER,))


class Provider:
    """An identity provider, by the time of day of the broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = False
        self.calls = 0
        monkeypatch.setattr(logins, "_time_of_day", self.now)

    @staticmethod
    def now() -> float:
        """The time of day, which is virtual too; the broker's is later, which ends no token."""
        return trio.current_time()

    async def token(self) -> Token:
        """Return a token, if the provider is there."""
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if self.away:
            raise OSError("no route to the provider")
        claims = {"sub": USER, "exp": 9e9}
        value = f"{jwt_part({'alg': 'none'})}.{jwt_part(claims)}."
        return Token(value, self.now() + LIFETIME)

    @property
    def security(self) -> Security:
        """The settings that ask it."""
        return Security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=self.token)


async def test_a_provider_that_is_away_after_the_start_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member is back once it answers, as after an outage of a broker; failures are events."""
    provider, events = Provider(monkeypatch), list[Event]()
    async with in_memory(random=random.Random(1), security=SECURED) as broker:
        await broker.create_topic("orders", 1)
        config = config_for(broker, topics=["orders"], security=provider.security)
        runtime = memory_runtime(broker, seed=1)
        async with ConsumerGroup(config, runtime=runtime, on_event=events.append) as group:
            generation = await group.next()
            provider.away = True
            await trio.sleep(LIFETIME)
            assert generation.end is None  # nothing needs another login yet
            broker.end_sessions()
            end = await generation.wait_ended()
            assert end.cause is Cause.COORDINATOR_LOST
            with trio.move_on_after(AWAY) as waiting:
                await group.next()
            assert waiting.cancelled_caught
            failed = [event.reason for event in events if isinstance(event, RequestFailed)]
            assert any("Security.token raised OSError: no route" in one for one in failed)
            assert provider.calls < AWAY
            provider.away = False
            assert list((await group.next()).assignment) == list(generation.assignment)


async def test_a_function_that_fails_at_the_start_ends_the_group(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is probably wrong, and the program learns of it within seconds."""
    provider = Provider(monkeypatch)
    provider.away = True
    async with in_memory(random=random.Random(1), security=SECURED) as broker:
        config = config_for(broker, topics=["orders"], security=provider.security)
        async with ConsumerGroup(config, runtime=memory_runtime(broker, seed=1)) as group:
            began = trio.current_time()
            with pytest.raises(AuthenticationError, match="no route.*; there is none yet"):
                await group.next()
            assert trio.current_time() - began < 10.0
