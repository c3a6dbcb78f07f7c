"""``Login``: the messages of one SASL login, without I/O."""

from __future__ import annotations

from typing import Protocol, final


@final
class LoginRefusedError(Exception):
    """The login failed for a reason that the client sees; the text says it."""


class Login(Protocol):
    """One login by one mechanism: first the client's message, then one for each of the broker's."""

    @property
    def done(self) -> bool:
        """Whether the exchange was complete, as far as the client can know."""
        ...

    def first(self) -> bytes:
        """The client's first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The client's message after one of the broker's, or None if the exchange is over.

        Raises:
            LoginRefusedError: the broker's message refuses the login, or is malformed.
        """
        ...
