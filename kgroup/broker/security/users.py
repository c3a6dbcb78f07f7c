"""The users of an embedded cluster, and what it keeps of their passwords.

INVARIANT: no password is kept. For each SCRAM mechanism there is a salted verifier, as in Kafka;
PLAIN is checked against a salted digest.

Source: RFC 5802; KIP-554.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final, final

import attrs

from kgroup.interfaces import Random
from kgroup.security.settings import SaslMechanism

ITERATIONS: Final = 4096
"""The least that Kafka allows; a test does not need more."""
_SALT_BYTES: Final = 20
_HASHES: Final[Mapping[SaslMechanism, str]] = {
    SaslMechanism.SCRAM_SHA_256: "sha256",
    SaslMechanism.SCRAM_SHA_512: "sha512",
}


def hmac_of(mechanism: SaslMechanism, key: bytes, text: bytes) -> bytes:
    """The keyed hash of a mechanism of SCRAM."""
    return hmac.digest(key, text, _HASHES[mechanism])


same: Final = hmac.compare_digest


@final
@attrs.frozen
class Verifier:
    """What proves a password by one mechanism of SCRAM.

    Attributes:
        mechanism: the mechanism.
        salt: random.
        iterations: of the password's hash.
        stored_key: checks the client's proof.
        server_key: proves to the client that the broker knows the user.
    """

    mechanism: SaslMechanism
    salt: bytes
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, mechanism: SaslMechanism, salted: bytes, salt: bytes, iterations: int) -> Verifier:
        """The verifier of a salted password."""
        client_key = hmac_of(mechanism, salted, b"Client Key")
        stored_key = hashlib.new(_HASHES[mechanism], client_key).digest()
        server_key = hmac_of(mechanism, salted, b"Server Key")
        return cls(mechanism, salt, iterations, stored_key, server_key)

    def accepts(self, text: bytes, proof: bytes) -> bool:
        """Whether a proof for this exchange of messages was made with the password."""
        signature = hmac_of(self.mechanism, self.stored_key, text)
        if len(proof) != len(signature):
            return False
        key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        return same(hashlib.new(_HASHES[self.mechanism], key).digest(), self.stored_key)


@final
class Users:
    """Every user by name, with the verifiers of the password.

    Args:
        random: makes the salts.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._plain: dict[str, tuple[bytes, bytes]] = {}
        """Salt and digest by name."""
        self._verifiers: dict[str, dict[SaslMechanism, Verifier]] = {}

    def put(self, name: str, password: str) -> None:
        """Create a user, or change the password."""
        salt = self._salt()
        self._plain[name] = salt, hmac.digest(salt, password.encode(), "sha256")
        for mechanism, digest in _HASHES.items():
            salt = self._salt()
            salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS)
            verifier = Verifier.of(mechanism, salted, salt, ITERATIONS)
            self.put_verifier(name, verifier)

    def put_verifier(self, name: str, verifier: Verifier) -> None:
        """Create a user of SCRAM, or change what proves the password by one mechanism."""
        self._verifiers.setdefault(name, {})[verifier.mechanism] = verifier

    def remove_verifier(self, name: str, mechanism: SaslMechanism) -> None:
        """Let a user log in by this mechanism no more; the user must have been able to."""
        del self._verifiers[name][mechanism]
        if not self._verifiers[name]:
            del self._verifiers[name]

    def with_verifiers(self) -> Collection[str]:
        """The users who can log in by SCRAM."""
        return self._verifiers.keys()

    def remove(self, name: str) -> bool:
        """Remove a user; return whether there was one."""
        verifiers, plain = self._verifiers.pop(name, None), self._plain.pop(name, None)
        return verifiers is not None or plain is not None

    def has_password(self, name: str, password: str) -> bool:
        """Whether this is a user's password."""
        salt, digest = self._plain.get(name, (b"", b""))
        return same(hmac.digest(salt, password.encode(), "sha256"), digest)

    def verifier(self, name: str, mechanism: SaslMechanism) -> Verifier | None:
        """The verifier of a user, or None."""
        return self._verifiers.get(name, {}).get(mechanism)

    def _salt(self) -> bytes:
        return self._random.getrandbits(8 * _SALT_BYTES).to_bytes(_SALT_BYTES, "big")
