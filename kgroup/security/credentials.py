"""``Credentials`` and ``Token``: what a client logs in with.

Source: KIP-12 (user name and password), KIP-255 and KIP-342 (tokens and their extensions).
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.init_hints import typed_init
from kgroup.security.secret import Secret, encodable, sealed, secret

SECRET: Final = bounds.Bound(
    lambda value: value.usable, "it must be a str that is not empty, without NUL"
)
"""What a secret may be."""


@final
@typed_init(Any=Any)
@sealed("password")
@attrs.frozen
class Credentials:
    """A user name and password.

    Attributes:
        username: the name; for SCRAM it must be ASCII, because brokers refuse all others.
        password: any text without NUL.
    """

    username: str = attrs.field(validator=bounds.text())
    password: Secret = attrs.field(converter=secret, validator=SECRET)


_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
EXTENSIONS: Final = bounds.Bound(
    lambda value: all(
        _EXTENSION_NAME.fullmatch(name) and name != "auth" and _EXTENSION_VALUE.fullmatch(text)
        for name, text in value.items()
    ),
    "it must be a mapping from names of ASCII letters, but not 'auth', to printable ASCII",
)
"""RFC 7628's names and values; brokers close the connection on all others."""


@final
@typed_init(Any=Any)
@sealed("value")
@attrs.frozen
class Token:
    """A bearer token of OAuth.

    Attributes:
        value: the token, as the ``Authorization`` header would carry it.
        expires_at: when it expires, in seconds since 1970.
        principal: the name of the user, which librdkafka logs; it may be empty.
        extensions: SASL extensions (KIP-342), sent with the token.
    """

    value: Secret = attrs.field(
        converter=secret,
        validator=bounds.Bound(
            lambda value: value.usable and _is_token(value.reveal()),
            "it must be a str of printable ASCII without spaces",
        ),
    )
    expires_at: float = attrs.field(validator=bounds.number(0, 1e11))
    principal: str = attrs.field(
        default="",
        validator=bounds.Bound(
            lambda value: isinstance(value, str) and "\0" not in value and encodable(value),
            "it must be a str without NUL",
        ),
    )
    extensions: Mapping[str, str] = attrs.field(factory=dict, validator=EXTENSIONS, hash=False)

    @property
    def lifetime(self) -> float:
        """Seconds until it expires, by the system's clock."""
        return self.expires_at - time.time()


CredentialsProvider = Callable[[], Credentials | Awaitable[Credentials]]
"""Looks up user name and password; it is called for each login."""
TokenProvider = Callable[[], Token | Awaitable[Token]]
"""Fetches a token; it is called before the last one expires."""


def _is_token(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)
