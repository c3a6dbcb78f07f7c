"""``SslContexts``: one TLS context for many connections, made again when its files have changed.

If the changed files cannot be read, the last context is used: they may be half written, and an
accident with a renewal should not end groups whose certificates are still valid.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import final

from kgroup.errors import ConfigError
from kgroup.security.settings import PEM, Security
from kgroup.security.ssl_contexts import client_context


@final
class SslContexts:
    """Makes the contexts of one client, so that certificates can be renewed without a restart."""

    def __init__(self, security: Security) -> None:
        self._security = security
        key = "" if security.key is None else security.key.reveal()
        places = (security.ca or "", security.certificate or "", key)
        self._files = [Path(one) for one in places if one and not one.lstrip().startswith(PEM)]
        self._state: object = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """The context for the next connection.

        Raises:
            ConfigError: as `client_context`, for the first connection.
        """
        state = [_state(file) for file in self._files]
        if self._context is not None and state == self._state:
            return self._context
        try:
            self._context, self._state = client_context(self._security), state
        except ConfigError:
            if self._context is None:
                raise
        return self._context


def _state(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
