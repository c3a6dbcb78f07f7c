"""The embedded broker's logins under attack: garbage ends its own connection only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import pytest
import trio
import trio.testing

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.wire.versions import API_KEYS
from tests.broker.security.logins import ALL, PLAIN, authenticate, handshake, log_in, works
from tests.broker.wire import LENGTH, Client

SECURITY: Final = BrokerSecurity(
    users={"alice": "alice-secret"}, mechanisms=ALL, session_lifetime=5
)
KEYS: Final = [API_KEYS[name] for name in ("sasl_handshake", "sasl_authenticate", "api_versions")]
MOST: Final = 512 * 1024


async def before(client: Client) -> None:
    """Nothing was sent."""
    await trio.lowlevel.checkpoint()


async def chosen(client: Client) -> None:
    """A mechanism was chosen."""
    await handshake(client, "OAUTHBEARER")


async def exchanging(client: Client) -> None:
    """The first message of SCRAM was answered."""
    await handshake(client, "SCRAM-SHA-512")
    await authenticate(client, b"n,,n=alice,r=x")


async def renewing(client: Client) -> None:
    """A user logs in again."""
    await log_in(client)
    await handshake(client)


async def check_honest(broker: EmbeddedBroker) -> None:
    """Another client still logs in, and the broker has had no internal error."""
    client = await Client.open(broker)
    async with client.stream:
        with trio.fail_after(60):
            await log_in(client, PLAIN)
            assert await works(client)
    assert not broker.cluster.internal_errors.latest


@pytest.mark.parametrize("state", [before, chosen, exchanging, renewing])
async def test_garbage_in_every_state(
    autojump_clock: trio.testing.MockClock, state: Callable[[Client], Awaitable[None]]
) -> None:
    """Random requests of a login end their connection, and nothing else."""
    random = Random(1)
    async with in_memory(security=SECURITY) as broker:
        for _ in range(60):
            client = await Client.open(broker)
            async with client.stream:
                await state(client)
                body = random.choice(KEYS).to_bytes(2, "big")
                body += random.randrange(4).to_bytes(2, "big")
                body += random.randbytes(random.randrange(4, 60))
                await client.send_frame(body)
                with trio.move_on_after(1):
                    try:
                        await client.frame()
                    except (EOFError, trio.BrokenResourceError):
                        continue
        await check_honest(broker)


@pytest.mark.parametrize("mechanism", [one.value for one in ALL])
async def test_a_huge_message_is_answered_quickly(
    autojump_clock: trio.testing.MockClock, mechanism: str
) -> None:
    """A message of the most bytes is refused in one pass, whatever it repeats."""
    pieces = (b"n,,n=", b"\0", b",", b"n,a=", b",\x01a=b", b"=2C", b"n,,\x01auth=Bearer a.b.c")
    async with in_memory(security=SECURITY) as broker:
        for piece in pieces:
            client = await Client.open(broker)
            async with client.stream:
                await handshake(client, mechanism)
                message = b"n,," + piece * (MOST // len(piece) - 40)
                answer = await authenticate(client, message[: MOST - 200])
                assert int(answer.error_code) == 58
        await check_honest(broker)


async def test_a_thousand_clients_that_never_log_in(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They count as idle: the broker ends them, and honest clients log in meanwhile."""
    async with in_memory({"connections.max.idle.ms": 60_000}, security=SECURITY) as broker:
        clients = [await Client.open(broker) for _ in range(1000)]
        for client in clients[::2]:
            await client.stream.send_all(LENGTH.pack(MOST))
        await check_honest(broker)
        await trio.sleep(61)
        for client in clients:
            assert await client.is_closed()
            await client.stream.aclose()
        await check_honest(broker)
