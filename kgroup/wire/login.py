"""What a client does on a connection before its first request: TLS, and the SASL login.

`ConnectionSecurity` belongs to one member and serves all its connections. `log_in` sends the
requests of a login, on a connection that has just been opened, or again before the session's
lifetime ends.

Source: KIP-43 and KIP-152 (SaslHandshake v1, SaslAuthenticate), KIP-368 (the session's lifetime).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

import attrs
import trio

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import AuthenticationError
from kgroup.interfaces import Compute
from kgroup.security.credentials import Credentials, Token
from kgroup.security.mechanism import Login, LoginRefusedError
from kgroup.security.oauthbearer import OauthBearerLogin
from kgroup.security.plain import PlainLogin
from kgroup.security.scram import ScramLogin
from kgroup.security.secret import without_locals
from kgroup.security.settings import SaslMechanism, Security, SecurityProtocol
from kgroup.security.ssl_context_cache import SslContexts
from kgroup.wire.login_advice import CHECK_PASSWORD, no_login, use_mechanism
from kgroup.wire.logins import Logins, logins_of
from kgroup.wire.tls import open_tls
from kgroup.worker_thread import compute_inline

_HANDSHAKE: Final = "sasl_handshake"
_AUTHENTICATE: Final = "sasl_authenticate"
RENEW_AT: Final = 0.85
"""The part of a session's lifetime after which the client logs in again, as in Kafka's client."""
SHORTEST_SESSION: Final = 1.1
"""Seconds; a broker refuses a second login within one second of the first."""
_MOST_ROUNDS: Final = 10
Send = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Sends a request of a login, by kio's name and with these fields, and returns its response."""


@final
@attrs.frozen
class Session:
    """What the broker granted.

    Attributes:
        renew_at: when to log in again, by trio's clock; infinity if the session does not end.
    """

    renew_at: float


NO_SESSION: Final = Session(math.inf)


@final
class LoginRejectedError(Exception):
    """The broker does not accept what the client logs in with; what it says is in ``error``.

    Trying again can help: brokers learn of a new SCRAM user one after the other, and tokens and
    passwords change.
    """

    def __init__(self, error: AuthenticationError) -> None:
        super().__init__(str(error))
        self.error = error


@final
class SessionNotRenewedError(Exception):
    """A connection cannot continue, but another one may be opened; the text says why."""


@final
class ConnectionSecurity:
    """Secures the connections of one client.

    Args:
        security: the settings.
        compute: makes what calls the program's functions that are not async.
    """

    def __init__(
        self, security: Security, compute: Callable[[], Compute] = lambda: compute_inline
    ) -> None:
        self._security = security
        self._compute = compute
        self._contexts = SslContexts(security)
        self._logins: Logins | None = None

    @property
    def protocol(self) -> SecurityProtocol:
        """Kafka's name of the kind of listener that the client expects."""
        return self._security.protocol

    async def secure(self, stream: trio.abc.Stream, host: str, broker: str) -> trio.abc.Stream:
        """The stream to send requests on: the same one, or one inside TLS.

        Raises:
            AuthenticationError: one side does not accept the other's certificate.
            ConnectionLostError: the connection ended in the handshake.
            ConfigError: a certificate or key cannot be read.

        Cancellation: the stream is closed.
        """
        if not self._security.protocol.tls:
            return stream
        try:
            context = self._contexts.current()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return await open_tls(stream, context, host, broker)

    @property
    def looks_up(self) -> str:
        """The setting whose function `look_up` may call; empty if it calls none."""
        return self._logins_of_loop().name if self._security.dynamic else ""

    async def look_up(self) -> Token | Credentials:
        """What a new connection logs in with; see `Logins.for_new_connection`."""
        return await self._logins_of_loop().for_new_connection()

    async def log_in(self, send: Send, broker: str, given: Token | Credentials) -> Session:
        """Log in on a new connection.

        Raises:
            LoginRejectedError: the broker does not accept the token, or the user and password.
            AuthenticationError: the login failed otherwise: the broker is not the one it claims to
                be, or does not have the mechanism.
            TransportError: as `send`.

        Cancellation: the connection is of no use any more.
        """
        # Every function from here down to the socket has the messages in its variables.
        with without_locals():
            return await self._exchange(send, broker, given)

    async def _exchange(self, send: Send, broker: str, given: Token | Credentials) -> Session:
        mechanism = self._security.mechanism
        assert mechanism is not None  # Security has checked it
        login = _login(mechanism, given)
        answer = await send(_HANDSHAKE, {"mechanism": mechanism.value})
        if answer.error_code:
            raise _handshake_error(answer, mechanism, broker, self.protocol)
        message = login.first()
        lifetime = 0.0
        for _ in range(_MOST_ROUNDS):
            answer = await send(_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code:
                refused = _refused(answer, login, given, mechanism, broker)
                if refused.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                    raise refused
                self._logins_of_loop().refuse(given)
                raise LoginRejectedError(refused)
            lifetime = answer.session_lifetime.total_seconds() if answer.__version__ else 0.0
            try:
                reply = login.answer(bytes(answer.auth_bytes))
            except LoginRefusedError as error:
                raise _failed(
                    ErrorCode.SASL_AUTHENTICATION_FAILED, mechanism, broker, str(error)
                ) from error
            if reply is None:
                break
            message = reply
        if not login.done:
            raise _failed(
                ErrorCode.SASL_AUTHENTICATION_FAILED, mechanism, broker, "the exchange did not end"
            )
        if lifetime <= 0:
            return NO_SESSION
        return Session(trio.current_time() + max(SHORTEST_SESSION, lifetime * RENEW_AT))

    async def log_in_again(self, send: Send, broker: str) -> Session:
        """Renew the session of a connection; no function of the program is called for it.

        Raises:
            SessionNotRenewedError: another connection may log in: the token has expired, or the
                broker does not accept it, or the password, any more.
            AuthenticationError: as `log_in`.
            TransportError: as `send`.

        Cancellation: the connection is of no use any more.
        """
        usable = self._logins_of_loop().for_renewal()
        if usable is None:
            raise SessionNotRenewedError("the token has expired")
        try:
            return await self.log_in(send, broker, usable)
        except LoginRejectedError as error:
            raise SessionNotRenewedError(str(error.error)) from error
        except AuthenticationError as error:
            if error.code == ErrorCode.ILLEGAL_SASL_STATE:  # to the broker it is too early
                raise SessionNotRenewedError(str(error)) from error
            raise

    def _logins_of_loop(self) -> Logins:
        if self._logins is None:
            self._logins = logins_of(self._security, self._compute)
        return self._logins


PLAINTEXT: Final = ConnectionSecurity(Security())
"""For connections that are neither encrypted nor logged in."""


def _login(mechanism: SaslMechanism, given: Token | Credentials) -> Login:
    if isinstance(given, Token):
        return OauthBearerLogin(given)
    if mechanism is SaslMechanism.PLAIN:
        return PlainLogin(given)
    return ScramLogin(mechanism, given)


def _handshake_error(
    answer: Any, mechanism: SaslMechanism, broker: str, protocol: SecurityProtocol
) -> AuthenticationError:
    code = int(answer.error_code)
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        reason = no_login(protocol)
    else:
        reason = use_mechanism(", ".join(sorted(str(name) for name in answer.mechanisms)))
    return _failed(code, mechanism, broker, reason)


def _refused(
    answer: Any, login: Login, given: Token | Credentials, mechanism: SaslMechanism, broker: str
) -> AuthenticationError:
    secret = given.value if isinstance(given, Token) else given.password
    words = secret.hidden_in(str(answer.error_message or ""))
    reason = " ".join(words.split()) or "it gives no reason"
    if isinstance(login, OauthBearerLogin):
        reason = f"{reason:.200}; {login.refusal()}"
    else:
        reason = f"{reason:.200}; {CHECK_PASSWORD}"
    return _failed(int(answer.error_code), mechanism, broker, reason)


def _failed(code: int, mechanism: SaslMechanism, broker: str, why: str) -> AuthenticationError:
    name = code_name(code)
    return AuthenticationError(
        code,
        name,
        "SASL login",
        f"the login at {broker} by {mechanism.value} failed ({name}): {why}",
    )
