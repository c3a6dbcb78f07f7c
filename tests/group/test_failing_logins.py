"""A member whose function for tokens or passwords fails, in virtual time."""

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
from kgroup.security.credentials import Credentials
from kgroup.security.settings import Security
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import Cause

USER: Final = "alice"
AWAY: Final = 600.0
"""Seconds for which the vault is away, many times the session of the member."""


class Vault:
    """What the program asks for its password."""

    def __init__(self) -> None:
        self.password, self.away = "one", False
        self.calls = 0

    async def look_up(self) -> Credentials:
        """Return the password, if the vault is there."""
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if self.away:
            raise OSError("the vault is sealed")
        return Credentials(USER, self.password)

    @property
    def security(self) -> Security:
        """The settings that ask it."""
        return Security(
            protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", credentials=self.look_up
        )


async def test_a_vault_that_is_away_after_the_start_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    """The member is back once it answers, as with a broker that was away; each failure is told."""
    vault, events = Vault(), list[Event]()
    secured = BrokerSecurity(users={USER: vault.password}, session_lifetime=5.0)
    async with in_memory(random=random.Random(1), security=secured) as broker:
        await broker.create_topic("orders", 1)
        config = config_for(broker, group_id="group", topics=["orders"], security=vault.security)
        runtime = memory_runtime(broker, seed=1)
        async with ConsumerGroup(config, runtime=runtime, on_event=events.append) as group:
            generation = await group.next()
            vault.away, vault.password = True, "two"
            broker.set_user(USER, vault.password)
            end = await generation.wait_ended()
            assert end.cause is Cause.COORDINATOR_LOST
            with trio.move_on_after(AWAY) as waiting:
                await group.next()
            assert waiting.cancelled_caught
            failed = [event.reason for event in events if isinstance(event, RequestFailed)]
            assert any("Security.credentials raised OSError: the vault" in one for one in failed)
            assert vault.calls < AWAY
            vault.away = False
            assert list((await group.next()).assignment) == list(generation.assignment)


async def test_a_function_that_fails_at_the_start_ends_the_group(
    autojump_clock: MockClock,
) -> None:
    """It is probably wrong, and the program learns of it within seconds."""
    vault = Vault()
    vault.away = True
    secured = BrokerSecurity(users={USER: vault.password})
    async with in_memory(random=random.Random(1), security=secured) as broker:
        config = config_for(broker, group_id="group", topics=["orders"], security=vault.security)
        async with ConsumerGroup(config, runtime=memory_runtime(broker, seed=1)) as group:
            with pytest.raises(AuthenticationError, match="the vault is sealed; there is none yet"):
                await group.next()
    assert vault.calls == 2
