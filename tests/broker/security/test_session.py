"""The states of a login: what each request does in each, as Kafka's broker was seen to do."""

from __future__ import annotations

import pytest
import trio.testing

from kgroup.broker.security.login_states import STEPS, LoginRequest, LoginState
from kgroup.security.settings import SaslMechanism
from tests.broker.security.logins import (
    ALL,
    PLAIN,
    authenticate,
    handshake,
    log_in,
    log_in_by_scram,
    secured,
    works,
)
from tests.broker.wire import Client, connected

USUAL_LIFETIME = 5.0


def test_every_state_decides_on_every_request() -> None:
    """The table has no hole."""
    assert set(STEPS) == {(state, request) for state in LoginState for request in LoginRequest}


async def test_a_login_by_plain() -> None:
    """After ApiVersions, handshake and password the connection serves requests, without an end."""
    async with secured() as (_, client):
        await client.request("api_versions", 0)
        answer = await log_in(client)
        assert (answer.auth_bytes, answer.session_lifetime.total_seconds()) == (b"", 0)
        assert await works(client)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_authenticate(version: int) -> None:
    """All versions log in; the first has no session lifetime."""
    async with secured(session_lifetime=5) as (_, client):
        await handshake(client)
        answer = await authenticate(client, version=version)
        assert hasattr(answer, "session_lifetime") == (version > 0)
        assert await works(client)


async def test_anything_else_first_closes_without_an_answer() -> None:
    """Before the handshake only ApiVersions and SaslHandshake are taken."""
    for api, version, fields in (
        ("metadata", 1, {"topics": []}),
        ("sasl_authenticate", 2, {"auth_bytes": PLAIN}),
    ):
        async with secured() as (_, client):
            await client.send(api, version, **fields)
            assert await client.is_closed()


async def test_api_versions_may_succeed_once() -> None:
    """A version that is too high may be sent again; after a success the second closes."""
    async with secured() as (_, client):
        too_high = b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff"
        for _ in range(2):
            await client.send_frame(too_high)
            assert int((await client.answer("api_versions", 0)).error_code) == 35
        assert not (await client.request("api_versions", 0)).error_code
        await client.send("api_versions", 0)
        assert await client.is_closed()


async def test_an_unknown_mechanism_is_told_the_enabled_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Error 33 comes late, with the mechanisms, and the connection closes."""
    async with secured() as (_, client):
        answer = await client.request("sasl_handshake", 1, mechanism="GSSAPI")
        assert int(answer.error_code) == 33
        assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        assert trio.current_time() == pytest.approx(0.1)
        assert await client.is_closed()


@pytest.mark.parametrize("renewing", [False, True])
async def test_requests_between_handshake_and_authenticate(
    autojump_clock: trio.testing.MockClock, renewing: bool
) -> None:
    """Any other request is answered in its own form with error 34, and the connection closes.

    Metadata v1 has no field for an error: its answer is empty.
    """
    for api, version in (("api_versions", 0), ("metadata", 1), ("list_groups", 0)):
        async with secured(session_lifetime=USUAL_LIFETIME) as (_, client):
            if renewing:
                await log_in(client)
            await handshake(client)
            fields = {"topics": None} if api == "metadata" else {}
            answer = await client.request(api, version, **fields)
            assert int(getattr(answer, "error_code", 34)) == 34
            assert not getattr(answer, "brokers", ())
            assert await client.is_closed()


@pytest.mark.parametrize(
    "message",
    [b"", b"alice", b"\0alice\0wrong", b"\0bob\0alice-secret", b"bob" + PLAIN, b"\0\xff\0x"],
)
async def test_a_refused_password(autojump_clock: trio.testing.MockClock, message: bytes) -> None:
    """The answer is error 58, 0.1 s late, and the connection closes."""
    async with secured() as (_, client):
        await handshake(client)
        answer = await authenticate(client, message)
        assert int(answer.error_code) == 58
        assert answer.error_message
        assert trio.current_time() == pytest.approx(0.1)
        assert await client.is_closed()


async def test_a_login_is_small(caplog: pytest.LogCaptureFixture) -> None:
    """Before the login a request of more than 512 KiB closes the connection; afterwards not."""
    async with secured() as (broker, client):
        await handshake(client)
        await client.stream.send_all((600_000).to_bytes(4, "big"))
        assert await client.is_closed()
        assert "a request of 600000 bytes" in caplog.text
        other = await Client.open(broker)
        await log_in(other)
        await other.send("find_coordinator", 4, key_type=0, coordinator_keys=["x" * 30_000] * 20)
        assert (await other.answer("find_coordinator", 4)).coordinators


async def test_without_logins_sasl_is_an_illegal_state() -> None:
    """A plain listener answers both requests with error 34, and stays open."""
    async with connected() as (_, client):
        assert await handshake(client) == 34
        assert int((await authenticate(client)).error_code) == 34
        assert await works(client)


# The session's lifetime.


async def test_a_session_that_is_renewed_lives_on(autojump_clock: trio.testing.MockClock) -> None:
    """A client that logs in again before the end is served beyond it."""
    async with secured(session_lifetime=USUAL_LIFETIME) as (_, client):
        for _ in range(4):
            answer = await log_in(client)
            assert answer.session_lifetime.total_seconds() == USUAL_LIFETIME
            await trio.sleep(4)
            assert await works(client)


async def test_after_the_lifetime_only_a_handshake_is_taken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Any other request closes the connection without an answer; a handshake renews it."""
    for renews in (True, False):
        async with secured(session_lifetime=USUAL_LIFETIME) as (_, client):
            await log_in(client)
            await trio.sleep(6)
            if renews:
                await log_in(client)
                assert await works(client)
            else:
                await client.send("metadata", 1, topics=[])
                assert await client.is_closed()


async def test_a_second_renewal_within_a_second_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The first renewal may follow at once; the next gets 34 twice, and the session goes on."""
    async with secured(session_lifetime=USUAL_LIFETIME) as (_, client):
        await log_in(client)
        await log_in(client)
        assert await handshake(client) == 34
        assert int((await authenticate(client)).error_code) == 34
        assert await works(client)
        await trio.sleep(1)
        await log_in(client)


async def test_a_session_without_an_end_is_not_renewed() -> None:
    """Both requests are answered 34, and the session goes on."""
    async with secured() as (_, client):
        await log_in(client)
        assert await handshake(client) == 34
        assert int((await authenticate(client)).error_code) == 34
        assert await works(client)


async def test_another_principal_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    """A renewed login must be of the same user."""
    users = {"alice": "alice-secret", "bob": "b"}
    async with secured(users=users, session_lifetime=USUAL_LIFETIME) as (_, client):
        await log_in(client)
        await handshake(client)
        answer = await authenticate(client, b"\0bob\0b")
        assert int(answer.error_code) == 58
        assert "of the same user" in answer.error_message
        assert await client.is_closed()


async def test_another_mechanism_closes_without_an_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The handshake succeeds, and the next message ends the connection."""
    async with secured(session_lifetime=USUAL_LIFETIME, mechanisms=ALL) as (_, client):
        await log_in_by_scram(client, SaslMechanism.SCRAM_SHA_256)
        assert await handshake(client, "PLAIN") == 0
        await client.send("sasl_authenticate", 2, auth_bytes=PLAIN)
        assert await client.is_closed()


async def test_refused_credentials_when_renewing_close(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A user whose password was changed is refused at the next login, not before."""
    async with secured(session_lifetime=USUAL_LIFETIME) as (broker, client):
        await log_in(client)
        broker.cluster.security.users.put("alice", "changed")
        assert await works(client)
        await handshake(client)
        assert int((await authenticate(client)).error_code) == 58
        assert await client.is_closed()
