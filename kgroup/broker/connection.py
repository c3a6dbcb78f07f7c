"""One client's connection: requests in, answers out, one at a time and in order.

Kafka reads nothing more from a connection while a request of it waits; a parked Join holds up
what comes behind it, and so it does here. What a request means is its handler's business.

INVARIANT: nothing of a client's bytes, and no fault of a handler, ends more than this connection.
"""

from __future__ import annotations

import logging
import struct
from typing import Final, final

import trio
from kio.schema.errors import ErrorCode

from kgroup.broker.answer import Answer, fit
from kgroup.broker.apis import APIS
from kgroup.broker.call import NO_ACKS, Call, Silence
from kgroup.broker.cluster import Cluster
from kgroup.broker.faults import Faults
from kgroup.broker.handlers import versions
from kgroup.broker.node import Node
from kgroup.broker.refusals import REFUSALS
from kgroup.errors import ProtocolError
from kgroup.wire import border
from kgroup.wire.versions import API_KEYS

_LOG: Final = logging.getLogger("kgroup.broker")
_LENGTH: Final = struct.Struct(">i")
_PREFIX: Final = struct.Struct(">hhi")
_CHUNK: Final = 1 << 18
_SMALL: Final = 1 << 16
"""Up to this size an answer is joined to its length; a larger one is not copied for it."""


@final
class _ClosedError(Exception):
    """The connection ends here; the text says why."""


@final
class Connection:
    """Serves one stream until either side closes it."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        client_host: str,
        cluster: Cluster,
        node: Node,
        faults: Faults,
    ) -> None:
        self._stream = stream
        self._client_host = client_host
        self._cluster = cluster
        self._node = node
        self._faults = faults
        self._scope = trio.CancelScope()
        self._received = b""
        self._serving = False
        self._finishing = False
        self.client_id: str | None = None
        """What the client calls itself, since its first request."""

    def cut(self) -> None:
        """End it now, whatever it is doing; the client sees it closed."""
        self._scope.cancel()

    def finish(self) -> None:
        """End it once the request that is being served is answered; now, if there is none."""
        self._finishing = True
        if not self._serving:
            self.cut()

    async def serve(self) -> None:
        """Serve until the client closes, the connection is cut, or the client misbehaves.

        Cancellation: the stream is closed at once.
        """
        with self._scope:
            try:
                while True:
                    await self._serve_one()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client is gone; what it asked for has been handled
            except _ClosedError as reason:
                if str(reason):
                    _LOG.warning("connection from %s closed: %s", self._client_host, reason)
            except Exception:  # noqa: BLE001 # a defect met by one client is not the others'
                _LOG.exception("connection from %s closed: a defect", self._client_host)
        await trio.aclose_forcefully(self._stream)

    async def _serve_one(self) -> None:
        frame = await self._read_frame()
        self._serving = True
        await self._serve_request(frame)
        self._serving = False
        if self._finishing:
            raise _ClosedError("")

    async def _serve_request(self, frame: bytes) -> None:
        await self._faults.reachable()
        answer = await self._answer(frame)
        if answer is None:
            return
        await self._faults.reachable()
        length = _LENGTH.pack(len(answer))
        if len(answer) <= _SMALL:
            await self._stream.send_all(length + answer)
        else:
            await self._stream.send_all(length)
            await self._stream.send_all(answer)

    # Bytes.

    async def _read_frame(self) -> bytes:
        """The next request, its length before it; bytes that came in pieces are copied once."""
        await self._receive(_LENGTH.size)
        (length,) = _LENGTH.unpack_from(self._received)
        if not _PREFIX.size <= length <= self._cluster.settings.request_max_bytes:
            raise _ClosedError(f"a request of {length} bytes")
        end = _LENGTH.size + length
        await self._receive(end)
        frame, self._received = self._received[:end], self._received[end:]
        return frame

    async def _receive(self, size: int) -> None:
        """Have so many bytes of what the client sends."""
        have = len(self._received)
        if have >= size:
            return
        pieces = [self._received] if have else []
        while have < size:
            piece = await self._stream.receive_some(_CHUNK)
            if not piece:
                raise _ClosedError(f"{have} bytes into a request" if have else "")
            pieces.append(bytes(piece))
            have += len(piece)
        self._received = b"".join(pieces)

    async def _swallow(self) -> None:
        """Answer nothing any more: Kafka has lost a request, and what follows waits behind it."""
        self._serving = False
        if self._finishing:
            raise _ClosedError("")
        while await self._stream.receive_some(_CHUNK):
            pass
        raise _ClosedError("")

    # Requests.

    async def _answer(self, frame: bytes) -> bytes | None:
        api_key, version, correlation_id = _PREFIX.unpack_from(frame, _LENGTH.size)
        if api_key == API_KEYS["api_versions"] and not APIS["api_versions"].offers(version):
            offered = APIS["api_versions"]
            fallback = versions.fallback(offered.lowest, offered.highest)
            return self._encode("api_versions", 0, fallback, correlation_id)
        try:
            request = border.decode_request(frame, _LENGTH.size)
        except border.UnknownRequestError as error:
            raise _ClosedError(str(error)) from error
        except ProtocolError as error:
            raise _ClosedError(str(error)) from error
        self.client_id = request.client_id
        call = Call(
            cluster=self._cluster,
            node=self._node,
            api=request.api,
            version=request.version,
            request=request.entity,
            client_id=request.client_id or "",
            client_host=self._client_host,
        )
        answer = await self._handle(call)
        if isinstance(answer, Silence):
            await self._swallow()
        if answer is None or isinstance(answer, Silence):
            return None
        return self._encode(call.api, call.version, answer, correlation_id)

    async def _handle(self, call: Call) -> Answer | Silence | None:
        api = APIS.get(call.api)
        if api is None:
            raise _ClosedError(f"{call.api} is not offered")
        refuse = REFUSALS[call.api]
        if not api.offers(call.version):
            return refuse(call.request, ErrorCode.unsupported_version)
        delay, error_code = self._faults.strike(call.api, call.request)
        if delay:
            await trio.sleep(delay)
        if error_code is not None:
            if getattr(call.request, "acks", None) == NO_ACKS:
                raise _ClosedError(f"an injected error {error_code}, and no answer is wanted")
            return refuse(call.request, error_code)
        try:
            return await api.handler(call)
        except ConnectionAbortedError as error:
            raise _ClosedError(str(error)) from error
        except Exception:  # noqa: BLE001 # Kafka, too, answers a defect with this code
            _LOG.exception("%s v%d: a defect", call.api, call.version)
            return refuse(call.request, ErrorCode.unknown_server_error)

    def _encode(self, api: str, version: int, answer: Answer, correlation_id: int) -> bytes:
        return border.encode_response(api, version, fit(api, version, answer), correlation_id)
