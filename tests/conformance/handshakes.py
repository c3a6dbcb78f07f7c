"""Logins at the level of requests: scenarios, and the transcripts that Apache Kafka gave to them.

A scenario is a dialogue on one connection to a listener with SASL. Its transcript has a line for
each request; passwords, nonces and texts of errors are not in it.

    python -m tests.conformance.handshakes

plays all of them on a real Kafka, which it starts, and writes ``handshakes.json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, final

import attrs
import trio

from kgroup.security.credentials import Credentials
from kgroup.security.scram import ScramLogin
from kgroup.security.settings import SaslMechanism
from kgroup.security.unsecured_token import jwt_part
from kgroup.testing.kafka import RealKafka
from kgroup.testing.secure_listener import SecureListener
from tests.conformance.golden import HERE
from tests.conformance.player import tcp
from tests.conformance.transcript import show_error
from tests.conformance.wire import Connection, Fields, NoAnswerError, Opener

GOLDEN: Final = HERE / "handshakes.json"
USERS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
LIFETIME: Final = 3.0
"""Seconds of a session where sessions end."""
LIFETIMES: Final[Mapping[str, float | None]] = {"endless": None, "short": LIFETIME}
"""The lifetime of sessions, by configuration of the broker."""
PLAIN: Final = "open"
"""The configuration whose listener has no logins."""
_DEADLINE: Final = 30.0
_MOST_REQUESTS: Final = 2
_TOO_HIGH: Final = b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00\x02a\x02b\x00"
"""ApiVersions in a version that no broker has."""


@final
class Dialogue:
    """One connection of a scenario, and what was said on it."""

    def __init__(self, connection: Connection, now: Callable[[], float]) -> None:
        self._connection = connection
        self._now = now
        self.lines: list[str] = []
        self.closed = False

    async def versions(self) -> None:
        """Request the versions of all requests."""
        await self._say("ApiVersions", "api_versions", 0, {}, show_error)

    async def handshake(self, mechanism: str, version: int = 1) -> None:
        """Choose a mechanism."""
        await self._say(
            f"SaslHandshake v{version} {mechanism}",
            "sasl_handshake",
            version,
            {"mechanism": mechanism},
            lambda answer: f"{show_error(answer)} {' '.join(sorted(answer['mechanisms']))}".strip(),
        )

    async def authenticate(self, message: bytes, what: str, version: int = 2) -> bytes:
        """Send a message of the login; returns the broker's, empty if there is none."""
        answer = await self._say(
            f"SaslAuthenticate v{version} {what}",
            "sasl_authenticate",
            version,
            {"auth_bytes": message},
            _authenticated,
        )
        return b"" if answer is None else bytes(answer["auth_bytes"])

    async def metadata(self) -> None:
        """Request the brokers, as any client does that has logged in."""
        await self._say(
            "Metadata v1",
            "metadata",
            1,
            {"topics": None},
            lambda answer: "a broker" if answer["brokers"] else "no broker",
        )

    async def list_groups(self) -> None:
        """Send a request that has a field for an error."""
        await self._say("ListGroups v0", "list_groups", 0, {}, show_error)

    async def log_in(self, user: str = "alice") -> None:
        """Log in by PLAIN."""
        await self.handshake("PLAIN")
        await self.authenticate(plain(user), f"{user} and the password")

    async def log_in_by_scram(self, mechanism: SaslMechanism, user: str, password: str) -> None:
        """Log in by SCRAM, as far as the broker lets it."""
        login = ScramLogin(mechanism, Credentials(user, password))
        await self.handshake(mechanism.value)
        answer = await self.authenticate(login.first(), f"the first message of {user}")
        if answer and (proof := login.answer(answer)) is not None:
            await self.authenticate(proof, "the proof")

    def bearer(self, lifetime: float, authorized: str = "") -> bytes:
        """A message of OAUTHBEARER with a token of alice, without a signature."""
        now = self._now()
        claims = {"sub": "alice", "iat": now - 10, "exp": now + lifetime}
        header = f"n,{f'a={authorized}' if authorized else ''},"
        token = f"{jwt_part({'alg': 'none'})}.{jwt_part(claims)}."
        return f"{header}\x01auth=Bearer {token}\x01\x01".encode()

    async def wait(self, seconds: float) -> None:
        """Say nothing for some time."""
        self.lines.append(f"({seconds:g} s pass)")
        await trio.sleep(seconds)

    async def _say(
        self, words: str, api: str, version: int, fields: Fields, show: Callable[[Fields], str]
    ) -> Fields | None:
        if self.closed:
            self.lines.append(f"{words} -> not sent")
            return None
        try:
            answer = await self._connection.request(api, version, fields, "conformance")
        except NoAnswerError as error:
            self.closed = "connection" in str(error)
            self.lines.append(f"{words} -> {'closed' if self.closed else error}")
            return None
        self.lines.append(f"{words} -> {show(answer)}")
        return answer

    async def raw(self, words: str, frame: bytes, show: Callable[[bytes], str]) -> None:
        """Send a frame as it is."""
        try:
            answer = await self._connection.exchange(frame)
        except NoAnswerError:
            self.closed = True
            self.lines.append(f"{words} -> closed")
            return
        self.lines.append(f"{words} -> {show(answer)}")


def _length(answer: bytes) -> str:
    return "a message" if answer else "an empty message"


def _authenticated(answer: Fields) -> str:
    words = [show_error(answer)]
    lifetime = answer.get("session_lifetime")
    if lifetime is not None and lifetime.total_seconds():
        words.append(f"for about {lifetime.total_seconds():.0f} s")
    message = bytes(answer["auth_bytes"])
    if message:
        words.append(message.decode() if message.startswith(b"{") else "and a message")
    return " ".join(words)


def plain(user: str, password: str | None = None, authorized: str = "") -> bytes:
    """A message of PLAIN."""
    return f"{authorized}\0{user}\0{USERS.get(user, '') if password is None else password}".encode()


Play = Callable[[Dialogue], Awaitable[None]]


@final
@attrs.frozen
class Handshake:
    """A scenario.

    Attributes:
        name: its name.
        broker: the configuration of the broker.
        play: says it.
    """

    name: str
    broker: str
    play: Play


HANDSHAKES: Final[dict[str, Handshake]] = {}


def handshake(broker: str = "endless") -> Callable[[Play], Play]:
    """Register a scenario; its docstring says what must hold."""

    def register(play: Play) -> Play:
        HANDSHAKES[play.__name__] = Handshake(play.__name__, broker, play)
        return play

    return register


@handshake()
async def a_login(d: Dialogue) -> None:
    """After versions, handshake and password the connection serves requests."""
    await d.versions()
    await d.log_in()
    await d.metadata()
    await d.versions()


@handshake("short")
async def versions_of_authenticate(d: Dialogue) -> None:
    """Version 0 reports no lifetime, and the session ends all the same."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice"), "alice and the password", version=0)
    await d.metadata()
    await d.wait(LIFETIME + 0.5)
    await d.metadata()


@handshake("short")
async def the_lifetime_is_told(d: Dialogue) -> None:
    """Version 1 reports the lifetime as version 2 does."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice"), "alice and the password", version=1)
    await d.metadata()


@handshake()
async def versions_twice(d: Dialogue) -> None:
    """ApiVersions may succeed once before the login."""
    await d.versions()
    await d.versions()


@handshake()
async def versions_after_the_handshake(d: Dialogue) -> None:
    """After the handshake only SaslAuthenticate is taken."""
    await d.handshake("PLAIN")
    await d.versions()
    await d.log_in()


@handshake()
async def versions_too_high(d: Dialogue) -> None:
    """A version that the broker does not have may be requested again and again."""
    for _ in range(_MOST_REQUESTS):
        await d.raw("ApiVersions v99", _TOO_HIGH, lambda answer: f"error {answer[5]}")
    await d.versions()
    await d.log_in()


@handshake()
async def the_first_version_of_the_handshake(d: Dialogue) -> None:
    """Version 0 is of clients whose messages have no header; SaslAuthenticate is none of them."""
    await d.handshake("PLAIN", version=0)
    await d.authenticate(plain("alice"), "alice and the password")


@handshake()
async def a_login_without_requests(d: Dialogue) -> None:
    """After version 0 of the handshake messages come as they are, and so do the answers."""
    await d.handshake("PLAIN", version=0)
    await d.raw("alice and the password, as they are", plain("alice"), _length)
    await d.metadata()


@handshake()
async def a_login_without_requests_by_scram(d: Dialogue) -> None:
    """The answer to each message is a message."""
    await d.handshake("SCRAM-SHA-256", version=0)
    first = ScramLogin(SaslMechanism.SCRAM_SHA_256, Credentials("alice", "x")).first()
    await d.raw("the first message of alice, as it is", first, _length)


@handshake()
async def a_wrong_password_without_requests(d: Dialogue) -> None:
    """There is no answer that could say so."""
    await d.handshake("PLAIN", version=0)
    await d.raw("alice and a wrong password", plain("alice", "wrong"), _length)


@handshake("short")
async def a_renewal_without_requests(d: Dialogue) -> None:
    """Whoever renews a session sends requests."""
    await d.log_in()
    await d.handshake("PLAIN", version=0)
    await d.raw("alice and the password, as they are", plain("alice"), _length)
    await d.metadata()


@handshake()
async def metadata_first(d: Dialogue) -> None:
    """Without a login nothing else is answered."""
    await d.metadata()


@handshake()
async def authenticate_first(d: Dialogue) -> None:
    """A password without a handshake is not answered."""
    await d.authenticate(plain("alice"), "alice and the password")


@handshake()
async def metadata_after_versions(d: Dialogue) -> None:
    """Versions alone are no login."""
    await d.versions()
    await d.metadata()


@handshake()
async def metadata_after_the_handshake(d: Dialogue) -> None:
    """An answer that has no field for an error is empty."""
    await d.handshake("PLAIN")
    await d.metadata()
    await d.log_in()


@handshake()
async def list_groups_after_the_handshake(d: Dialogue) -> None:
    """An answer that has a field for an error says that the state is illegal."""
    await d.handshake("PLAIN")
    await d.list_groups()
    await d.log_in()


@handshake()
async def handshake_twice(d: Dialogue) -> None:
    """The mechanism cannot be chosen again."""
    await d.handshake("PLAIN")
    await d.handshake("SCRAM-SHA-256")
    await d.metadata()


@handshake()
async def unknown_mechanism(d: Dialogue) -> None:
    """The answer has those that are enabled, and the connection closes."""
    await d.handshake("GSSAPI")
    await d.log_in()


@handshake()
async def wrong_password(d: Dialogue) -> None:
    """A refused login ends the connection."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice", "wrong"), "alice and a wrong password")
    await d.metadata()


@handshake()
async def unknown_user(d: Dialogue) -> None:
    """It is refused like a wrong password."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("carol", "x"), "carol")


@handshake()
async def empty_password(d: Dialogue) -> None:
    """It is refused like a wrong password."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice", ""), "alice without a password")


@handshake()
async def malformed_password(d: Dialogue) -> None:
    """A message that is not PLAIN's is refused."""
    await d.handshake("PLAIN")
    await d.authenticate(b"alice", "no PLAIN message")


@handshake()
async def the_own_name_as_authorization(d: Dialogue) -> None:
    """A user may act for himself."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice", authorized="alice"), "alice for alice")
    await d.metadata()


@handshake()
async def another_name_as_authorization(d: Dialogue) -> None:
    """A user may not act for another one."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice", authorized="bob"), "alice for bob")


@handshake()
async def scram_256(d: Dialogue) -> None:
    """A login by SCRAM takes two messages."""
    await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_256, "alice", "alice-secret")
    await d.metadata()


@handshake()
async def scram_512(d: Dialogue) -> None:
    """The longer hash likewise."""
    await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_512, "alice", "alice-secret")
    await d.metadata()


@handshake()
async def scram_with_a_wrong_password(d: Dialogue) -> None:
    """It is refused at the second message."""
    await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_256, "alice", "wrong")


@handshake()
async def scram_of_an_unknown_user(d: Dialogue) -> None:
    """It is refused at the first message."""
    await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_256, "carol", "x")


@handshake()
async def malformed_scram(d: Dialogue) -> None:
    """A message that is not SCRAM's is refused."""
    await d.handshake("SCRAM-SHA-256")
    await d.authenticate(b"n,,x", "no SCRAM message")


@handshake()
async def metadata_between_the_messages_of_scram(d: Dialogue) -> None:
    """Until the login is over only SaslAuthenticate is taken."""
    await d.handshake("SCRAM-SHA-256")
    first = ScramLogin(SaslMechanism.SCRAM_SHA_256, Credentials("alice", "x")).first()
    await d.authenticate(first, "the first message of alice")
    await d.metadata()
    await d.metadata()


@handshake()
async def a_token(d: Dialogue) -> None:
    """A token ends the session, whatever the broker's settings say."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(d.bearer(2.6), "a token for 2.6 s", version=0)
    await d.metadata()
    await d.wait(3.2)
    await d.metadata()


@handshake()
async def an_expired_token(d: Dialogue) -> None:
    """The refusal has no error code; the client has to confirm it."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(d.bearer(-5), "a token that has expired")
    await d.authenticate(b"\x01", "the confirmation")
    await d.metadata()


@handshake()
async def a_token_that_is_none(d: Dialogue) -> None:
    """It is refused like an expired one."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(b"n,,\x01auth=Bearer garbage\x01\x01", "no token")
    await d.authenticate(b"\x01", "the confirmation")


@handshake()
async def a_refused_token_that_is_not_confirmed(d: Dialogue) -> None:
    """Whatever follows the refusal, the login has failed."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(d.bearer(-5), "a token that has expired")
    await d.authenticate(d.bearer(60), "a token for a minute")
    await d.metadata()


@handshake()
async def malformed_token(d: Dialogue) -> None:
    """A message that is not OAUTHBEARER's is refused at once."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(b"garbage", "no OAUTHBEARER message")


@handshake()
async def a_token_for_another_user(d: Dialogue) -> None:
    """It is refused at once."""
    await d.handshake("OAUTHBEARER")
    await d.authenticate(d.bearer(60, "bob"), "a token of alice for bob")


@handshake()
async def a_session_without_an_end(d: Dialogue) -> None:
    """It is not renewed, and goes on."""
    await d.log_in()
    await d.log_in()
    await d.metadata()


@handshake("short")
async def a_renewed_session(d: Dialogue) -> None:
    """The first renewal may follow at once, the next one after a second."""
    await d.log_in()
    await d.log_in()
    await d.metadata()
    await d.wait(1.3)
    await d.log_in()
    await d.wait(2)
    await d.metadata()


@handshake("short")
async def a_renewal_within_a_second(d: Dialogue) -> None:
    """It is refused, and the session goes on."""
    await d.log_in()
    await d.log_in()
    await d.log_in()
    await d.metadata()


@handshake("short")
async def after_the_lifetime(d: Dialogue) -> None:
    """No request is answered."""
    await d.log_in()
    await d.wait(LIFETIME + 0.5)
    await d.metadata()


@handshake("short")
async def versions_after_the_lifetime(d: Dialogue) -> None:
    """ApiVersions is not answered either."""
    await d.log_in()
    await d.wait(LIFETIME + 0.5)
    await d.versions()


@handshake("short")
async def a_renewal_after_the_lifetime(d: Dialogue) -> None:
    """A handshake is still taken."""
    await d.log_in()
    await d.wait(LIFETIME + 0.5)
    await d.log_in()
    await d.metadata()


@handshake("short")
async def another_principal(d: Dialogue) -> None:
    """A session is renewed by its own user only."""
    await d.log_in()
    await d.log_in("bob")
    await d.metadata()


@handshake("short")
async def another_mechanism(d: Dialogue) -> None:
    """The handshake succeeds, and the next message ends the connection."""
    await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_256, "alice", "alice-secret")
    await d.log_in()


@handshake("short")
async def a_renewal_with_an_unknown_mechanism(d: Dialogue) -> None:
    """It ends the connection as it would before the login."""
    await d.log_in()
    await d.handshake("GSSAPI")
    await d.metadata()


@handshake("short")
async def a_renewal_with_a_wrong_password(d: Dialogue) -> None:
    """It ends the connection."""
    await d.log_in()
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice", "wrong"), "alice and a wrong password")
    await d.metadata()


@handshake("short")
async def metadata_within_a_renewal(d: Dialogue) -> None:
    """The answer is empty, and the connection ends."""
    await d.log_in()
    await d.handshake("PLAIN")
    await d.metadata()
    await d.metadata()


@handshake("short")
async def a_renewal_by_scram(d: Dialogue) -> None:
    """Both messages renew the session."""
    for _ in range(_MOST_REQUESTS):
        await d.log_in_by_scram(SaslMechanism.SCRAM_SHA_512, "alice", "alice-secret")
    await d.metadata()


@handshake(PLAIN)
async def without_logins(d: Dialogue) -> None:
    """Where there are no logins both requests are in an illegal state, and all others served."""
    await d.handshake("PLAIN")
    await d.authenticate(plain("alice"), "alice and the password")
    await d.metadata()


async def play_handshake(
    one: Handshake, open_stream: Opener, now: Callable[[], float] = time.time
) -> list[str]:
    """Play a scenario on a connection of its own; return its transcript.

    Args:
        one: the scenario.
        open_stream: connects to a broker of its configuration.
        now: the broker's time in seconds since 1970.
    """
    connection = await Connection.open(open_stream)
    dialogue = Dialogue(connection, now)
    with trio.move_on_after(_DEADLINE) as scope:
        await one.play(dialogue)
    await connection.aclose()
    return [*dialogue.lines, "!! not finished"] if scope.cancelled_caught else dialogue.lines


async def play_handshakes(names: list[str], openers: Mapping[str, Opener]) -> dict[str, list[str]]:
    """Play scenarios side by side; return their transcripts."""
    played: dict[str, list[str]] = {}

    async def keep(name: str) -> None:
        one = HANDSHAKES[name]
        played[name] = await play_handshake(one, openers[one.broker])

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(keep, name)
    return {name: played[name] for name in names}


def start_kafka(stack: ExitStack) -> dict[str, Opener]:
    """Start a Kafka with a listener for each configuration; return how to connect to each."""
    listeners = {
        name: SecureListener(USERS, tls=False, session_lifetime=lifetime, name=name.upper())
        for name, lifetime in LIFETIMES.items()
    }
    kafka = stack.enter_context(RealKafka(secure=list(listeners.values())))
    openers = {name: tcp(kafka.servers_of(listener)) for name, listener in listeners.items()}
    return {**openers, PLAIN: tcp(kafka.bootstrap_servers)}


def read_transcripts() -> dict[str, Any]:
    """The recorded transcripts by scenario."""
    transcripts: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))["handshakes"]
    return transcripts


def record(path: Path, source: str) -> None:
    """Play all scenarios on a real Kafka and write their transcripts."""
    with ExitStack() as stack:
        played = trio.run(play_handshakes, list(HANDSHAKES), start_kafka(stack))
    golden = {"recorded_from": source, "handshakes": played}
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(GOLDEN, sys.argv[1] if len(sys.argv) > 1 else "unknown")
