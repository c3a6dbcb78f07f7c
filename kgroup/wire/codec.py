"""Encodes and decodes requests and responses, by kio's schemas.

It handles the body of a frame: header and message, without the frame's four bytes of length.
APIs have kio's names (``join_group``), versions are numbers, requests are plain mappings with kio's
field names as keys, and responses are kio's frozen dataclasses. Callers decide what to send and in
which version.

`kgroup.wire.entity_writer` encodes, and `kgroup.wire.entity_reader` decodes. A tagged field or an
error code that only a newer broker has is not a fault. INVARIANTS: an ``error_code`` is an int
whatever its number; bytes from outside raise `ProtocolError` (or, in a request,
`UnknownRequestError`) and nothing else.

Source: the Kafka protocol guide, KIP-482 (tagged fields), KIP-511 (ApiVersions' header).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any, Final, final

import attrs
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map

from kgroup.errors import ProtocolError
from kgroup.wire.entities import build, label, wrong_field
from kgroup.wire.entity_reader import DECODE_ERRORS, Reader, entity_reader, limit_items
from kgroup.wire.entity_writer import Writer, entity_writer
from kgroup.wire.versions import API_KEYS, kafka_name

_PREFIX: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")
_ID_IN_REQUEST: Final = 4
_NO_ID: Final = bytes(_CORRELATION_ID.size)
_SMALL: Final = 256
"""Decoded messages of up to so many bytes are cached: heartbeats and their responses repeat."""
_CACHED_SMALL: Final = 1024
_LARGE: Final = 1 << 18
"""A few responses of up to so many bytes are cached too: metadata is fetched often and seldom
changes."""
_CACHED_LARGE: Final = 4
_MAX_INT32: Final = 2**31 - 1


@final
class UnknownRequestError(Exception):
    """A request of an API or a version that kio does not have.

    Attributes:
        api_key: the number of the API.
        version: the version of the request.
        correlation_id: the correlation id of the response.
    """

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"a request of API {api_key} in version {version} is unknown to kio")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


@final
@attrs.frozen(kw_only=True)
class RequestFrame:
    """A request that a server received.

    Attributes:
        api: kio's name of the API.
        version: its version.
        correlation_id: the correlation id of the response.
        client_id: the client's name, or None.
        entity: kio's dataclass of the request.
    """

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any


def milliseconds(seconds: float, what: str) -> timedelta:
    """Convert a duration for a field of int32 milliseconds.

    Raises:
        ValueError: it is negative, not a number, or too long for int32 milliseconds; the text
            begins with `what`.
    """
    if not 0 <= seconds <= _MAX_INT32 / 1000:
        raise ValueError(f"{what} is {seconds!r}; it must be 0 to {_MAX_INT32 / 1000} seconds")
    return timedelta(milliseconds=round(seconds * 1000))


def encode_request(
    api: str,
    version: int,
    fields: Mapping[str, Any],
    *,
    correlation_id: int,
    client_id: str | None,
) -> bytes:
    """Encode the frame body of a request.

    Args:
        api: kio's name, such as ``join_group``.
        version: one that kio has.
        fields: values by kio's field names, with mappings and sequences for nested ones. A field
            that this version lacks is dropped if it is None or has its default value.
        correlation_id: the correlation id that the response will have.
        client_id: the client's name, or None.

    Raises:
        LostFieldError: the version lacks a field that carries a value.
        ValueError: a field exists in no version, a field without a default is missing, or a value
            does not fit its field. The text names the field.
    """
    codec = _request_codec(API_KEYS[api], version)
    entity = build(codec.entity_type, fields)
    header = codec.header_type(
        request_api_key=API_KEYS[api],
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _encode((codec.write_header, header), (codec.write, entity))


def decode_response(
    api: str, version: int, body: bytes, *, broker: str = "a broker"
) -> tuple[int, Any]:
    """Decode a response to its correlation id and kio's dataclass.

    Raises:
        ProtocolError: the bytes are not such a response, or more than one; the text names the API,
            the version and `broker`.
    """
    codec = _response_codec(API_KEYS[api], version)
    what = f"the response of {broker} to {kafka_name(api)} v{version}"
    _, entity, end = _decode(codec, body, 0, 0, what, cached_up_to=_LARGE)
    if end != len(body):
        # A version's fields are fixed, since new ones are tagged. More bytes mean that this is
        # something else and that the fields read so far are meaningless.
        left = len(body) - end
        raise ProtocolError(f"{what} has {left} bytes after its last field", sent=True)
    (correlation_id,) = _CORRELATION_ID.unpack_from(body)
    return correlation_id, entity


_SECRET: Final = frozenset({"sasl_authenticate"})
"""Requests that carry passwords and tokens, which no cache may keep."""
_NEVER: Final = -1


def decode_request(data: bytes, offset: int = 0, *, max_items: int | None = None) -> RequestFrame:
    """Decode a request, for a server. Bytes after its last field are ignored, as in Kafka's broker.

    Args:
        data: the frame body, and possibly bytes before it.
        offset: where the body begins.
        max_items: the largest number of array items and tagged fields in the whole request; None
            for any number.

    Raises:
        UnknownRequestError: kio lacks this API or version; Kafka answers UNSUPPORTED_VERSION.
        ProtocolError: the bytes are not such a request, or it has too many items.
    """
    if len(data) - offset < _PREFIX.size:
        raise ProtocolError(f"a request of {len(data) - offset} bytes is too short for its header")
    api_key, version, correlation_id = _PREFIX.unpack_from(data, offset)
    try:
        codec = _request_codec(api_key, version)
    except KioIndexError as error:
        raise UnknownRequestError(api_key, version, correlation_id) from error
    api = api_key_map[api_key]
    what = f"a {kafka_name(api)} v{version} request"
    id_at, most = offset + _ID_IN_REQUEST, _NEVER if api in _SECRET else _SMALL
    if max_items is None or len(data) - offset <= max_items:  # no item takes less than a byte
        header, entity, _ = _decode(codec, data, offset, id_at, what, cached_up_to=most)
    else:
        with limit_items(max_items):
            header, entity, _ = _decode(codec, data, offset, id_at, what, cached_up_to=most)
    return RequestFrame(
        api=api,
        version=version,
        correlation_id=correlation_id,
        client_id=header.client_id,
        entity=entity,
    )


def encode_response(api: str, version: int, response: Any, correlation_id: int) -> bytes:
    """Encode the frame body of a response, for a server.

    Args:
        api: kio's name of the API.
        version: the request's version.
        response: a mapping as in `encode_request`, or kio's dataclass of this version.
        correlation_id: the request's.

    Raises:
        ValueError: as in `encode_request`.
    """
    codec = _response_codec(API_KEYS[api], version)
    entity = build(codec.entity_type, response) if isinstance(response, Mapping) else response
    header = codec.header_type(correlation_id=correlation_id)
    return _encode((codec.write_header, header), (codec.write, entity))


def encode_data(entity_type: Any, fields: Mapping[str, Any]) -> bytes:
    """Encode a message without a header, such as a consumer's subscription."""
    return _encode((entity_writer(entity_type), build(entity_type, fields)))


def decode_data(entity_type: Any, body: bytes, offset: int) -> Any:
    """Decode a message without a header; bytes after it are ignored.

    Raises:
        ProtocolError: the bytes are not such a message.
    """
    try:
        return entity_reader(entity_type)(body, offset)[0]
    except DECODE_ERRORS as error:
        raise _unreadable(label(entity_type), error) from error


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Codec:
    """The types, readers and writers of one direction of one version of an API."""

    entity_type: Any
    header_type: Any
    read: Reader
    read_header: Reader
    write: Writer
    write_header: Writer


@cache
def _request_codec(api_key: int, version: int) -> _Codec:
    return _codec(load_request_schema(api_key, version))


@cache
def _response_codec(api_key: int, version: int) -> _Codec:
    return _codec(load_response_schema(api_key, version))


def _codec(entity_type: Any) -> _Codec:
    header_type: Any = entity_type.__header_schema__
    return _Codec(
        entity_type=entity_type,
        header_type=header_type,
        read=entity_reader(entity_type),
        read_header=entity_reader(header_type),
        write=entity_writer(entity_type),
        write_header=entity_writer(header_type),
    )


def _encode(*entities: tuple[Writer, Any]) -> bytes:
    parts: list[bytes] = []
    entity: Any = None
    try:
        for write, entity in entities:
            write(parts, entity)
        return b"".join(parts)
    # The writers check nothing, so that an invalid value can raise any error.
    except Exception as error:
        wrong = {label(type(entity)): wrong_field(entity) for _, entity in entities}
        what = next((item for item in wrong.items() if item[1]), (label(type(entity)), None))
        raise ValueError(f"{what[0]} cannot be encoded: {what[1] or error}") from error


def _decode(
    codec: _Codec, data: bytes, offset: int, id_at: int, what: str, *, cached_up_to: int = _SMALL
) -> tuple[Any, Any, int]:
    """Decode header, whose correlation id is meaningless, and entity; return the offset after."""
    try:
        size = len(data) - offset
        if size > cached_up_to:
            return _decode_uncached(codec, data, offset)
        key = data[offset:id_at] + _NO_ID + data[id_at + _CORRELATION_ID.size :]
        return (_decode_small if size <= _SMALL else _decode_large)(codec, key)
    except DECODE_ERRORS as error:
        raise _unreadable(what, error) from error


def _decode_uncached(codec: _Codec, data: bytes, offset: int = 0) -> tuple[Any, Any, int]:
    header, offset = codec.read_header(data, offset)
    return header, *codec.read(data, offset)


# INVARIANT: header and entity are immutable, so that several callers can have the same ones.
_decode_small: Final = lru_cache(maxsize=_CACHED_SMALL)(_decode_uncached)
_decode_large: Final = lru_cache(maxsize=_CACHED_LARGE)(_decode_uncached)


def _unreadable(what: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{what} cannot be read: {error}", sent=True)
