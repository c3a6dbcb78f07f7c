"""``LoginSession``: the login of one connection, from its first request to its last.

The table of states is in ``login_states``; here are the clock, the session's lifetime, and the
answers to SaslHandshake and SaslAuthenticate.

Source: Kafka's ``SaslServerAuthenticator`` (``ReauthInfo``), KIP-152, KIP-368.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, final

from kgroup.broker.security.login_states import LoginState, Step, step_of
from kgroup.broker.security.mechanisms import Challenge, RefusedError, ServerLogin
from kgroup.broker.security.state import SecurityState
from kgroup.error_codes import ErrorCode
from kgroup.security.settings import SaslMechanism

MOST_BYTES: Final = 512 * 1024
"""The largest request before and during a login: the default of sasl.server.max.receive.size."""
_BETWEEN_LOGINS: Final = 1.0
"""Seconds that must pass after a login was renewed before the next handshake renews it again."""
_FIRST_RENEWAL: Final = -math.inf


@final
class LoginSession:
    """The login of one connection.

    Attributes:
        user: the user who is logged in, or None.
        framed: whether the messages of the login that is going on come in requests.

    Args:
        security: the users and settings.
    """

    def __init__(self, security: SecurityState) -> None:
        self._security = security
        self._state = LoginState.BEFORE
        self._mechanism: SaslMechanism | None = None
        self._requested: SaslMechanism | None = None
        self._login: ServerLogin | None = None
        self._ends_at = math.inf
        self._renewed_at = _FIRST_RENEWAL
        self.user: str | None = None
        self.framed = True

    @property
    def logging_in(self) -> bool:
        """Whether a login is going on or has to come first: requests must be small then."""
        return self._state is not LoginState.AUTHENTICATED

    @property
    def ended(self) -> bool:
        """Whether the login failed: the connection closes after the present answer."""
        return self._state is LoginState.ENDED

    def step(self, api_key: int, now: float) -> Step:
        """What happens to a request; ``now`` is trio's time."""
        return step_of(
            self._state, api_key, expired=now > self._ends_at, renews=self._may_renew(now)
        )

    def versions_answered(self) -> None:
        """ApiVersions has succeeded: before the login that is allowed once."""
        if self._state is LoginState.BEFORE:
            self._state = LoginState.VERSIONED

    def end(self) -> None:
        """Close the connection after the present answer."""
        self._state = LoginState.ENDED

    def handshake(
        self, mechanism: str, now: float, *, framed: bool = True
    ) -> Mapping[str, Any] | None:
        """Answer SaslHandshake; it begins a login, or fails; None closes without an answer.

        Args:
            mechanism: the name that the client chose.
            now: trio's time.
            framed: whether the client's messages come in requests.
        """
        enabled = self._security.mechanisms
        names = [one.value for one in enabled]
        if self._state is LoginState.AUTHENTICATED and not self._may_renew(now):
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()}
        renews = self._state is LoginState.AUTHENTICATED
        if mechanism not in names:
            self.end()
            if renews:
                return None
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": names}
        self._requested = SaslMechanism(mechanism)
        self._login = self._security.begin_login(self._requested)
        self.framed = framed
        self._state = LoginState.RENEWING if renews else LoginState.CHOSEN
        return {"error_code": ErrorCode.NONE, "mechanisms": names}

    def authenticate(self, message: bytes, now: float) -> Mapping[str, Any] | None:
        """Answer SaslAuthenticate; None closes the connection without an answer."""
        if self._state is LoginState.AUTHENTICATED or self._login is None:
            return _failure(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate without a SaslHandshake before it",
            )
        if self.user is not None and self._requested is not self._mechanism:
            self.end()
            return None  # Kafka accepts the handshake, and closes here
        try:
            challenge = self._login.answer(message)
            if challenge.user is not None:
                self._check_same_user(challenge.user)
        except RefusedError as error:
            self.end()
            return _failure(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        lifetime = 0.0 if challenge.user is None else self._begin(challenge, now)
        if challenge.user is None and self.user is None:
            self._state = LoginState.EXCHANGING
        return {
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "auth_bytes": challenge.data,
            "session_lifetime": timedelta(milliseconds=int(lifetime * 1000)),
        }

    def _may_renew(self, now: float) -> bool:
        return self._ends_at != math.inf and now - self._renewed_at >= _BETWEEN_LOGINS

    def _check_same_user(self, user: str) -> None:
        if self.user not in (None, user):
            raise RefusedError(
                f"a renewed login must be of the same user: User:{self.user}, not User:{user}"
            )

    def _begin(self, challenge: Challenge, now: float) -> float:
        """Begin the session of a user; return its lifetime in seconds, 0 for no end."""
        if self.user is not None:
            self._renewed_at = now
        self.user, self._mechanism, self._login = challenge.user, self._requested, None
        self._state, self.framed = LoginState.AUTHENTICATED, True
        lifetime = min(
            self._security.session_lifetime or math.inf,
            challenge.expires_at - self._security.seconds_since_1970(),
        )
        self._ends_at = now + lifetime
        return 0.0 if lifetime == math.inf else max(0.0, lifetime)


def _failure(code: ErrorCode, message: str) -> Mapping[str, Any]:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}
