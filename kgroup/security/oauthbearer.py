"""OAUTHBEARER: a login by a bearer token.

Source: RFC 7628; KIP-255, KIP-342 (extensions).
"""

from __future__ import annotations

from typing import Final, final

from kgroup.security.credentials import Token
from kgroup.security.mechanism import LoginRefusedError

_SEPARATOR: Final = "\x01"


@final
class OauthBearerLogin:
    """One login by OAUTHBEARER; see `kgroup.security.mechanism.Login`.

    A broker that refuses the token answers without an error code, but with a text in JSON; only
    after the client has acknowledged that does it answer with the code. An empty answer means
    success.
    """

    def __init__(self, token: Token) -> None:
        self._token = token
        self._refusal = b""
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the broker accepted the token."""
        return self._done

    def first(self) -> bytes:
        """The token with its extensions."""
        fields = [f"auth=Bearer {self._token.value.reveal()}"]
        fields += [f"{name}={value}" for name, value in sorted(self._token.extensions.items())]
        body = "".join(f"{field}{_SEPARATOR}" for field in fields)
        return f"n,,{_SEPARATOR}{body}{_SEPARATOR}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """The acknowledgement of a refusal, or None after success.

        Raises:
            LoginRefusedError: the broker answered again after the refusal.
        """
        if self._refusal:
            raise LoginRefusedError(self.refusal())
        if not challenge:
            self._done = True
            return None
        self._refusal = challenge
        return _SEPARATOR.encode()

    def refusal(self) -> str:
        """What is known of the broker's reason: it does not say whether the token had expired."""
        left = self._token.lifetime
        state = f"it expired {-left:.0f} s ago"
        if left > 0:
            state = f"it is valid for {left:.0f} s: check its issuer, audience and scope"
        reason = self._token.value.hidden_in(self._refusal.decode(errors="replace"))
        return f"the broker refused the token ({reason:.200}); by the client's clock {state}"
