"""The broker's side of each SASL mechanism: one login, without I/O.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER); Kafka's
``PlainSaslServer``, ``ScramSaslServer``, ``OAuthBearerSaslServer`` and
``OAuthBearerUnsecuredValidatorCallbackHandler``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import attrs

from kgroup import bounds
from kgroup.broker.security.users import Users, hmac_of, same
from kgroup.security.settings import SaslMechanism

_NO_CHANNEL_BINDING: Final = "n,,"
_CONTROL_A: Final = b"\x01"
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_BEARER: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_GS2: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>[^,]*),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)"
)
_FINAL: Final = re.compile(r"(?P<bare>c=biws,r=(?P<nonce>[^,]+)),p=(?P<proof>[^,]+)")
_TIME: Final = bounds.number(0, 1e12)
_SASL_NAME: Final = re.compile(r"(?:[^=,]|=2C|=3D)+")


@final
class RefusedError(Exception):
    """The login fails; the text is for the client, and does not say what was wrong about it."""


@final
@attrs.frozen
class Challenge:
    """The broker's answer to one message.

    Attributes:
        data: the bytes for the client.
        user: the user who is logged in now; None while the exchange continues.
        expires_at: when the credential ends, in seconds since 1970.
    """

    data: bytes = b""
    user: str | None = None
    expires_at: float = math.inf


class ServerLogin(Protocol):
    """One login by one mechanism."""

    def answer(self, message: bytes) -> Challenge:
        """The answer to the client's next message.

        Raises:
            RefusedError: the login fails.
        """
        ...


def _refused(mechanism: SaslMechanism) -> RefusedError:
    return RefusedError(f"the login by SASL mechanism {mechanism.value} was not accepted")


@final
class PlainServer:
    """A login by PLAIN: ``[authzid] NUL user NUL password``."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def answer(self, message: bytes) -> Challenge:
        """See `ServerLogin.answer`."""
        try:
            authzid, user, password = message.decode().split("\0")
        except ValueError as error:  # which a text that is not UTF-8 raises, too
            raise RefusedError("this is no message of SASL/PLAIN") from error
        if not (user and password) or not self._users.has_password(user, password):
            raise RefusedError("the user name or the password is wrong")
        if authzid not in ("", user):
            raise RefusedError(
                "the login asks for the rights of another user than the one who logs in"
            )
        return Challenge(user=user)


@final
class ScramServer:
    """A login by SCRAM, in two rounds.

    User names are ASCII, as in Kafka.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        users: with their verifiers.
        nonce: a random text of this login.
    """

    def __init__(self, mechanism: SaslMechanism, users: Users, nonce: str) -> None:
        self._mechanism = mechanism
        self._users = users
        self._nonce = nonce
        self._user = ""
        self._expected_nonce = ""
        self._text = ""

    def answer(self, message: bytes) -> Challenge:
        """See `ServerLogin.answer`."""
        try:
            text = message.decode("ascii")
        except UnicodeDecodeError as error:
            raise _refused(self._mechanism) from error
        return self._finish(text) if self._text else self._begin(text)

    def _begin(self, text: str) -> Challenge:
        first = _GS2.fullmatch(text)
        if first is None or not _SASL_NAME.fullmatch(first["user"]):
            raise _refused(self._mechanism)
        user = first["user"].replace("=2C", ",").replace("=3D", "=")
        verifier = self._users.verifier(user, self._mechanism)
        if verifier is None or first["authzid"] not in (None, "", user):
            raise _refused(self._mechanism)
        self._user = user
        self._expected_nonce = first["nonce"] + self._nonce
        salt = base64.b64encode(verifier.salt).decode()
        answer = f"r={self._expected_nonce},s={salt},i={verifier.iterations}"
        self._text = f"{first['bare']},{answer}"
        return Challenge(answer.encode())

    def _finish(self, text: str) -> Challenge:
        final_message = _FINAL.fullmatch(text)
        # The user may have been removed, or given another password, since the first message.
        verifier = self._users.verifier(self._user, self._mechanism)
        if final_message is None or verifier is None:
            raise _refused(self._mechanism)
        try:
            proof = base64.b64decode(final_message["proof"], validate=True)
        except binascii.Error as error:
            raise _refused(self._mechanism) from error
        whole = f"{self._text},{final_message['bare']}".encode()
        right_nonce = same(final_message["nonce"].encode(), self._expected_nonce.encode())
        if not right_nonce or not verifier.accepts(whole, proof):
            raise _refused(self._mechanism)
        signature = hmac_of(self._mechanism, verifier.server_key, whole)
        return Challenge(f"v={base64.b64encode(signature).decode()}".encode(), self._user)


@final
class OauthBearerServer:
    """A login by a token without a signature, which is valid by its own claims.

    A refused token is answered with a text in JSON and no error; the error follows once the client
    has acknowledged that. A client may also send another token then.

    Args:
        now: seconds since 1970.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._refused = False

    def answer(self, message: bytes) -> Challenge:
        """See `ServerLogin.answer`."""
        if self._refused and message == _CONTROL_A:
            raise RefusedError(_INVALID_TOKEN.decode())
        self._refused = False
        first = _BEARER.fullmatch(message)
        if first is None:
            raise _refused(SaslMechanism.OAUTHBEARER)
        pairs = dict(pair.split(b"=", 1) for pair in first["pairs"].split(_CONTROL_A) if pair)
        kind, _, token = pairs.get(b"auth", b"").partition(b" ")
        if kind.lower() != b"bearer" or not token:
            raise _refused(SaslMechanism.OAUTHBEARER)
        valid = self._claims(token.strip())
        if valid is None:
            self._refused = True
            return Challenge(_INVALID_TOKEN)
        user, expires_at = valid
        if first["authzid"] not in (None, user.encode()):
            raise _refused(SaslMechanism.OAUTHBEARER)
        return Challenge(user=user, expires_at=expires_at)

    def _claims(self, token: bytes) -> tuple[str, float] | None:
        """The user and the end of a token that is valid now."""
        header, _, rest = token.partition(b".")
        body, dot, signature = rest.partition(b".")
        if _object(header).get("alg") != "none" or not dot or signature:
            return None
        claims = _object(body)
        user = claims.get("sub")
        end: Any = claims.get("exp")
        issued: Any = claims.get("iat", 0)
        if not (isinstance(user, str) and user and bounds.text().holds(user)):
            return None
        if not (_TIME.holds(end) and _TIME.holds(issued)):
            return None
        return (user, float(end)) if issued <= self._now() < end else None


def _object(part: bytes) -> Mapping[str, Any]:
    """A part of a token: an object of JSON in base64; empty if it is anything else."""
    try:
        padded = part + b"=" * (-len(part) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
