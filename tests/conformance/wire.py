"""Kafka requests and answers over trio streams, encoded and decoded by kio.

kio has one frozen dataclass per message and version. A scenario should not have to know which
version carries which field, so a request is a plain mapping of kio's field names here: `build`
keeps the fields that the version has and refuses any other field that carries a value.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

Fields = Mapping[str, Any]
"""A message, or a part of one, as plain values keyed by kio's field names."""
Opener = Callable[[], Awaitable[trio.abc.Stream]]
"""Connects to the broker under test, by a socket or in memory."""

_API_KEYS: Final = {name: key for key, name in api_key_map.items()}
_LENGTH: Final = struct.Struct(">i")


class NoAnswerError(Exception):
    """The broker gave no answer that can be read; the text says why."""


class Connection:
    """One connection, one request at a time: Kafka answers a connection's requests in order."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._correlation_id = 0

    @classmethod
    async def open(cls, open_stream: Opener) -> Connection:
        """Connect.

        Raises:
            NoAnswerError: no broker listens there.
        """
        try:
            return cls(await open_stream())
        except OSError as error:
            raise NoAnswerError(f"no connection: {error}") from error

    async def aclose(self) -> None:
        """Close it, as a client that is gone does."""
        await trio.aclose_forcefully(self._stream)

    async def request(self, api: str, version: int, fields: Fields, client_id: str) -> Fields:
        """Send a request and return its answer. After any exception the connection is useless.

        Raises:
            NoAnswerError: the connection broke, or kio cannot read the answer.
            ValueError: this version of the request lacks a field that carries a value.
        """
        key = _API_KEYS[api]
        request_type = load_request_schema(key, version)
        response_type = load_response_schema(key, version)
        self._correlation_id += 1
        header = request_type.__header_schema__(
            request_api_key=key,  # type: ignore[arg-type]
            request_api_version=version,  # type: ignore[arg-type]
            correlation_id=self._correlation_id,  # type: ignore[arg-type]
            client_id=client_id,
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(request_type)(buffer, build(request_type, fields))
        return self._decode(response_type, await self.exchange(buffer.getvalue()))

    async def exchange(self, request: bytes) -> bytes:
        """Send the bytes of a request and return those of its answer, both without their length.

        Raises:
            NoAnswerError: the connection broke.
        """
        try:
            await self._stream.send_all(_LENGTH.pack(len(request)) + request)
            return await self._read(_LENGTH.unpack(await self._read(_LENGTH.size))[0])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise NoAnswerError("connection lost") from error

    def _decode(self, response_type: type[Any], body: bytes) -> Fields:
        try:
            header, used = entity_reader(response_type.__header_schema__)(body, 0)
            answer, _ = entity_reader(response_type)(body, used)
        except Exception as error:  # kio raises ValueError, KeyError, IndexError and its own
            raise NoAnswerError(f"answer that kio cannot read: {error!r}") from error
        if header.correlation_id != self._correlation_id:
            raise NoAnswerError("answer to another request")
        return dataclasses.asdict(answer)

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = await self._stream.receive_some(size - len(data))
            if not chunk:
                raise NoAnswerError("connection closed by the broker")
            data += bytes(chunk)
        return data


class Pool:
    """Connections to one broker; a request that is parked keeps its connection to itself."""

    def __init__(self, open_stream: Opener) -> None:
        self._open_stream = open_stream
        self._idle: list[Connection] = []

    async def request(self, api: str, version: int, fields: Fields, client_id: str) -> Fields:
        """Send a request on a connection that nothing waits on; as ``Connection.request``."""
        connection = self._idle.pop() if self._idle else await Connection.open(self._open_stream)
        try:
            answer = await connection.request(api, version, fields, client_id)
        except BaseException:
            with trio.CancelScope(shield=True):
                await connection.aclose()
            raise
        self._idle.append(connection)
        return answer

    async def aclose(self) -> None:
        """Close the connections that nothing waits on."""
        while self._idle:
            await self._idle.pop().aclose()


def build(entity: type[Any], fields: Fields) -> Any:
    """Make a kio entity, nested ones included, from plain values.

    Fields that the entity lacks are left out when they are None and refused otherwise.
    """
    known = {field.name: field for field in dataclasses.fields(entity)}
    for name in fields.keys() - known.keys():
        if fields[name] is not None:
            raise ValueError(f"{entity.__name__} v{entity.__version__} has no field {name!r}")
    return entity(
        **{
            name: _convert(field.type, fields[name])
            for name, field in known.items()
            if name in fields
        }
    )


def _convert(declared: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(next(_entities(declared)), value)
    if isinstance(value, list | tuple):
        return tuple(_convert(declared, item) for item in value)
    return value


def _entities(declared: Any) -> Iterator[type[Any]]:
    """The dataclasses named in a type such as tuple[Topic, ...] | None."""
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        yield declared
    for argument in typing.get_args(declared):
        yield from _entities(argument)
