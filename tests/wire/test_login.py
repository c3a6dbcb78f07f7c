"""The login of a connection over a scripted broker, in virtual time: once, again, and refused."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import AuthenticationError, ConnectionLostError, RequestTimeoutError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.wire.broker_connection import BrokerConnection
from kgroup.wire.login import ConnectionSecurity
from tests.wire.scripted import NO_TIME, Peer, ScriptedBroker

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}
LIFETIME = 10.0
WORD = "hunter2"
SPACED = f"{WORD} \t {WORD}"
REFUSED: dict[str, Any] = {"error_code": 58, "error_message": "Authentication failed"}


async def login(peer: Peer, lifetime: float = LIFETIME, **fields: Any) -> str:
    """Take a login, answer it, and return what the client sent."""
    handshake = await peer.request()
    assert (handshake.api, handshake.version) == ("sasl_handshake", 1)
    assert handshake.entity.mechanism in ("PLAIN", "OAUTHBEARER")
    await peer.answer(handshake, error_code=0, mechanisms=["PLAIN", "OAUTHBEARER"])
    authenticate = await peer.request()
    assert authenticate.api == "sasl_authenticate"
    answer = {"error_code": 0, "error_message": None, "auth_bytes": b"", **fields}
    await peer.answer(authenticate, session_lifetime=timedelta(seconds=lifetime), **answer)
    return bytes(authenticate.entity.auth_bytes).decode()


async def beats(peer: Peer, count: int) -> None:
    """Answer so many heartbeats."""
    for _ in range(count):
        request = await peer.request()
        assert request.api == "heartbeat", request.api
        await peer.answer(request, error_code=0, **NO_TIME)


async def one_beat(peer: Peer) -> None:
    """Take a login, answer one heartbeat, and hang up."""
    await peer.negotiate()
    await login(peer)
    await beats(peer, 1)


def connected(
    broker: ScriptedBroker, open_timeout: float = math.inf, **settings: Any
) -> BrokerConnection:
    """A connection that logs in."""
    given = {"mechanism": "PLAIN", "username": "alice", "password": "secret", **settings}
    security = ConnectionSecurity(Security(protocol="SASL_PLAINTEXT", **given))
    return BrokerConnection(
        broker.open,
        "broker",
        9092,
        client_id=None,
        open_timeout=open_timeout,
        security=security,
    )


async def beat(connection: BrokerConnection) -> None:
    """A heartbeat on it."""
    answer = await connection.request("heartbeat", HEARTBEAT, timeout=10)
    assert not answer.error_code


async def test_a_session_is_renewed_between_two_requests(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """At 85 % of its lifetime, by the same mechanism, and with no other request in between."""
    renewed: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        assert await login(peer) == "\0alice\0secret"
        began = trio.current_time()
        for _ in range(3):
            await beats(peer, 9)
            assert await login(peer) == "\0alice\0secret"
            renewed.append(trio.current_time() - began)
        await beats(peer, 1)

    broker = ScriptedBroker(nursery, script)
    connection = connected(broker)
    for _ in range(28):
        await beat(connection)
        await trio.sleep(1)
    assert broker.opened == 1
    assert [round(at) for at in renewed] == [9, 18, 27]


async def test_a_connection_that_was_idle_past_its_session_logs_in_first(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The broker takes nothing but a login by then; the request follows it."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        for _ in range(2):
            await login(peer)
            await beats(peer, 1)

    broker = ScriptedBroker(nursery, script)
    connection = connected(broker)
    await beat(connection)
    await trio.sleep(5 * LIFETIME)
    await beat(connection)
    assert broker.opened == 1


async def test_a_request_that_waits_past_the_session_is_answered(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A parked Join: nothing is sent while its response is awaited; the next request renews."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await login(peer)
        parked = await peer.request()
        await trio.sleep(2 * LIFETIME)
        await peer.answer(parked, error_code=0, **NO_TIME)
        await login(peer)
        await beats(peer, 1)

    broker = ScriptedBroker(nursery, script)
    connection = connected(broker)
    await connection.request("heartbeat", HEARTBEAT, timeout=100)
    await beat(connection)
    assert broker.opened == 1


async def test_a_very_short_session_is_renewed_once_a_second_at_most(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A broker refuses a second login within a second of the first."""
    logins: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        for _ in range(2):
            await login(peer, 0.5)
            logins.append(trio.current_time())
            await beats(peer, 12 if len(logins) == 1 else 3)

    connection = connected(ScriptedBroker(nursery, script))
    for _ in range(15):
        await beat(connection)
        await trio.sleep(0.1)
    assert logins[1] - logins[0] > 1


async def test_a_renewal_that_is_refused_moves_to_another_connection(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The password was changed: it is looked up again, and the request is sent there."""
    passwords = ["old"]
    seen: list[str] = []

    async def first(peer: Peer) -> None:
        await peer.negotiate()
        seen.append(await login(peer))
        await beats(peer, 1)
        seen.append(await login(peer, **REFUSED))

    async def second(peer: Peer) -> None:
        await peer.negotiate()
        seen.append(await login(peer))
        await beats(peer, 1)

    broker = ScriptedBroker(nursery, first, second)
    connection = connected(
        broker,
        username=None,
        password=None,
        credentials=lambda: Credentials("alice", passwords[-1]),
    )
    await beat(connection)
    passwords.append("new")
    await trio.sleep(LIFETIME)
    await beat(connection)
    assert seen == ["\0alice\0old", "\0alice\0old", "\0alice\0new"]


@pytest.mark.parametrize("refusals", [1, 2])
async def test_a_refused_login_is_tried_once_more(
    autojump_clock: MockClock, nursery: trio.Nursery, refusals: int
) -> None:
    """On another connection, a second later, with what is looked up again; then it is fatal."""
    number = 0
    seen: list[tuple[float, str]] = []

    def look_up() -> Credentials:
        nonlocal number
        number += 1
        return Credentials("alice", f"{number}")

    async def refuse(peer: Peer) -> None:
        await peer.negotiate()
        seen.append((trio.current_time(), await login(peer, **REFUSED)))

    async def accept(peer: Peer) -> None:
        await peer.negotiate()
        seen.append((trio.current_time(), await login(peer)))
        await beats(peer, 1)

    broker = ScriptedBroker(nursery, *[refuse] * refusals, accept)
    connection = connected(broker, username=None, password=None, credentials=look_up)
    if refusals == 1:
        await beat(connection)
    else:
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
            await beat(connection)
    assert [told for _, told in seen] == ["\0alice\x001", "\0alice\x002"]
    assert round(seen[1][0] - seen[0][0]) == 1


async def test_a_refusal_counts_if_there_is_no_time_for_another_one(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A broker may delay each refusal; the error is the first one, and no time-out."""

    async def refuse_late(peer: Peer) -> None:
        await peer.negotiate()
        await trio.sleep(6)
        await login(peer, **REFUSED)

    connection = connected(ScriptedBroker(nursery, refuse_late, refuse_late))
    with pytest.raises(AuthenticationError, match="Authentication failed"):
        await beat(connection)
    assert trio.current_time() == 10


async def test_a_refusal_of_what_was_known_before_does_not_count_for_what_is_looked_up(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """If there is no time to look it up, the error is a time-out, and the next attempt tries it."""
    calls: list[float] = []

    async def look_up() -> Credentials:
        calls.append(trio.current_time())
        if len(calls) == 2:
            await trio.sleep(15)
        return Credentials("alice", "secret" if len(calls) == 1 else "rotated")

    async def refuse(peer: Peer) -> None:
        await peer.negotiate()
        await login(peer, **REFUSED)

    async def negotiate(peer: Peer) -> None:
        await peer.negotiate()
        await trio.sleep_forever()

    broker = ScriptedBroker(nursery, refuse, negotiate, one_beat)
    connection = connected(broker, username=None, password=None, credentials=look_up)
    with pytest.raises(RequestTimeoutError, match=r"^Security\.credentials did not return"):
        await beat(connection)
    await beat(connection)
    assert len(calls) == 3


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_a_broker_that_repeats_the_secret(
    autojump_clock: MockClock, nursery: trio.Nursery, mechanism: str
) -> None:
    """The error shows the broker's words in one line, without the password or token."""
    words = f"nobody\nhas {'x' * 175} {SPACED if mechanism == 'PLAIN' else WORD}"

    async def refuse(peer: Peer) -> None:
        await peer.negotiate()
        await peer.answer(await peer.request(), error_code=0, mechanisms=[mechanism])
        request = await peer.request()
        if mechanism == "OAUTHBEARER":
            refusal = {
                "error_code": 0,
                "error_message": None,
                "auth_bytes": f'{{"{WORD}"}}'.encode(),
            }
            await peer.answer(request, session_lifetime=timedelta(0), **refusal)
            request = await peer.request()
        refused = {"error_code": 58, "error_message": words, "auth_bytes": b""}
        await peer.answer(request, session_lifetime=timedelta(0), **refused)

    with pytest.raises(AuthenticationError, match="nobody has xxx") as caught:
        await beat(connected(ScriptedBroker(nursery, refuse, refuse), **logging_in(mechanism)))
    assert WORD[:4] not in str(caught.value)


def logging_in(mechanism: str) -> dict[str, Any]:
    """Settings of a login by this mechanism, in which the secret is the same word."""
    if mechanism == "PLAIN":
        return {"password": SPACED}
    token = Token(WORD, time.time() + LIFETIME)
    return {
        "mechanism": mechanism,
        "username": None,
        "password": None,
        "token": lambda: token,
    }


async def test_a_function_that_does_not_return_is_named(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A login that takes too long for that reason does not blame the broker alone."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.rest()

    async def hang() -> Token:
        await trio.sleep_forever()
        raise AssertionError

    settings = {**logging_in("OAUTHBEARER"), "token": hang}
    named = "Security.token did not return, so that there is no login at broker:9092 within 10 s"
    with pytest.raises(RequestTimeoutError, match=named):
        await beat(connected(ScriptedBroker(nursery, script), **settings))


async def test_other_refusals_are_fatal_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A mechanism that the broker does not have will not be there a second later."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.answer(await peer.request(), error_code=33, mechanisms=["GSSAPI"])

    broker = ScriptedBroker(nursery, script)
    with pytest.raises(AuthenticationError, match="GSSAPI"):
        await beat(connected(broker))
    assert broker.opened == 1


async def test_an_expired_token_renews_nothing(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is left, and another one logs in with another token."""
    began = trio.current_time()
    monkeypatch.setattr(time, "time", lambda: 1000.0 + trio.current_time() - began)
    numbers = iter("12")
    seen: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        seen.append((await login(peer)).split("\x01")[1])
        await beats(peer, 1)
        await peer.rest()

    broker = ScriptedBroker(nursery, script, script)
    connection = connected(
        broker,
        mechanism="OAUTHBEARER",
        username=None,
        password=None,
        token=lambda: Token(next(numbers), time.time() + LIFETIME),
    )
    await beat(connection)
    await trio.sleep(LIFETIME)
    await beat(connection)
    assert seen == ["auth=Bearer 1", "auth=Bearer 2"]


async def test_a_broker_that_answers_34_ends_the_connection_only(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A login that the broker finds too early is no refusal of the user."""

    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await login(peer)
        await beats(peer, 1)
        await peer.answer(await peer.request(), error_code=34, mechanisms=[])

    broker = ScriptedBroker(nursery, script, one_beat)
    connection = connected(broker)
    await beat(connection)
    await trio.sleep(LIFETIME)
    await beat(connection)
    assert broker.opened == 2


async def test_a_broker_that_hangs_up_in_a_renewal_is_connected_to_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The request was not sent, so it is sent on another connection."""
    broker = ScriptedBroker(nursery, one_beat, one_beat)
    connection = connected(broker)
    await beat(connection)
    await trio.sleep(LIFETIME)
    await beat(connection)
    await trio.sleep(LIFETIME)
    with pytest.raises(ConnectionLostError):
        await beat(connection)


async def test_a_broker_that_is_silent_in_a_renewal_is_connected_to_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """``open_timeout`` limits the renewal, as it limits a login, where a request allows more."""

    async def silent(peer: Peer) -> None:
        await peer.negotiate()
        await login(peer)
        await beats(peer, 1)
        await peer.rest()

    broker = ScriptedBroker(nursery, silent, one_beat)
    connection = connected(broker, open_timeout=5)
    await beat(connection)
    await trio.sleep(LIFETIME)
    began = trio.current_time()
    await connection.request("heartbeat", HEARTBEAT, timeout=60)
    assert trio.current_time() - began == pytest.approx(5)
