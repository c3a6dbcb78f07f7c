"""The states of a connection's login, and what each request does in each of them.

The table reads beside Kafka's ``SaslServerAuthenticator``: BEFORE is its INITIAL_REQUEST (and
HANDSHAKE_OR_VERSIONS_REQUEST), VERSIONED its HANDSHAKE_REQUEST, CHOSEN and EXCHANGING its
AUTHENTICATE, AUTHENTICATED its COMPLETE. A connection that logs in again (KIP-368) passes through
RENEWING, which differs from CHOSEN in that principal and mechanism must stay the same.

These are decisions without I/O and without a clock.

Source: Kafka's ``SaslServerAuthenticator``, ``Processor.processCompletedReceives``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final

from kgroup.wire.versions import API_KEYS


@final
class LoginState(enum.Enum):
    """How far the login of a connection is."""

    BEFORE = "before"
    VERSIONED = "versioned"
    CHOSEN = "chosen"
    EXCHANGING = "exchanging"
    AUTHENTICATED = "authenticated"
    RENEWING = "renewing"
    ENDED = "ended"


@final
class LoginRequest(enum.Enum):
    """The kinds of requests that a login distinguishes."""

    VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    OTHER = "any other"


@final
class Step(enum.Enum):
    """What happens to a request."""

    SERVE = "serve it"
    REFUSE = "answer it with ILLEGAL_SASL_STATE in its own form, then close"
    CLOSE = "close without an answer"


_SERVE, _REFUSE, _CLOSE = Step.SERVE, Step.REFUSE, Step.CLOSE
#: State -> what happens to each kind of request: ApiVersions, SaslHandshake, SaslAuthenticate, and
#: any other. A request that is served moves the state on if it succeeds.
_ROWS: Final[Mapping[LoginState, tuple[Step, Step, Step, Step]]] = {
    LoginState.BEFORE: (_SERVE, _SERVE, _CLOSE, _CLOSE),
    LoginState.VERSIONED: (_CLOSE, _SERVE, _CLOSE, _CLOSE),
    LoginState.CHOSEN: (_REFUSE, _REFUSE, _SERVE, _REFUSE),
    LoginState.EXCHANGING: (_REFUSE, _REFUSE, _SERVE, _REFUSE),
    LoginState.AUTHENTICATED: (_SERVE, _SERVE, _SERVE, _SERVE),
    LoginState.RENEWING: (_REFUSE, _REFUSE, _SERVE, _REFUSE),
    LoginState.ENDED: (_CLOSE, _CLOSE, _CLOSE, _CLOSE),
}
STEPS: Final[Mapping[tuple[LoginState, LoginRequest], Step]] = {
    (state, request): step
    for state, row in _ROWS.items()
    for request, step in zip(LoginRequest, row, strict=True)
}
_REQUESTS: Final[Mapping[int, LoginRequest]] = {
    API_KEYS["api_versions"]: LoginRequest.VERSIONS,
    API_KEYS["sasl_handshake"]: LoginRequest.HANDSHAKE,
    API_KEYS["sasl_authenticate"]: LoginRequest.AUTHENTICATE,
}


def step_of(state: LoginState, api_key: int, *, expired: bool, renews: bool) -> Step:
    """What happens to a request.

    Args:
        state: the connection's.
        api_key: the request's API.
        expired: whether the session's lifetime is over.
        renews: whether a SaslHandshake would begin another login now.
    """
    request = _REQUESTS.get(api_key, LoginRequest.OTHER)
    if state is LoginState.AUTHENTICATED and expired:
        return Step.SERVE if request is LoginRequest.HANDSHAKE and renews else Step.CLOSE
    return STEPS[state, request]
