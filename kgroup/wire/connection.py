"""One connection to one broker: correlation, the choice of versions, deadlines.

A request and its answer are exchanged inline by the caller, under a lock that is handed on in the
order of asking. There is no reader task, so a request in a shielded scope works while everything
around it is being cancelled. When to open another connection is `kgroup.wire.broker_connection`'s
to say.

Invariants:
- a connection on which anything went wrong after the first byte of a request (cancellation, a
  deadline, an answer that cannot be read) is broken and closed: an answer left in the stream
  would be taken for the next one's;
- before that byte nothing breaks it;
- everything but cancellation and the caller's own mistakes surfaces as a `KgroupError`.

Source: the Kafka protocol guide; KIP-35 and KIP-511 (ApiVersions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any, Final, final

import trio

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import (
    BrokerError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kgroup.interfaces import Compute, StreamOpener
from kgroup.wire.codec import decode_response, encode_request
from kgroup.wire.entities import LostFieldError
from kgroup.wire.streams import MAX_FRAME, FrameStream
from kgroup.wire.versions import (
    API_KEYS,
    MAX_RESPONSE_BYTES,
    SUPPORTED_VERSIONS,
    choose_version,
    kafka_name,
)
from kgroup.worker_thread import compute_inline

Fields = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
"""A request's fields, or a function that gives them for the version that was chosen."""

LARGE_RESPONSE: Final = 256 * 1024
"""Answers of so many bytes are read beside the event loop: 8 MB of them take seconds."""
_NEGOTIATION: Final = "api_versions"
_CLOSING: Final = 1.0
"""Seconds that a stream gets to be closed by force."""
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_AFTER_ID: Final = struct.Struct(">ih")
_LAST_ID: Final = 2**31 - 1


@final
class Connection:
    """An open connection that knows which versions its broker speaks. Made by `open`."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        client_id: str | None,
        broker: str,
        max_frame: int,
        compute: Compute,
    ) -> None:
        self._stream = stream
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
        timeout: float,  # noqa: ASYNC109 # its passing is an error that says at which step
        broker: str | None = None,
        max_frame: int = MAX_FRAME,
        compute: Compute = compute_inline,
    ) -> Connection:
        """Open a stream and learn the versions that the broker speaks.

        Args:
            opener: opens the stream.
            host: the broker's host.
            port: its port.
            client_id: what the broker's quotas and logs call this client, or None.
            timeout: seconds for all of it.
            broker: how errors name the broker; its address by default.
            max_frame: the longest answer that is read, in bytes.
            compute: reads answers of `LARGE_RESPONSE` bytes and more.

        Raises:
            ConnectionLostError: there is no connection, or it ended.
            RequestTimeoutError: it took longer than `timeout`.
            ProtocolError: what answers does not speak Kafka's protocol.
            UnsupportedVersionError: there is no common version of ApiVersions.
            BrokerError: the broker answered ApiVersions with an error.

        Cancellation: nothing is left open.
        """
        name = broker or f"{host}:{port}"
        step = "no connection to"
        asked = SUPPORTED_VERSIONS[_NEGOTIATION].highest
        with trio.move_on_after(timeout):
            while True:
                try:
                    stream = await opener(host, port)
                except OSError as error:
                    raise ConnectionLostError(f"no connection to {name}: {error}") from error
                connection = cls(
                    stream,
                    client_id=client_id,
                    broker=name,
                    max_frame=max_frame,
                    compute=compute,
                )
                step = "no answer to ApiVersions from"
                try:
                    await connection._negotiate(asked)
                    return connection
                except BaseException as error:
                    await connection.aclose()
                    if not _hung_up(error) or asked == SUPPORTED_VERSIONS[_NEGOTIATION].lowest:
                        raise
                # Some brokers end the connection on a version that they do not know.
                asked = SUPPORTED_VERSIONS[_NEGOTIATION].lowest
        raise RequestTimeoutError(f"{step} {name} within {timeout:.3g} s")

    @property
    def broken(self) -> bool:
        """Whether something went wrong on it; it cannot be used again."""
        return self._broken is not None

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    def version(self, api: str, max_version: int | None = None) -> int:
        """The version in which a request would be sent.

        Raises:
            UnsupportedVersionError: there is no common one.
        """
        return choose_version(api, self._offered, self._broker, max_version)

    async def request(
        self,
        api: str,
        fields: Fields,
        *,
        timeout: float,  # noqa: ASYNC109 # its passing is an error that says what was sent
        max_version: int | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        """Send a request and wait for its answer.

        Requests of several tasks are exchanged one after the other, in the order of asking.

        Args:
            api: kio's name of the request, such as ``join_group``.
            fields: as in `kgroup.wire.codec.encode_request`, or a function of the version.
            timeout: seconds from the call on, the wait for other requests' answers included.
            max_version: do not choose a higher version.
            on_sent: called just before the first byte is given to the network; from then on the
                broker may act on the request. It may shield the caller's cancel scope.

        Returns:
            kio's dataclass of the answer; its version is ``.__version__``. Errors in it are the
            caller's to read.

        Raises:
            RequestTimeoutError: no answer in time. The connection is broken if ``.sent``.
            ConnectionLostError: the connection ended, or was broken or closed before.
            ProtocolError: the answer cannot be read; the connection is broken.
            UnsupportedVersionError: no common version, or the highest one that the broker
                speaks has no room for something that `fields` says.
            ValueError: `fields` are no such request; nothing was sent.

        Cancellation: before anything was sent it leaves the connection as it is; after that it
        breaks it.
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
                answer = await self._exchange(api, correlation_id, body, sending)
                return await self._decode(api, chosen, answer)
            finally:
                self._lock.release()
        where = "it was sent and may have been acted on" if sent else "nothing was sent"
        raise RequestTimeoutError(
            f"no answer from {self._broker} to {kafka_name(api)} within {timeout:.3g} s; {where}",
            sent=sent,
        )

    async def aclose(self) -> None:
        """Close it at once; a request in flight on it fails with `ConnectionLostError`.

        Cancellation: it is closed nevertheless.
        """
        self._closed = True
        await trio.aclose_forcefully(self._stream)

    def __repr__(self) -> str:
        state = "busy" if self._lock.locked() else "ready"
        if self._broken is not None:
            state = f"broken: {self._broken}"
        if self._closed:
            state = "closed"
        return f"<Connection to {self._broker}, {state}>"

    async def _acquire(self) -> None:
        """Take the lock; where it is free, without a checkpoint: sending is one."""
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
            if chosen == SUPPORTED_VERSIONS[api].highest:
                raise
            raise UnsupportedVersionError(
                f"{self._broker} and this request share {kafka_name(api)} up to v{chosen}: {error}"
            ) from error
        return self._correlation_id, body

    async def _exchange(
        self, api: str, correlation_id: int, body: bytes, on_sent: Callable[[], None]
    ) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._broken is not None or self._closed:
            raise ConnectionLostError(f"{self!r} cannot be used; {kafka_name(api)} was not sent")
        on_sent()
        # INVARIANT: from here to the whole answer every way out breaks the connection.
        try:
            await self._frames.send(body)
            answer = await self._frames.receive(MAX_RESPONSE_BYTES[api])
            (answered,) = _CORRELATION_ID.unpack_from(answer)
            if answered != correlation_id:
                raise ProtocolError(
                    f"{self._broker} answered {kafka_name(api)} (correlation id {correlation_id})"
                    f" with correlation id {answered}",
                    sent=True,
                )
        except trio.Cancelled:
            await self._break(f"{kafka_name(api)} was cancelled or timed out before its answer")
            raise
        except BaseException as error:
            await self._break(f"{kafka_name(api)}: {error}")
            raise
        if self._frames.unread:
            # The answer itself is whole; what follows it was not asked for.
            await self._break(
                f"{self._frames.unread} bytes followed the answer to {kafka_name(api)}"
            )
        return answer

    async def _decode(self, api: str, chosen: int, answer: bytes) -> Any:
        try:
            read = partial(decode_response, api, chosen, answer, broker=self._broker)
            if len(answer) < LARGE_RESPONSE:
                _, entity = read()
            else:
                _, entity = await self._compute(read, f"kgroup-decode {kafka_name(api)}")
        except ProtocolError as error:
            await self._break(str(error))
            raise
        return entity

    async def _break(self, why: str) -> None:
        self._broken = self._broken or why
        # Shielded so that a pending cancellation takes the place of neither answer nor error;
        # closing forcefully does not wait for anything, unless a program's own stream does.
        with trio.move_on_after(_CLOSING, shield=True):
            await trio.aclose_forcefully(self._stream)

    async def _negotiate(self, asked: int) -> None:
        """Learn the broker's versions, asking in this version first."""
        correlation_id, body = self._encode(_NEGOTIATION, asked, _software)
        answer = await self._exchange(_NEGOTIATION, correlation_id, body, _nothing)
        if _error_number(answer) == ErrorCode.UNSUPPORTED_VERSION:
            await self._negotiate(self._lower_version(asked, answer))
            return
        entity = await self._decode(_NEGOTIATION, asked, answer)
        if entity.error_code:
            code = int(entity.error_code)
            raise BrokerError(code, code_name(code), kafka_name(_NEGOTIATION))
        self._offered = {key.api_key: (key.min_version, key.max_version) for key in entity.api_keys}

    def _lower_version(self, refused: int, answer: bytes) -> int:
        """The version to ask in after UNSUPPORTED_VERSION, whose answer has the form of v0."""
        lowest = SUPPORTED_VERSIONS[_NEGOTIATION].lowest
        if refused == lowest:
            raise UnsupportedVersionError(f"{self._broker} refuses ApiVersions in every version")
        try:
            _, entity = decode_response(_NEGOTIATION, 0, answer)
        except ProtocolError:
            return lowest  # an answer in another form still says no
        offered = {key.api_key: key.max_version for key in entity.api_keys}
        highest = offered.get(API_KEYS[_NEGOTIATION], lowest)
        return highest if lowest < highest < refused else lowest


def _hung_up(error: BaseException) -> bool:
    return isinstance(error, ConnectionLostError) and not error.answer_begun


def _error_number(answer: bytes) -> int | None:
    """The error that every version of an ApiVersions answer begins with."""
    if len(answer) < _ERROR_AFTER_ID.size:
        return None
    number: int = _ERROR_AFTER_ID.unpack_from(answer)[1]
    return number


def _nothing() -> None:
    """What is done when ApiVersions is sent."""


def _software_version() -> str:
    try:
        return installed_version("kgroup")
    except PackageNotFoundError:
        return "unknown"


def _software(version: int) -> Mapping[str, Any]:
    """What the broker is told of its client, from version 3 on (KIP-511)."""
    if version < 3:
        return {}
    return {"client_software_name": "kgroup", "client_software_version": _SOFTWARE_VERSION}


_SOFTWARE_VERSION: Final = _software_version()
