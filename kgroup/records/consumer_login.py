"""``ConsumerLogin``: what a Consumer logs in with, from the same ``Logins`` as the control plane.

librdkafka has its own ideas of when to log in. It asks for a token by a callback in a thread of its
own, at 80 % of a token's lifetime, and 10 s after that callback has failed; the callback returns
the token that was looked up last, and so never waits. User name and password are settings of the
Consumer, and change by ``set_sasl_credentials``; it uses them for new connections.

``Consumer(...)`` sleeps for a whole second if it has a token callback, and for ten seconds if there
is no token yet; then it raises, if it has an error callback too. So the thread waits for the token
before it makes the first Consumer, and the member does not wait for the thread: it joins meanwhile.
A later Consumer that would take the place of the last one is not made while there is no token.

Source: confluent-kafka 2.16's ``wait_for_oauth_token_set``; librdkafka's ``rdkafka_sasl_*.c``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import confluent_kafka
import trio

from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.security.ssl_context_cache import RenewedFiles
from kgroup.wire.logins import Logins, logins_of
from kgroup.worker_thread import WorkerThread, post_to

FILES_INTERVAL: Final = 10.0
"""Seconds between two checks whether files of certificates have changed."""


@final
class ConsumerLogin:
    """The login of one Consumer. Made in the event loop, and used in the Consumer's thread.

    Args:
        security: the settings.
        changed: is called in the event loop when there is another token or password.
    """

    def __init__(self, security: Security, changed: Callable[[], None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._files = RenewedFiles(security)
        self._next_check = 0.0
        self._given: Token | Credentials | None = None
        self._logins: Logins | None = None
        if security.dynamic:
            self._logins = logins_of(security, WorkerThread)
            self._logins.listen(self, changed)

    def end(self) -> None:
        """Call ``changed`` no more; in the event loop."""
        if self._logins is not None:
            self._logins.forget(self)

    @property
    def ready(self) -> bool:
        """Whether a Consumer can be made: there is something to log in with."""
        return self._logins is None or self._logins.usable is not None

    def settings(self) -> dict[str, Any]:
        """The settings of a new Consumer that change from time to time."""
        if self._logins is None:
            return {}
        self._given = self._logins.usable
        if isinstance(self._given, Credentials):
            return {
                "sasl.username": self._given.username,
                "sasl.password": self._given.password.reveal(),
            }
        return {"oauth_cb": self._give_token}

    def apply(self, consumer: confluent_kafka.Consumer) -> None:
        """Give the Consumer the user name and password that were looked up last."""
        usable = None if self._logins is None else self._logins.usable
        if isinstance(usable, Credentials) and usable != self._given:
            self._given = usable
            consumer.set_sasl_credentials(usable.username, usable.password.reveal())

    def refused(self) -> None:
        """A broker refused the login: let user name and password be looked up again."""
        if self._logins is not None:
            post_to(self._token, self._logins.request_lookup)

    def files_renewed(self, now: float) -> bool:
        """Whether a Consumer has to be made again, because files have changed and can be read."""
        if now < self._next_check or not self.ready:
            return False  # what has changed by now is noticed once there is a token again
        self._next_check = now + FILES_INTERVAL
        return self._files.renewed()

    def _give_token(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """Called by librdkafka in a thread of its own."""
        del config
        usable = None if self._logins is None else self._logins.usable
        if not isinstance(usable, Token):
            # librdkafka reports it, without this text, and asks again in 10 s.
            raise LookupError("there is no valid token")
        return (
            usable.value.reveal(),
            usable.expires_at,
            usable.principal,
            dict(usable.extensions),
        )
