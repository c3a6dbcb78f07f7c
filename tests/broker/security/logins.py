"""Logins of the tests' own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from kgroup.broker import BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.security.credentials import Credentials
from kgroup.security.mechanism import Login
from kgroup.security.scram import ScramLogin
from kgroup.security.settings import SaslMechanism
from kgroup.security.unsecured_token import jwt_part
from tests.broker.wire import Client

PASSWORD: Final = "alice-secret"  # noqa: S105 # of a test
PLAIN: Final = b"\0alice\0alice-secret"
ALL: Final = list(SaslMechanism)


@asynccontextmanager
async def secured(**settings: Any) -> AsyncIterator[tuple[EmbeddedBroker, Client]]:
    """A broker in memory with user alice, and a connection to it that has not logged in."""
    security = BrokerSecurity(**{"users": {"alice": PASSWORD}, **settings})
    async with in_memory(security=security) as broker:
        client = await Client.open(broker)
        async with client.stream:
            yield broker, client


async def handshake(client: Client, mechanism: str = "PLAIN") -> int:
    """The error of a SaslHandshake."""
    return int((await client.request("sasl_handshake", 1, mechanism=mechanism)).error_code)


async def authenticate(client: Client, message: bytes = PLAIN, version: int = 2) -> Any:
    """The response to a SaslAuthenticate."""
    return await client.request("sasl_authenticate", version, auth_bytes=message)


async def log_in(client: Client, message: bytes = PLAIN, mechanism: str = "PLAIN") -> Any:
    """The response to the last message of a login by one message, without errors."""
    assert await handshake(client, mechanism) == 0
    answer = await authenticate(client, message)
    assert int(answer.error_code) == 0, answer
    return answer


async def log_in_by_scram(
    client: Client, mechanism: SaslMechanism, user: str = "alice", password: str = PASSWORD
) -> int:
    """The error of a login by SCRAM; the client checks the broker's proof."""
    login: Login = ScramLogin(mechanism, Credentials(user, password))
    assert await handshake(client, mechanism.value) == 0
    message: bytes | None = login.first()
    while message is not None:
        answer = await authenticate(client, message)
        if answer.error_code:
            return int(answer.error_code)
        message = login.answer(answer.auth_bytes)
    assert login.done
    return 0


async def works(client: Client) -> bool:
    """Whether requests are served."""
    return bool((await client.request("metadata", 1, topics=None)).brokers)


def token(header: object = None, claims: object = None, signature: str = "") -> bytes:
    """A first message of OAUTHBEARER, with a token of these parts."""
    given = f"{jwt_part(header or {'alg': 'none'})}.{jwt_part(claims)}.{signature}"
    return f"n,,\x01auth=Bearer {given}\x01\x01".encode()
