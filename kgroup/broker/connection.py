"""One client's connection: requests in, responses out, one at a time and in order.

As in Kafka, nothing more is read from a connection while one of its requests waits: a parked Join
holds up the requests behind it. What a request means is up to its handler.

A client may send anything, send it slowly, and never read its responses. So its bytes in flight are
counted (``kgroup.broker.bytes_in_flight``), its time without a request is limited
(``kgroup.broker.idle_connections``), long work yields to other requests
(``kgroup.broker.time_slices``), and log lines are few (``kgroup.broker.bad_connections``).

INVARIANT: neither a client's bytes nor a fault of a handler ends more than this connection.
"""

from __future__ import annotations

import struct
from typing import Final, final

import trio

from kgroup.broker.apis import APIS
from kgroup.broker.authorization import authorized
from kgroup.broker.bad_connections import BadConnections
from kgroup.broker.bytes_in_flight import BytesInFlight
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.faults import InjectedFaults
from kgroup.broker.handlers import sasl, versions
from kgroup.broker.idle_connections import IdleClients
from kgroup.broker.node import Node
from kgroup.broker.request_context import NO_ACKS, NoResponse, RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields, fit_response, fit_response_in_slices
from kgroup.broker.security import session
from kgroup.broker.security.login_states import Step
from kgroup.broker.security.settings import ANONYMOUS
from kgroup.broker.security.tls import ServerTls, certified_user
from kgroup.broker.time_slices import FREE, Work
from kgroup.error_codes import ErrorCode
from kgroup.errors import ProtocolError
from kgroup.wire import codec
from kgroup.wire.versions import API_KEYS

_LENGTH: Final = struct.Struct(">i")
_PREFIX: Final = struct.Struct(">hhi")
_CHUNK: Final = 1 << 18
_COUNTED: Final = 1 << 12
"""From this size on, the bytes of an incomplete request, and those behind the request that is being
served, are in flight: a client can have many connections. A request that is being served is from
`_CHUNK` on, since the JoinGroup of an honest member waits for long."""
_KEPT: Final = 1 << 12
"""A piece of a request that is smaller is joined to the one before: as an object of its own, a byte
takes fifty."""
_LONG: Final = 1 << 14
"""A request of this size or more is decoded as long work, under the lock of the time slices."""
_PIECE: Final = 1 << 20
"""A large response is sent in pieces of this size: a client that reads it slowly is not idle."""
_TLS_TIMEOUT: Final = 10.0
"""Seconds that a client has for the TLS handshake."""
_SMALL: Final = 1 << 16
"""Up to this size a response is joined to its length; a larger one is sent without a copy."""


@final
class _ClosedError(Exception):
    """The connection ends now; the text says why, if it is worth a log line."""


@final
class ClientConnection:
    """Serves one stream until either side closes it."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        client_host: str,
        cluster: ClusterState,
        node: Node,
        faults: InjectedFaults,
        idle_clients: IdleClients | None = None,
        bytes_in_flight: BytesInFlight | None = None,
        bad_connections: BadConnections | None = None,
    ) -> None:
        self._stream = stream
        self._client_host = client_host
        self._cluster = cluster
        self._node = node
        self._faults = faults
        self._idle_clients = idle_clients or IdleClients(None)
        self._bytes_in_flight = bytes_in_flight or BytesInFlight(cluster.settings.queued_max_bytes)
        self._bad_connections = bad_connections or BadConnections()
        self._scope = trio.CancelScope()
        self._received = b""
        self._at = 0
        """How many of the received bytes are consumed."""
        self._serving = False
        self._finishing = False
        security = cluster.security
        self._tls = security.tls
        self._certified = ANONYMOUS
        """The user of the client's certificate."""
        self._login = session.LoginSession(security) if security.logs_in else None
        self.client_id: str | None = None
        """The client id of its first request; None before."""

    @property
    def user(self) -> str:
        """The name of its user."""
        if self._login is not None:
            return self._login.user or ANONYMOUS
        return self._certified

    def cut(self) -> None:
        """End the connection now, whatever it is doing; the client sees it closed."""
        self._scope.cancel()

    def finish(self) -> None:
        """End the connection after the request that is being served; now, if there is none."""
        self._finishing = True
        if not self._serving:
            self.cut()

    async def serve(self) -> None:
        """Serve until the client closes, the connection is cut, or the client misbehaves.

        Cancellation: the stream is closed at once.
        """
        with self._scope:
            try:
                if self._tls is not None:
                    await self._encrypt(self._tls)
                while True:
                    await self._serve_one()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client is gone; its request has been handled
            except _ClosedError as reason:
                if str(reason):
                    self._bad_connections.report(self._client_host, str(reason))
            # A defect must not reach the connections of other clients.
            except Exception as error:  # noqa: BLE001
                during = f"connection from {self._client_host} closed"
                self._cluster.internal_errors.record(during, error)
            finally:
                self._idle_clients.forget(self)
                self._bytes_in_flight.release(self)
        await trio.aclose_forcefully(self._stream)

    async def _encrypt(self, tls: ServerTls) -> None:
        """Make the TLS handshake; the client counts as idle meanwhile."""
        self._idle_clients.touch(self)
        encrypted = trio.SSLStream(
            self._stream, tls.context, server_side=True, https_compatible=True
        )
        with trio.move_on_after(_TLS_TIMEOUT) as scope:
            try:
                await encrypted.do_handshake()
            except trio.BrokenResourceError as error:
                raise _ClosedError(f"the TLS handshake failed: {error.__cause__}") from error
        if scope.cancelled_caught:
            raise _ClosedError(f"no TLS handshake within {_TLS_TIMEOUT:.0f} s")
        self._certified = certified_user(encrypted.getpeercert())
        self._stream = encrypted

    async def _serve_one(self) -> None:
        self._idle_clients.touch(self)
        frame = await self._read_frame()
        self._idle_clients.forget(self)
        self._serving = True
        await self._serve_request(frame)
        self._serving = False
        if self._finishing:
            raise _ClosedError("")

    async def _serve_request(self, frame: bytes) -> None:
        await self._faults.wait_reachable()
        work = self._cluster.time_slices.work(self._cluster.settings.answer_max_items)
        try:
            answer = await self._answer(frame, work)
        finally:
            work.release()
        self._bytes_in_flight.release(self)
        if answer is None:
            await trio.lowlevel.checkpoint()  # a client that wants no responses must not run alone
            return
        await self._faults.wait_reachable()
        await self._send(answer)

    async def _send(self, answer: bytes) -> None:
        """Send a response; while it is unread, the client is idle and its bytes are in flight."""
        length = _LENGTH.pack(len(answer))
        self._idle_clients.touch(self)
        if len(answer) <= _SMALL:
            await self._stream.send_all(length + answer)
            return
        self._bytes_in_flight.hold(self, len(answer))
        await self._stream.send_all(length)
        with memoryview(answer) as whole:
            for start in range(0, len(answer), _PIECE):
                await self._stream.send_all(whole[start : start + _PIECE])
                self._idle_clients.touch(self)
        self._bytes_in_flight.release(self)

    # Bytes.

    async def _read_frame(self) -> bytes:
        """The next request with its length in front; bytes that came in pieces are copied once."""
        await self._receive(_LENGTH.size)
        (length,) = _LENGTH.unpack_from(self._received, self._at)
        framed = self._login is None or self._login.framed
        if not (_PREFIX.size if framed else 0) <= length <= self._most_bytes():
            raise _ClosedError(f"a request of {length} bytes")
        size = _LENGTH.size + length
        await self._receive(size)
        start, self._at = self._at, self._at + size
        if start == 0 and self._at == len(self._received):
            frame, self._received, self._at = self._received, b"", 0
            return frame
        if len(self._received) >= _COUNTED:
            self._bytes_in_flight.hold(self, len(self._received))
        return self._received[start : self._at]

    def _most_bytes(self) -> int:
        """The size of the largest request; before a login it is small."""
        most = self._cluster.settings.request_max_bytes
        if self._login is not None and self._login.logging_in:
            return min(most, session.MOST_BYTES)
        return most

    async def _receive(self, size: int) -> None:
        """Receive until so many bytes are there."""
        have = len(self._received) - self._at
        if have >= size:
            return
        pieces: list[bytes | bytearray] = [self._received[self._at :]] if have else []
        while have < size:
            if have >= _COUNTED:
                self._bytes_in_flight.hold(self, have)
            piece = await self._stream.receive_some(_CHUNK)
            if not piece:
                raise _ClosedError(f"{have} bytes into a request" if have else "")
            if not have:
                self._idle_clients.touch(self)
            _add(pieces, piece)
            have += len(piece)
        if have > _CHUNK:
            self._bytes_in_flight.hold(self, have)
        else:
            self._bytes_in_flight.release(self)
        self._received, self._at = b"".join(pieces), 0

    async def _discard_requests(self) -> None:
        """Answer nothing more: Kafka drops this request, and later ones wait behind it forever."""
        self._serving = False
        self._idle_clients.touch(self)
        if self._finishing:
            raise _ClosedError("")
        while await self._stream.receive_some(_CHUNK):
            pass
        raise _ClosedError("")

    # Requests.

    async def _answer(self, frame: bytes, work: Work) -> bytes | None:
        if self._login is not None and not self._login.framed:
            return await sasl.unframed(self._login, frame[_LENGTH.size :])
        api_key, version, correlation_id = _PREFIX.unpack_from(frame, _LENGTH.size)
        step = Step.SERVE
        if self._login is not None:
            step = self._login.step(api_key, trio.current_time())
        if step is Step.CLOSE:
            raise _ClosedError(f"request {api_key} v{version} without a valid login")
        known = step is Step.REFUSE or APIS["api_versions"].offers(version)
        if api_key == API_KEYS["api_versions"] and not known:
            offered = APIS["api_versions"]
            fallback = versions.fallback(offered.lowest, offered.highest)
            return self._encode("api_versions", 0, fallback, correlation_id)
        request = await self._decoded(frame, work)
        self.client_id = request.client_id
        context = RequestContext(
            cluster=self._cluster,
            node=self._node,
            api=request.api,
            version=request.version,
            request=request.entity,
            client_id=request.client_id or "",
            client_host=self._client_host,
            user=self.user,
            login=self._login,
            work=work,
        )
        answer = await (self._refuse(context) if step is Step.REFUSE else self._handle(context))
        if self._login is not None and self._login.ended:
            self._finishing = True
        if isinstance(answer, NoResponse):
            await self._discard_requests()
        if answer is None or isinstance(answer, NoResponse):
            return None
        try:
            return await self._encode_in_slices(context, answer, correlation_id)
        # As in `_handle`: what one client has sent may be in the response to another one.
        except Exception as error:  # noqa: BLE001
            answer = self._internal_error(context, error)
            return self._encode(context.api, context.version, answer, correlation_id)

    async def _decoded(self, frame: bytes, work: Work) -> codec.RequestFrame:
        long = len(frame) >= _LONG
        if long:
            await work.acquire()
        try:
            return codec.decode_request(
                frame, _LENGTH.size, max_items=self._cluster.settings.request_max_items
            )
        except codec.UnknownRequestError as error:
            raise _ClosedError(str(error)) from error
        except ProtocolError as error:
            raise _ClosedError(str(error)) from error
        finally:
            if long:
                work.release()

    async def _refuse(self, context: RequestContext) -> ResponseFields:
        """Answer a request in the middle of a login, which ends the login and the connection."""
        if context.login is not None:
            context.login.end()
        api = APIS.get(context.api)
        if api is None or not api.offers(context.version):
            raise _ClosedError(f"{context.api} v{context.version} during a login")
        await trio.lowlevel.checkpoint()
        return ERROR_RESPONSES[context.api](context.request, ErrorCode.ILLEGAL_SASL_STATE)

    async def _handle(self, context: RequestContext) -> ResponseFields | NoResponse | None:
        api = APIS.get(context.api)
        if api is None:
            raise _ClosedError(f"{context.api} is not offered")
        error_response = ERROR_RESPONSES[context.api]
        if not api.offers(context.version):
            return error_response(context.request, ErrorCode.UNSUPPORTED_VERSION)
        delay, error_code = self._faults.apply(context.api, context.request)
        if delay:
            await trio.sleep(delay)
        if error_code is not None:
            if getattr(context.request, "acks", None) == NO_ACKS:
                raise _ClosedError(
                    f"an injected error {error_code} for a request that wants no response"
                )
            return error_response(context.request, error_code)
        try:
            return await authorized(context, api.handler)
        except ConnectionAbortedError as error:
            raise _ClosedError(str(error)) from error
        except RequestError as error:
            return error_response(context.request, error.code)
        # Kafka answers an unexpected exception with this code, too.
        except Exception as error:  # noqa: BLE001
            return self._internal_error(context, error)

    def _internal_error(self, context: RequestContext, error: Exception) -> ResponseFields:
        """Record an exception that no request should cause, and answer the request."""
        self._cluster.internal_errors.record(f"{context.api} v{context.version}", error)
        return ERROR_RESPONSES[context.api](context.request, ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _encode_in_slices(
        self, context: RequestContext, answer: ResponseFields, correlation_id: int
    ) -> bytes:
        """As ``_encode``; a long response is built in slices, so that other requests are served."""
        if context.work.items < FREE:
            return self._encode(context.api, context.version, answer, correlation_id)
        fitted = await fit_response_in_slices(context.api, context.version, answer, context.work)
        return codec.encode_response(context.api, context.version, fitted, correlation_id)

    def _encode(self, api: str, version: int, answer: ResponseFields, correlation_id: int) -> bytes:
        return codec.encode_response(
            api, version, fit_response(api, version, answer), correlation_id
        )


def _add(pieces: list[bytes | bytearray], piece: bytes | bytearray) -> None:
    """Add the next piece of a request."""
    if not pieces or len(piece) >= _KEPT:
        pieces.append(bytes(piece))
        return
    last = pieces[-1]
    if not isinstance(last, bytearray):
        last = bytearray()
        pieces.append(last)
    last += piece
