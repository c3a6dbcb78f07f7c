"""Tokens without a signature, as Kafka's OAuthBearerLoginModule makes them. For tests only.

Source: KIP-255; Kafka's ``OAuthBearerUnsecuredLoginCallbackHandler`` (its options).
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Mapping
from typing import Any, Final, final

import attrs

_CLAIMS: Final = "unsecuredLogin"
_EXTENSION: Final = "unsecuredLoginExtension_"
_STRING: Final = "unsecuredLoginStringClaim_"
_NUMBER: Final = "unsecuredLoginNumberClaim_"
_LIST: Final = "unsecuredLoginListClaim_"
_LONGEST: Final = 1e9
"""Seconds: thirty years."""


@final
@attrs.frozen
class UnsecuredToken:
    """The options of the login module; see `make`.

    Attributes:
        claims: the claims, without the times.
        principal: the user's name.
        lifetime: seconds.
        extensions: SASL extensions.
    """

    claims: Mapping[str, Any] = attrs.field(repr=False)
    principal: str
    lifetime: float
    extensions: Mapping[str, str]

    def make(self) -> tuple[str, float]:
        """A token, and when it expires."""
        now = time.time()
        expires_at = now + self.lifetime
        claims = {"iat": now, **self.claims, "exp": expires_at}
        return f"{jwt_part({'alg': 'none'})}.{jwt_part(claims)}.", expires_at


def is_unsecured(options: Mapping[str, str]) -> bool:
    """Whether the options of the login module ask for an unsecured token."""
    return any(name.startswith(_CLAIMS) for name in options)


def read_unsecured(options: Mapping[str, str]) -> UnsecuredToken:
    """Read the options of the login module.

    Raises:
        ValueError: an option is wrong; the message names it.
    """
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(_STRING):
            claims[name.removeprefix(_STRING)] = value
        elif name.startswith(_NUMBER):
            claims[name.removeprefix(_NUMBER)] = _number(name, value)
        elif name.startswith(_LIST):
            # The first character separates the items.
            claims[name.removeprefix(_LIST)] = value[1:].split(value[0]) if value else []
    lifetime = _number(
        "unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", "3600")
    )
    if not 0 < lifetime <= _LONGEST:
        raise ValueError(f"unsecuredLoginLifetimeSeconds must be over 0, and {_LONGEST:g} at most")
    principal = claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub"))
    if not isinstance(principal, str):
        raise ValueError("it has no unsecuredLoginStringClaim_sub, the user's name")
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    return UnsecuredToken(claims, principal, lifetime, extensions)


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number")
    return number


def jwt_part(value: object) -> str:
    """One of the parts of a JSON Web Token (RFC 7515)."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
