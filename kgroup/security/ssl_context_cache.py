"""TLS contexts of many connections, and the files of certificates that change meanwhile.

A file that is being replaced can be missing or incomplete, or a certificate can be there before its
key. So files count as renewed only once a context can be made from them; until then connections are
made with the context of before.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import final

from kgroup.errors import ConfigError
from kgroup.security.pem import is_pem, text_of
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context

State = tuple[tuple[int, int, int] | None, ...]


@final
class SslContexts:
    """Makes the contexts of one client, so that certificates can be renewed without a restart."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._files = _files_of(security)
        self._state: State = ()
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """The context for the next connection.

        Raises:
            ConfigError: as `client_context`, if there was no context before.
        """
        state = _state_of(self._files)
        if self._context is None or state != self._state:
            try:
                self._context, self._state = client_context(self._security), state
            except ConfigError:
                if self._context is None:
                    raise
        return self._context


@final
class RenewedFiles:
    """Says when files of certificates have changed since the last time, and can be read."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._files = _files_of(security)
        self._state = _state_of(self._files)

    def renewed(self) -> bool:
        """Whether they have; for any thread."""
        state = _state_of(self._files)
        if state == self._state:
            return False
        try:
            client_context(self._security)
        except ConfigError:
            return False
        self._state = state
        return True


def _files_of(security: Security) -> list[Path]:
    key = "" if security.key is None else security.key.reveal()
    places = (security.ca or "", text_of(security.certificate or ""), key)
    return [Path(one) for one in places if one and not is_pem(one)]


def _state_of(files: list[Path]) -> State:
    return tuple(map(_state, files))


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
