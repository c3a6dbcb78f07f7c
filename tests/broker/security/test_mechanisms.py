"""SCRAM and OAUTHBEARER at the embedded broker."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest
import trio.testing

from kgroup.broker.security.users import Users
from kgroup.security.settings import SaslMechanism
from kgroup.wire import codec
from tests.broker.security.logins import (
    ALL,
    authenticate,
    handshake,
    log_in,
    log_in_by_scram,
    secured,
    token,
    works,
)

SCRAM = (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)
NOW = 1_600_000_000
"""The time at which a broker in memory begins."""
CLAIMS = {"sub": "alice", "exp": NOW + 30}


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("user", ["alice", "a=b,c"])
async def test_a_login_by_scram(mechanism: SaslMechanism, user: str) -> None:
    """Both sides prove that they know the password, whatever characters the name has."""
    async with secured(users={user: "Ⅸ \u00ad"}) as (_, client):
        assert await log_in_by_scram(client, mechanism, user, "Ⅸ \u00ad") == 0
        assert await works(client)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "alice-secret")])
async def test_scram_is_refused(
    autojump_clock: trio.testing.MockClock, user: str, password: str
) -> None:
    """A wrong password and an unknown user are refused with the same text."""
    async with secured() as (_, client):
        assert await log_in_by_scram(client, SCRAM[0], user, password) == 58
        assert await client.is_closed()


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"n,,n=,r=x", b"y,,n=alice,r=x", b"n,a=bob,n=alice,r=x", b"n,,n=\xc3\xa4,r=x"],
)
async def test_malformed_scram(autojump_clock: trio.testing.MockClock, message: bytes) -> None:
    """A first message that is malformed, or for another user, is refused."""
    async with secured() as (_, client):
        await handshake(client, "SCRAM-SHA-512")
        assert int((await authenticate(client, message)).error_code) == 58
        assert await client.is_closed()


@pytest.mark.parametrize("change", [b"c=biws,r=other,p=YQ==", b"c=biws,r=x,p=!", b"x", b"\xff"])
async def test_a_malformed_proof(autojump_clock: trio.testing.MockClock, change: bytes) -> None:
    """A second message that is malformed or has another nonce is refused."""
    async with secured() as (_, client):
        await handshake(client, "SCRAM-SHA-256")
        first = await authenticate(client, b"n,,n=alice,r=x")
        assert b"i=4096" in first.auth_bytes
        assert int((await authenticate(client, change)).error_code) == 58
        assert await client.is_closed()


def test_no_password_is_kept() -> None:
    """What a running broker holds of a user does not contain the password."""
    users = Users(Random(1))
    users.put("alice", "a very secret word")
    assert users.has_password("alice", "a very secret word")
    assert b"a very secret word" not in pickle.dumps(users)


def test_no_message_of_a_login_is_cached() -> None:
    """The codec keeps small requests that it has read, but none with a password."""
    fields = {"auth_bytes": b"a password"}
    sent = codec.encode_request("sasl_authenticate", 2, fields, correlation_id=9, client_id=None)
    before = codec._decode_small.cache_info()
    assert codec.decode_request(sent).entity.auth_bytes == b"a password"
    assert codec._decode_small.cache_info() == before


async def test_a_login_by_token(autojump_clock: trio.testing.MockClock) -> None:
    """A token without a signature is accepted, and the session ends with it."""
    async with secured(mechanisms=ALL) as (_, client):
        answer = await log_in(client, token(claims=CLAIMS), "OAUTHBEARER")
        assert answer.session_lifetime.total_seconds() == pytest.approx(30)
        await trio.sleep(29)
        assert await works(client)
        await trio.sleep(2)
        await client.send("metadata", 1, topics=[])
        assert await client.is_closed()


@pytest.mark.parametrize(
    "parts",
    [
        {"claims": {**CLAIMS, "exp": NOW - 1}},
        {"claims": {**CLAIMS, "iat": NOW + 5}},
        {"claims": {"sub": "alice"}},
        {"claims": {"exp": NOW + 30}},
        {"claims": {**CLAIMS, "sub": 5}},
        {"claims": {**CLAIMS, "exp": True}},
        {"claims": {**CLAIMS, "exp": 10**400}},
        {"claims": ["x"]},
        {"claims": CLAIMS, "header": {"alg": "RS256"}},
        {"claims": CLAIMS, "signature": "abc"},
    ],
)
async def test_a_refused_token(
    autojump_clock: trio.testing.MockClock, parts: dict[str, Any]
) -> None:
    """The refusal comes without an error, and the error after the acknowledgement."""
    async with secured(mechanisms=ALL) as (_, client):
        await handshake(client, "OAUTHBEARER")
        answer = await authenticate(client, token(**parts))
        assert int(answer.error_code) == 0
        assert answer.auth_bytes == b'{"status":"invalid_token"}'
        assert int((await authenticate(client, b"\x01")).error_code) == 58
        assert await client.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,a=bob,\x01" + token(claims=CLAIMS).partition(b"\x01")[2],
        b"n," + b"a=" + b",\x01a=b" * 60_000,
    ],
)
async def test_a_malformed_message_with_a_token(
    autojump_clock: trio.testing.MockClock, message: bytes
) -> None:
    """A message that is malformed, or for another user, gets the error at once."""
    async with secured(mechanisms=ALL) as (_, client):
        await handshake(client, "OAUTHBEARER")
        assert int((await authenticate(client, message)).error_code) == 58
        assert await client.is_closed()
