"""SCRAM, as Kafka speaks it: the messages of one login, without I/O.

Kafka takes user names and passwords as they are, in UTF-8, and does not normalise them by SASLprep
as RFC 5802 asks; a library that does could not log in every user.

Source: RFC 5802 and RFC 7677; Kafka's ``ScramFormatter`` and ``ScramSaslClient``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, final

from kgroup.security.credentials import Credentials
from kgroup.security.mechanism import LoginRefusedError
from kgroup.security.settings import SaslMechanism

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 200_000
"""Kafka stores passwords with 4,096 to 16,384. The event loop computes the hash, and the most takes
0.1 s. With the million that Java's client and librdkafka accept, a hostile broker that ends each
session at once could occupy half of the loop's time."""
_HASHES: Final = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_NO_CHANNEL_BINDING: Final = "n,,"


@final
class ScramLogin:
    """One login by SCRAM; see `kgroup.security.mechanism.Login`.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        credentials: the user.
        nonce: a random text of this login; by default a new one.
    """

    def __init__(
        self, mechanism: SaslMechanism, credentials: Credentials, nonce: str | None = None
    ) -> None:
        self._hash = _HASHES[mechanism]
        self._credentials = credentials
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the broker has proved that it knows the password, too."""
        return self._done

    def first(self) -> bytes:
        """The client's first message."""
        return f"{_NO_CHANNEL_BINDING}{self._first}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The client's next message, or None if there is none.

        Raises:
            LoginRefusedError: the broker's message is wrong, or does not prove that it knows the
                password.
        """
        if self._signature is None:
            return self._prove(challenge)
        self._check(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        fields = _read(challenge)
        try:
            nonce, salt, iterations = fields["r"], _decoded(fields["s"]), int(fields["i"])
        except (KeyError, ValueError) as error:
            raise LoginRefusedError("the broker's first SCRAM message is malformed") from error
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginRefusedError("the broker's SCRAM nonce does not continue the client's")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise LoginRefusedError(
                f"the broker asks for {iterations} SCRAM iterations; {LEAST_ITERATIONS} to"
                f" {MOST_ITERATIONS} are accepted"
            )
        password = self._credentials.password.reveal().encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        text = f"{self._first},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), text)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), text)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, challenge: bytes) -> None:
        fields = _read(challenge)
        if "e" in fields:
            raise LoginRefusedError(f"the broker answered {fields['e']!r:.200}")
        try:
            signature = _decoded(fields["v"])
        except (KeyError, ValueError) as error:
            raise LoginRefusedError("the broker's last SCRAM message is malformed") from error
        if not hmac.compare_digest(signature, self._signature or b""):
            raise LoginRefusedError(
                "the broker does not know the password either: it may not be the broker that it"
                " claims to be"
            )
        self._done = True

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _read(message: bytes) -> Mapping[str, str]:
    try:
        pieces = [piece.partition("=") for piece in message.decode("ascii").split(",")]
    except UnicodeDecodeError as error:
        raise LoginRefusedError("the broker's SCRAM message is not ASCII") from error
    return {name: value for name, _, value in pieces}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
