"""Tokens that an identity provider signed, and the keys by which a broker checks them.

Source: RFC 7515 (JWS), RFC 7517 (JWK), RFC 7518 (RS256).
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from kgroup.security.credentials import Token

_KEY: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_KEY_ID: Final = "key"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode_number(number: int) -> str:
    return _encode(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def write_keys(path: Path) -> None:
    """Write the public key as a JSON Web Key Set."""
    numbers = _KEY.public_key().public_numbers()
    key = {
        "kty": "RSA",
        "use": "sig",
        "alg": "RS256",
        "kid": _KEY_ID,
        "n": _encode_number(numbers.n),
        "e": _encode_number(numbers.e),
    }
    path.write_text(json.dumps({"keys": [key]}), encoding="utf-8")


def signed_token(username: str, audience: str, lifetime: float = 600.0) -> Token:
    """A token for a user and an audience."""
    now = time.time()
    header = {"alg": "RS256", "kid": _KEY_ID}
    claims = {"sub": username, "aud": audience, "iat": int(now), "exp": int(now + lifetime)}
    signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
    signature = _KEY.sign(signed.encode(), padding.PKCS1v15(), SHA256())
    return Token(f"{signed}.{_encode(signature)}", now + lifetime, username)
