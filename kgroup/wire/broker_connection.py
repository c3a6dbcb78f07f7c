"""``BrokerConnection``: the connection to one broker, opened at first use, replaced if broken.

INVARIANT: a request is sent a second time only if it cannot have been sent the first time, or if
the connection had been open before and ended before the first byte of the response. Brokers close
idle connections (``connections.max.idle.ms``), which is noticed only when something is sent. Every
other failure is the caller's decision.

INVARIANT: an error of which ``sent`` is False means that no attempt was sent.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, final

import trio

from kgroup.addresses import LONGEST_HOST
from kgroup.errors import ConnectionLostError, ProtocolError, RequestTimeoutError, TransportError
from kgroup.interfaces import Compute, StreamOpener
from kgroup.wire.byte_streams import MAX_FRAME
from kgroup.wire.connection import Connection, Fields
from kgroup.wire.login import PLAINTEXT, ConnectionSecurity
from kgroup.wire.versions import kafka_name
from kgroup.worker_thread import compute_inline

T = TypeVar("T")


@final
class InvalidResponseError(Exception):
    """A response that can be read cannot be true; the text continues "the response ..."."""


@final
class BrokerConnection:
    """One connection at a time to one address; none is opened before it is needed.

    Args:
        opener: opens streams.
        host: the broker's host.
        port: its port.
        client_id: the client's name in the broker's quotas and logs, or None.
        broker: the broker's name in errors; its address by default.
        open_timeout: seconds for opening a connection or renewing its session, also where a request
            allows more: a JoinGroup may wait for long, but not for a broker that does not respond.
        max_frame: the size of the largest response, in bytes.
        compute: does long work in a thread, for `Connection.open` and `request_value`.
        security: makes the TLS handshake and the login of each connection.
        process: the id of the process that may use it; by default the one that makes it.
    """

    def __init__(
        self,
        opener: StreamOpener,
        host: str,
        port: int,
        *,
        client_id: str | None,
        broker: str | None = None,
        open_timeout: float = math.inf,
        max_frame: int = MAX_FRAME,
        compute: Compute = compute_inline,
        security: ConnectionSecurity = PLAINTEXT,
        process: int | None = None,
    ) -> None:
        self._opener = opener
        self._address = (host, port)
        self._client_id = client_id
        # A broker may send any text as the host of another one, and errors are kept as events.
        self._broker = broker or f"{host:.{LONGEST_HOST}}:{port}"
        self._open_timeout = open_timeout
        self._max_frame = max_frame
        self._compute = compute
        self._security = security
        self._opening = trio.StrictFIFOLock()
        self._connection: Connection | None = None
        self._closed = False
        self._process = os.getpid() if process is None else process

    async def request(
        self,
        api: str,
        fields: Fields,
        *,
        timeout: float,  # noqa: ASYNC109 # the error says whether the request was sent
        max_version: int | None = None,
        on_sent: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        login_again: bool = True,
    ) -> Any:
        """Send a request and wait for its response, as `Connection.request` does.

        `timeout` includes opening the connection, which may not take longer than ``open_timeout``.
        If the request was sent, and the connection was found closed, it is sent again on another
        one: `on_lost` is called before that is opened, because no response to the first attempt can
        come any more, and `on_sent` again. `login_again` is as for `Connection.open`.

        Raises:
            TransportError: as `Connection.request` and `Connection.open`.
            UnsupportedVersionError: as `Connection.request`.
            BrokerError: as `Connection.open`.
            ValueError: as `Connection.request`.

        Cancellation: if the request was sent, its connection breaks; the next one opens another.
        """
        deadline = trio.current_time() + timeout
        request = partial(
            Connection.request, api=api, fields=fields, max_version=max_version, on_sent=on_sent
        )
        connection, reused = await self._usable(api, deadline, login_again=login_again)
        try:
            return await request(connection, timeout=_until(deadline))
        except ConnectionLostError as error:
            if error.sent and (error.answer_begun or not reused):
                raise
            in_doubt = error.failure if error.sent else None
            if error.sent and on_lost is not None:
                on_lost()
        try:
            connection, _ = await self._usable(api, deadline, login_again=login_again)
            return await request(connection, timeout=_until(deadline))
        except TransportError as error:
            if in_doubt is None or error.sent:
                raise
            # What became of the first attempt counts, also if the second one timed out.
            raise ConnectionLostError(
                f"{in_doubt}; the broker may have acted on {kafka_name(api)}, which could not be"
                f" sent again: {error.failure}",
                sent=True,
                hint=error.hint,
            ) from error

    async def request_value(
        self,
        read: Callable[[Any], T],
        api: str,
        fields: Fields,
        *,
        timeout: float,  # noqa: ASYNC109 # as in `request`
        max_version: int | None = None,
        on_sent: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        login_again: bool = True,
        long: Callable[[Any], bool] | None = None,
    ) -> T:
        """Send a request, as `request` does, and convert its response to a value.

        Args:
            read: converts the response; raises `InvalidResponseError` if it cannot be true.
            api: as in `request`.
            fields: as in `request`.
            timeout: as in `request`.
            max_version: as in `request`.
            on_sent: as in `request`.
            on_lost: as in `request`.
            login_again: as in `request`.
            long: whether the conversion of this response takes long, so that `compute` does it.

        Raises:
            ProtocolError: the response cannot be read, or cannot be true; the text names the
                broker, the request and its version. The connection is closed.
            KgroupError: as in `request`, or raised by `read`.

        Cancellation: as in `request`.
        """
        response = await self.request(
            api,
            fields,
            timeout=timeout,
            max_version=max_version,
            on_sent=on_sent,
            on_lost=on_lost,
            login_again=login_again,
        )
        try:
            if long is None or not long(response):
                return read(response)
            return await self._compute(partial(read, response), f"kgroup-read {kafka_name(api)}")
        except InvalidResponseError as error:
            await self.discard()
            raise ProtocolError(
                f"the response of {self._broker} to {kafka_name(api)} v{response.__version__}"
                f" {error}",
                sent=True,
            ) from error

    async def open(self, *, timeout: float) -> None:  # noqa: ASYNC109 # as in `request`
        """Open the connection if there is none, so that the next request is sent at once.

        Raises:
            TransportError: as `Connection.open`; the next request tries again.
            BrokerError: as `Connection.open`.

        Cancellation: a connection that is being opened is closed.
        """
        await trio.lowlevel.checkpoint()
        await self._usable("api_versions", trio.current_time() + timeout)

    @property
    def idle(self) -> bool:
        """Whether it is connected and no request is in flight, so that one can be sent at once."""
        connection = self._sound_connection()
        return connection is not None and not connection.busy and not self._closed

    @property
    def occupied(self) -> bool:
        """Whether a request is in flight, or it is being opened, so that another would wait."""
        connection = self._connection
        return self._opening.locked() or (connection is not None and connection.busy)

    async def discard(self) -> None:
        """Close the connection; the next request opens another.

        A request in flight on it fails with `ConnectionLostError`.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            await trio.lowlevel.checkpoint()
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close it; later requests raise `ConnectionLostError`."""
        self._closed = True
        await self.discard()

    def __repr__(self) -> str:
        state = repr(self._connection) if self._connection is not None else "not connected"
        return f"<BrokerConnection to {self._broker}, {'closed' if self._closed else state}>"

    async def _usable(
        self, api: str, deadline: float, *, login_again: bool = True
    ) -> tuple[Connection, bool]:
        """A connection that is not known to be broken, and whether it was in use before."""
        if os.getpid() != self._process:
            # The broker would take it for a request of the parent, which might read the response.
            raise ConnectionLostError(
                f"{kafka_name(api)} was not sent: this process was forked from process"
                f" {self._process}, to which the connection to {self._broker} belongs"
            )
        if (connection := self._sound_connection()) is not None and not self._closed:
            return connection, True
        deadline = min(deadline, trio.current_time() + self._open_timeout)
        with trio.move_on_at(deadline) as waiting:
            await self._opening.acquire()
        if waiting.cancelled_caught:
            raise RequestTimeoutError(
                f"{kafka_name(api)} was not sent: the connection to {self._broker}, which another"
                " request was opening, did not open in time"
            )
        try:
            self._refuse_if_closed(api)
            if (connection := self._sound_connection()) is not None:
                return connection, True
            self._connection = await self._opened(api, deadline, login_again=login_again)
            return self._connection, False
        finally:
            self._opening.release()

    def _sound_connection(self) -> Connection | None:
        connection = self._connection
        if connection is None or connection.broken or connection.closed:
            return None
        return connection

    async def _opened(self, api: str, deadline: float, *, login_again: bool) -> Connection:
        host, port = self._address
        connection = await Connection.open(
            self._opener,
            host,
            port,
            client_id=self._client_id,
            timeout=_until(deadline),
            renewal_timeout=self._open_timeout,
            broker=self._broker,
            max_frame=self._max_frame,
            compute=self._compute,
            security=self._security,
            login_again=login_again,
        )
        if self._closed:
            await connection.aclose()
            self._refuse_if_closed(api)
        return connection

    def _refuse_if_closed(self, api: str) -> None:
        if self._closed:
            raise ConnectionLostError(f"{self!r}; {kafka_name(api)} was not sent")


def _until(deadline: float) -> float:
    return max(0.0, deadline - trio.current_time())
