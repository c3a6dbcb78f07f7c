"""PLAIN: user name and password in one message (RFC 4616). Use it over TLS only."""

from __future__ import annotations

from typing import final

from kgroup.security.credentials import Credentials


@final
class PlainLogin:
    """One login by PLAIN; see `kgroup.security.mechanism.Login`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the broker has answered; it answers nothing but an error code."""
        return self._done

    def first(self) -> bytes:
        """The only message: no authorization id, the user, the password."""
        user, password = self._credentials.username, self._credentials.password.reveal()
        return f"\0{user}\0{password}".encode()

    def answer(self, challenge: bytes) -> None:
        """Nothing follows, whatever the broker adds to its answer."""
        del challenge
        self._done = True
