"""``Connection``: one connection to one broker, with correlation ids, versions and deadlines.

The caller itself sends its request and reads the response, under a lock that serves callers in
their order. There is no task that reads, so a request in a shielded scope (the final LeaveGroup)
works while everything around it is being cancelled. `kgroup.wire.broker_connection` decides when
another connection is opened.

INVARIANTS:
- a connection on which anything went wrong after the first byte of a request (cancellation, a
  deadline, a response that cannot be read) is broken and closed: a response that is left in the
  stream would be taken for that of the next request;
- before that byte nothing breaks it;
- of a request that is given up nothing more is sent: the broker would act on it late, when others
  have followed on another connection;
- all errors are `KgroupError`, except for cancellation and invalid arguments.

Source: the Kafka protocol guide; KIP-35 and KIP-511 (ApiVersions).
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, final

import trio

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import (
    BrokerError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
    UnsupportedVersionError,
)
from kgroup.interfaces import Compute, StreamOpener
from kgroup.security.credentials import Credentials, Token
from kgroup.version import VERSION
from kgroup.wire.byte_streams import MAX_FRAME, FrameStream, discard_unsent
from kgroup.wire.codec import decode_response, encode_request
from kgroup.wire.entities import LostFieldError
from kgroup.wire.host_addresses import Peer
from kgroup.wire.login import (
    NO_SESSION,
    PLAINTEXT,
    ConnectionSecurity,
    LoginRejectedError,
    SessionNotRenewedError,
)
from kgroup.wire.port_hints import NO_TLS, login_expected, unknown_port
from kgroup.wire.versions import (
    API_KEYS,
    SUPPORTED_REQUESTS,
    choose_version,
    kafka_name,
)
from kgroup.worker_thread import compute_inline

Fields = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""A request's fields, or a function that returns them for the chosen version."""

LARGE_RESPONSE: Final = 256 * 1024
"""Responses from this size on, in bytes, are decoded in a thread: 8 MB take seconds."""
LOGIN_WAIT: Final = 1.0
"""Seconds after which a refused login is tried once more, with what is looked up again."""
_LOGGING_IN: Final = "no login at"
_NEGOTIATION: Final = "api_versions"
_CLOSING: Final = 1.0
"""Seconds after which closing a stream by force is abandoned."""
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_AFTER_ID: Final = struct.Struct(">ih")
_LAST_ID: Final = 2**31 - 1


@final
class Connection:
    """An open connection that knows the versions of its broker. Made by `open`."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        transport: trio.abc.Stream,
        client_id: str | None,
        broker: str,
        max_frame: int,
        compute: Compute,
        security: ConnectionSecurity,
        renewal_timeout: float,
    ) -> None:
        self._security = security
        self._renewal_timeout = renewal_timeout
        self._session = NO_SESSION
        self._answered = False
        """Whether a request after ApiVersions was answered."""
        self._stream = stream
        self._transport = transport
        """What carries the stream: the same one, or the one below TLS."""
        self._frames = FrameStream(stream, broker, max_frame)
        self._compute = compute
        self._client_id = client_id
        self._broker = broker
        self._lock = trio.StrictFIFOLock()
        self._correlation_id = 0
        self._offered: Mapping[int, tuple[int, int]] = {}
        self._broken: str | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        opener: StreamOpener,
        host: str,
        port: int,
        *,
        client_id: str | None,
        timeout: float,  # noqa: ASYNC109 # the error says at which step it passed
        renewal_timeout: float = math.inf,
        broker: str | None = None,
        max_frame: int = MAX_FRAME,
        compute: Compute = compute_inline,
        security: ConnectionSecurity = PLAINTEXT,
        login_again: bool = True,
    ) -> Connection:
        """Open a stream, secure it, request the versions that the broker supports, and log in.

        Args:
            opener: opens the stream.
            host: the broker's host.
            port: its port.
            client_id: the client's name in the broker's quotas and logs, or None.
            timeout: seconds for all of it.
            renewal_timeout: seconds for renewing the session, if a request allows more.
            broker: the broker's name in errors; its address by default.
            max_frame: the size of the largest response, in bytes.
            compute: decodes responses of `LARGE_RESPONSE` bytes and more.
            security: makes the TLS handshake and the login.
            login_again: whether a login that was refused is tried once more.

        Raises:
            AuthenticationError: the certificates or the login were not accepted.
            ConfigError: a certificate or key cannot be read.
            ConnectionLostError: the connection could not be opened, or ended, or there is no token
                now.
            RequestTimeoutError: it took longer than `timeout`.
            ProtocolError: the other side does not speak Kafka's protocol.
            UnsupportedVersionError: there is no common version of ApiVersions.
            BrokerError: the response to ApiVersions is an error.

        Cancellation: nothing is left open.
        """
        name = broker or f"{host}:{port}"
        version = SUPPORTED_REQUESTS[_NEGOTIATION].highest
        refused: LoginRejectedError | None = None
        with trio.move_on_after(timeout) as waiting:
            while True:
                step, hint = "no connection to", _no_hint
                try:
                    transport = await opener(host, port)
                except OSError as error:
                    raise ConnectionLostError(f"no connection to {name}: {_why(error)}") from error
                peer = Peer(host, port, transport)
                step, hint = "no TLS handshake with", _no_tls
                with peer.failing(waiting.deadline):
                    stream = await security.secure(transport, host, name)
                connection = cls(
                    stream,
                    transport=transport,
                    client_id=client_id,
                    broker=name,
                    max_frame=max_frame,
                    compute=compute,
                    security=security,
                    renewal_timeout=renewal_timeout,
                )
                step, hint = "no response to ApiVersions from", connection._hint
                try:
                    with peer.failing(waiting.deadline):
                        await connection._identify(version)
                    if security.protocol.sasl:
                        if security.looks_up:
                            step = (
                                f"{security.looks_up} did not return, so that there is no login at"
                            )
                        hint = _no_hint
                        given = await security.look_up()
                        step = _LOGGING_IN
                        with peer.failing(waiting.deadline):
                            await connection._log_in(given)
                    peer.works()
                    return connection
                except LoginRejectedError as rejected:
                    peer.failed()
                    await connection.aclose()
                    left = trio.current_effective_deadline() - trio.current_time()
                    if not login_again or left < LOGIN_WAIT:
                        raise rejected.error from rejected
                    login_again, refused = False, rejected
                    await trio.sleep(LOGIN_WAIT)
                    continue
                except BaseException as error:
                    await connection.aclose()
                    if (
                        not _closed_by_peer(error)
                        or version == SUPPORTED_REQUESTS[_NEGOTIATION].lowest
                    ):
                        raise
                # Some brokers close the connection if they do not know the version.
                version = SUPPORTED_REQUESTS[_NEGOTIATION].lowest
        # Brokers delay a refusal, so that there may never be time for a second one. But it says
        # nothing about what a function of the program returns when it is called again.
        if refused is not None and (step == _LOGGING_IN or not security.looks_up):
            raise refused.error from refused
        raise RequestTimeoutError(f"{step} {name} within {timeout:.3g} s", hint=hint())

    @property
    def broken(self) -> bool:
        """Whether it failed and cannot be used again."""
        return self._broken is not None

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a request is in flight; the next one would wait for its response."""
        return self._lock.locked()

    def version(self, api: str, max_version: int | None = None) -> int:
        """Return the version in which a request would be sent.

        Raises:
            UnsupportedVersionError: there is no common version.
        """
        return choose_version(api, self._offered, self._broker, max_version)

    async def request(
        self,
        api: str,
        fields: Fields,
        *,
        timeout: float,  # noqa: ASYNC109 # the error says whether the request was sent
        max_version: int | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request and wait for its response.

        Requests of several tasks are sent one after the other, each after the response to the one
        before, in the order of the calls.

        Args:
            api: kio's name of the request, such as ``join_group``.
            fields: as in `kgroup.wire.codec.encode_request`, or a function of the version.
            timeout: seconds from the call on, including the wait for other requests.
            max_version: the highest version to choose.
            on_sent: called just before the first byte is passed to the network. From then on the
                broker may act on the request. It may shield the caller's cancel scope.

        Returns:
            kio's dataclass of the response; its version is ``.__version__``. The caller checks its
            error codes.

        Raises:
            RequestTimeoutError: no response in time. The connection is broken if ``.sent``.
            ConnectionLostError: the connection ended, or was broken or closed before.
            ProtocolError: the response cannot be read; the connection is broken.
            UnsupportedVersionError: there is no common version, or the highest one lacks a field
                that has a value in `fields`.
            ValueError: `fields` are not those of such a request; nothing was sent.

        Cancellation: it breaks the connection if a byte was sent, and otherwise changes nothing.
        """
        chosen = self.version(api, max_version)
        correlation_id, body = self._encode(api, chosen, fields)
        sent = False

        def sending() -> None:
            nonlocal sent
            if on_sent is not None:
                on_sent()
            sent = True

        with trio.move_on_after(timeout):
            await self._acquire()
            try:
                if trio.current_time() >= self._session.renew_at:
                    await self._log_in_again(api)
                response = await self._exchange(api, correlation_id, body, sending)
                return await self._decode(api, chosen, response)
            finally:
                self._lock.release()
        where = "it was sent; the broker may have acted on it" if sent else "nothing was sent"
        raise RequestTimeoutError(
            f"no response from {self._broker} to {kafka_name(api)} within {timeout:.3g} s; {where}",
            sent=sent,
        )

    async def aclose(self) -> None:
        """Close it at once; a request in flight on it fails with `ConnectionLostError`.

        Cancellation: it is closed nevertheless.
        """
        self._closed = True
        if self.busy:
            discard_unsent(self._transport)
        await trio.aclose_forcefully(self._stream)

    def __repr__(self) -> str:
        state = "busy" if self._lock.locked() else "ready"
        if self._broken is not None:
            state = f"broken: {self._broken}"
        if self._closed:
            state = "closed"
        return f"<Connection to {self._broker}, {state}>"

    async def _acquire(self) -> None:
        """Acquire the lock; if it is free, without a checkpoint, since sending is one."""
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    def _encode(self, api: str, chosen: int, fields: Fields) -> tuple[int, bytes]:
        self._correlation_id = self._correlation_id % _LAST_ID + 1
        try:
            body = encode_request(
                api,
                chosen,
                fields(chosen) if callable(fields) else fields,
                correlation_id=self._correlation_id,
                client_id=self._client_id,
            )
        except LostFieldError as error:
            if chosen == SUPPORTED_REQUESTS[api].highest:
                raise
            raise UnsupportedVersionError(
                f"{self._broker} and this request support {kafka_name(api)} up to v{chosen}:"
                f" {error}",
                kafka_name(api),
            ) from error
        return self._correlation_id, body

    async def _exchange(
        self, api: str, correlation_id: int, body: bytes, on_sent: Callable[[], None] | None = None
    ) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._broken is not None or self._closed:
            raise ConnectionLostError(f"{self!r} cannot be used; {kafka_name(api)} was not sent")
        if on_sent is not None:
            on_sent()
        # INVARIANT: until the response is complete, every way out of here breaks the connection.
        try:
            await self._frames.send(body)
            response = await self._frames.receive(SUPPORTED_REQUESTS[api].max_response)
            (received,) = _CORRELATION_ID.unpack_from(response)
            if received != correlation_id:
                raise ProtocolError(
                    f"the response of {self._broker} to {kafka_name(api)} has correlation id"
                    f" {received}, not {correlation_id}",
                    sent=True,
                )
        except trio.Cancelled:
            await self._break(f"{kafka_name(api)} was cancelled or timed out before its response")
            raise
        except BaseException as error:
            await self._break(f"{kafka_name(api)}: {error}")
            if _closed_by_peer(error) and not self._answered and api != _NEGOTIATION:
                hint = login_expected(self._security.protocol)
                raise ConnectionLostError(str(error), sent=True, hint=hint) from error
            raise
        self._answered = self._answered or api != _NEGOTIATION
        if self._frames.unread:
            # The response itself is complete, but what follows it belongs to no request.
            await self._break(
                f"{self._frames.unread} bytes followed the response to {kafka_name(api)}"
            )
        return response

    async def _decode(self, api: str, chosen: int, response: bytes) -> Any:
        try:
            read = partial(decode_response, api, chosen, response, broker=self._broker)
            if len(response) < LARGE_RESPONSE:
                _, entity = read()
            else:
                _, entity = await self._compute(read, f"kgroup-decode {kafka_name(api)}")
        except ProtocolError as error:
            await self._break(str(error))
            raise
        return entity

    async def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._frames.discard()
        discard_unsent(self._transport)
        # Shielded, so that a pending cancellation replaces neither the response nor the error.
        # Closing by force waits for nothing, unless a user's own stream does.
        with trio.move_on_after(_CLOSING, shield=True):
            await trio.aclose_forcefully(self._stream)

    async def _identify(self, version: int) -> None:
        """Negotiate; if there is no valid response, the error says what the port may be."""
        try:
            await self._negotiate(version)
        except (ConnectionLostError, ProtocolError) as error:
            hint = self._hint()
            if isinstance(error, ProtocolError):
                raise ProtocolError(str(error), sent=error.sent, hint=hint) from error
            raise ConnectionLostError(
                str(error), sent=error.sent, answer_begun=error.answer_begun, hint=hint
            ) from error

    def _hint(self) -> str:
        """What the port may be, as long as nothing was answered as a Kafka broker does."""
        return unknown_port(self._security.protocol, self._frames.beginning)

    async def _negotiate(self, version: int) -> None:
        """Request the broker's versions by ApiVersions of this version."""
        correlation_id, body = self._encode(_NEGOTIATION, version, _software_fields)
        response = await self._exchange(_NEGOTIATION, correlation_id, body)
        if _error_code_of(response) == ErrorCode.UNSUPPORTED_VERSION:
            await self._negotiate(self._lower_version(version, response))
            return
        entity = await self._decode(_NEGOTIATION, version, response)
        if entity.error_code:
            code = int(entity.error_code)
            raise BrokerError(code, code_name(code), kafka_name(_NEGOTIATION))
        # A process has many connections to few kinds of brokers.
        self._offered = _offered(
            tuple((key.api_key, key.min_version, key.max_version) for key in entity.api_keys)
        )

    async def _log_in(self, given: Token | Credentials) -> None:
        self._session = await self._security.log_in(self._send_login, self._broker, given)

    async def _log_in_again(self, api: str) -> None:
        """Renew the session before a request is sent; no other request is on its way.

        A broker takes a login also after the end of the session, but nothing else.
        """
        try:
            with trio.move_on_after(self._renewal_timeout) as waiting:
                self._session = await self._security.log_in_again(self._send_login, self._broker)
            if waiting.cancelled_caught:
                raise SessionNotRenewedError(f"no response within {self._renewal_timeout:.3g} s")
        except (TransportError, SessionNotRenewedError) as error:
            await self._break(f"the session was not renewed: {error}")
            raise ConnectionLostError(
                f"the session at {self._broker} could not be renewed ({error}); {kafka_name(api)}"
                " was not sent"
            ) from error
        except BaseException as error:
            await self._break(f"the login was not renewed: {error}")
            raise

    async def _send_login(self, api: str, fields: Mapping[str, Any]) -> Any:
        version = self.version(api)
        response = await self._exchange(api, *self._encode(api, version, fields))
        return await self._decode(api, version, response)

    def _lower_version(self, refused: int, response: bytes) -> int:
        """The version to try after UNSUPPORTED_VERSION, whose response has the form of v0."""
        lowest = SUPPORTED_REQUESTS[_NEGOTIATION].lowest
        if refused == lowest:
            raise UnsupportedVersionError(
                f"{self._broker} supports no version of ApiVersions", kafka_name(_NEGOTIATION)
            )
        try:
            _, entity = decode_response(_NEGOTIATION, 0, response)
        except ProtocolError:
            return lowest  # a response of another form is still a refusal
        offered = {key.api_key: key.max_version for key in entity.api_keys}
        highest = offered.get(API_KEYS[_NEGOTIATION], lowest)
        return highest if lowest < highest < refused else lowest


@lru_cache(maxsize=8)
def _offered(keys: tuple[tuple[int, int, int], ...]) -> Mapping[int, tuple[int, int]]:
    return MappingProxyType({api: (lowest, highest) for api, lowest, highest in keys})


def _no_hint() -> str:
    return ""


def _no_tls() -> str:
    return NO_TLS


def _closed_by_peer(error: BaseException) -> bool:
    return isinstance(error, ConnectionLostError) and not error.answer_begun


def _error_code_of(response: bytes) -> int | None:
    """The error code at the beginning of an ApiVersions response of any version."""
    if len(response) < _ERROR_AFTER_ID.size:
        return None
    number: int = _ERROR_AFTER_ID.unpack_from(response)[1]
    return number


def _software_fields(version: int) -> Mapping[str, Any]:
    """The fields of ApiVersions, which name the client from version 3 on (KIP-511)."""
    if version < 3:
        return {}
    return {"client_software_name": "kgroup", "client_software_version": VERSION}


def _why(error: OSError) -> str:
    """What the system said. trio tries each address of a host, and its own error names no cause."""
    cause = error.__cause__
    causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause or error]
    return "; ".join(dict.fromkeys(map(_system_text, causes)))


def _system_text(error: BaseException) -> str:
    """The system's words for an error, without those of the library that raised it."""
    if not isinstance(error, OSError):
        return str(error)
    # Errors of name resolution have negative numbers, for which there are no such words.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
