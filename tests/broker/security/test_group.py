"""A group of kgroup's on an embedded broker with TLS and users, in virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.config import GroupConfig
from kgroup.errors import AuthenticationError
from kgroup.group import ConsumerGroup
from kgroup.security.settings import SaslMechanism, Security
from kgroup.testing.memory import memory_runtime

USERS = {"alice": "alice-secret"}
RECORDS = 10


def config(broker: EmbeddedBroker, mechanism: SaslMechanism) -> GroupConfig:
    """A group whose user is alice."""
    security = Security(
        protocol=broker.cluster.security.protocol,
        ca=broker.ca,
        mechanism=mechanism,
        username="alice",
        password=USERS["alice"],
    )
    return GroupConfig(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", topics=["t"], security=security
    )


@pytest.mark.parametrize(
    ("mechanism", "tls"),
    [(SaslMechanism.PLAIN, False), (SaslMechanism.SCRAM_SHA_512, True)],
)
async def test_a_group_reads_and_commits(
    autojump_clock: trio.testing.MockClock, mechanism: SaslMechanism, tls: bool
) -> None:
    """A group logs in by each mechanism, and stays one generation while its sessions expire."""
    security = BrokerSecurity(users=USERS, tls=tls, session_lifetime=5)
    async with in_memory(security=security) as broker:
        await broker.create_topic("t", 1)
        await broker.append("t", 0, [b"x"] * RECORDS)
        made = config(broker, mechanism)
        async with ConsumerGroup(made, runtime=memory_runtime(broker)) as group:
            generation = await group.next()
            async for batch in generation.records():
                await trio.sleep(60)
                await generation.commit({batch.partition: batch.next_offset})
                break
            assert not generation.ending.is_set()
        assert {at.offset for at in (await broker.committed("g")).values()} == {RECORDS}


async def test_a_user_who_was_removed(autojump_clock: trio.testing.MockClock) -> None:
    """The group ends with an error that names the login once its sessions have ended."""
    async with in_memory(security=BrokerSecurity(users=USERS)) as broker:
        await broker.create_topic("t", 1)
        made = config(broker, SaslMechanism.PLAIN)
        async with ConsumerGroup(made, runtime=memory_runtime(broker)) as group:
            await group.next()
            broker.remove_user("alice")
            assert broker.end_sessions("alice") > 0
            with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
                await group.next()
