"""The border to kio: the only place where Kafka's messages become bytes and bytes become messages.

A frame body goes in or comes out, header included and its four bytes of length not. APIs have
kio's names (``join_group``), versions are numbers, requests are plain mappings keyed by kio's
field names, answers are kio's frozen dataclasses. What to send and which version to choose is for
others to say.

Encoding is `kgroup.wire.entity_writer`'s, decoding `kgroup.wire.entity_reader`'s: a tagged field
or an error number that a newer broker sends is no fault. Invariants: an ``error_code`` is an int
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
_SHORT: Final = 256
"""Messages of up to so many bytes are remembered; heartbeats and their answers repeat all day."""
_SHORT_ONES: Final = 1024
_LONG: Final = 1 << 18
"""A few longer answers are, too: metadata is asked for again and again and seldom changes."""
_LONG_ONES: Final = 4
_LONGEST: Final = 2**31 - 1


@final
class UnknownRequestError(Exception):
    """A request of an API or a version that kio does not have.

    Attributes:
        api_key: the number of the API.
        version: the version asked for.
        correlation_id: what the answer has to carry.
    """

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"a request of API {api_key} in version {version}, which is not known")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


@final
@attrs.frozen(kw_only=True)
class RequestFrame:
    """A request as a server reads it.

    Attributes:
        api: kio's name of the API.
        version: its version.
        correlation_id: what the answer has to carry.
        client_id: who asks, or None.
        entity: kio's dataclass of the request.
    """

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any


def milliseconds(seconds: float, what: str) -> timedelta:
    """A duration for a field that travels as int32 milliseconds.

    Raises:
        ValueError: it is negative, not a number, or longer than int32 milliseconds can say;
            the text begins with `what`.
    """
    if not 0 <= seconds <= _LONGEST / 1000:
        raise ValueError(f"{what} is {seconds!r}; it must be 0 to {_LONGEST / 1000} seconds")
    return timedelta(milliseconds=round(seconds * 1000))


def encode_request(
    api: str,
    version: int,
    fields: Mapping[str, Any],
    *,
    correlation_id: int,
    client_id: str | None,
) -> bytes:
    """The frame body of a request.

    Args:
        api: kio's name, such as ``join_group``.
        version: one that kio has.
        fields: by kio's field names; mappings and sequences for what is nested. A field that this
            version lacks is dropped where it says nothing (None, or what its absence means).
        correlation_id: what the answer will carry.
        client_id: who asks, or None.

    Raises:
        LostFieldError: the version lacks a field that carries a value.
        ValueError: no version has a field, one without a default is missing, or a value does not
            fit its field. The text names the field.
    """
    codec = _request_codec(API_KEYS[api], version)
    entity = build(codec.entity_type, fields)
    header = codec.header_type(
        request_api_key=API_KEYS[api],
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return _written((codec.write_header, header), (codec.write, entity))


def decode_response(
    api: str, version: int, body: bytes, *, broker: str = "a broker"
) -> tuple[int, Any]:
    """The correlation id and the kio dataclass of an answer.

    Raises:
        ProtocolError: the bytes are no such answer, or more than it; the text names the API, the
            version and `broker`.
    """
    codec = _response_codec(API_KEYS[api], version)
    what = f"the answer of {broker} to {kafka_name(api)} v{version}"
    _, entity, end = _message(codec, body, 0, 0, what, longest=_LONG)
    if end != len(body):
        # A version's fields are fixed (new ones are tagged): more bytes mean that this is
        # something else, and the fields read so far mean nothing.
        left = len(body) - end
        raise ProtocolError(f"{what} has {left} bytes after its last field", sent=True)
    (correlation_id,) = _CORRELATION_ID.unpack_from(body)
    return correlation_id, entity


def decode_request(data: bytes, offset: int = 0, *, max_items: int | None = None) -> RequestFrame:
    """A request, for a server. Bytes after its last field are ignored, as Kafka's broker does.

    Args:
        data: the frame body, with something before it where `offset` says so.
        offset: where the body begins.
        max_items: the most array items it may have in all; None for any number.

    Raises:
        UnknownRequestError: kio lacks this API or version; Kafka answers UNSUPPORTED_VERSION.
        ProtocolError: the bytes are no such request, or it has too many items.
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
    if max_items is None or len(data) - offset <= max_items:  # no item takes less than a byte
        header, entity, _ = _message(codec, data, offset, offset + _ID_IN_REQUEST, what)
    else:
        with limit_items(max_items):
            header, entity, _ = _message(codec, data, offset, offset + _ID_IN_REQUEST, what)
    return RequestFrame(
        api=api,
        version=version,
        correlation_id=correlation_id,
        client_id=header.client_id,
        entity=entity,
    )


def encode_response(api: str, version: int, answer: Any, correlation_id: int) -> bytes:
    """The frame body of an answer, for a server.

    Args:
        api: kio's name of the API.
        version: the request's version.
        answer: a mapping as in `encode_request`, or kio's dataclass of this version.
        correlation_id: the request's.

    Raises:
        ValueError: as in `encode_request`.
    """
    codec = _response_codec(API_KEYS[api], version)
    entity = build(codec.entity_type, answer) if isinstance(answer, Mapping) else answer
    header = codec.header_type(correlation_id=correlation_id)
    return _written((codec.write_header, header), (codec.write, entity))


def encode_data(entity_type: Any, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message without a header, such as a consumer's subscription."""
    return _written((entity_writer(entity_type), build(entity_type, fields)))


def decode_data(entity_type: Any, body: bytes, offset: int) -> Any:
    """A message without a header; bytes after it are ignored.

    Raises:
        ProtocolError: the bytes are no such message.
    """
    try:
        return entity_reader(entity_type)(body, offset)[0]
    except DECODE_ERRORS as error:
        raise _unreadable(label(entity_type), error) from error


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Codec:
    """All that one direction of one version of an API needs, looked up once."""

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


def _written(*entities: tuple[Writer, Any]) -> bytes:
    parts: list[bytes] = []
    entity: Any = None
    try:
        for write, entity in entities:
            write(parts, entity)
        return b"".join(parts)
    # The writers check nothing: a wrong value surfaces as whatever it happens to break.
    except Exception as error:
        wrong = {label(type(entity)): wrong_field(entity) for _, entity in entities}
        what = next((item for item in wrong.items() if item[1]), (label(type(entity)), None))
        raise ValueError(f"{what[0]} cannot be encoded: {what[1] or error}") from error


def _message(
    codec: _Codec, data: bytes, offset: int, id_at: int, what: str, *, longest: int = _SHORT
) -> tuple[Any, Any, int]:
    """Header, entity and the offset behind them. The header's correlation id means nothing."""
    try:
        size = len(data) - offset
        if size > longest:
            return _both(codec, data, offset)
        key = data[offset:id_at] + _NO_ID + data[id_at + _CORRELATION_ID.size :]
        return (_both_of_short if size <= _SHORT else _both_of_long)(codec, key)
    except DECODE_ERRORS as error:
        raise _unreadable(what, error) from error


def _both(codec: _Codec, data: bytes, offset: int = 0) -> tuple[Any, Any, int]:
    header, offset = codec.read_header(data, offset)
    return header, *codec.read(data, offset)


# INVARIANT: header and entity are values, so that two readers may have the same ones.
_both_of_short: Final = lru_cache(maxsize=_SHORT_ONES)(_both)
_both_of_long: Final = lru_cache(maxsize=_LONG_ONES)(_both)


def _unreadable(what: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{what} cannot be read: {error}", sent=True)
