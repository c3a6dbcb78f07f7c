"""Records inside of a batch: written for ``Broker.append``, read for ``LogReader`` and time stamps.

Neither producing nor fetching over the wire comes here. Uncompressed and gzip batches are read;
the other codecs are not in Python's library, and reading such a batch is an error that says so.

Source: Kafka's ``DefaultRecord``, ``EndTransactionMarker``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

import attrs
from attrs import validators

from kgroup.broker import batches
from kgroup.broker.batches import BatchHeader

_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_GZIP: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


@final
class CompressedBatchError(Exception):
    """A batch whose codec this broker cannot read records from; it can still be fetched."""


def _pairs(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(headers)


@final
@attrs.frozen
class NewRecord:
    """A record to append.

    Attributes:
        value: the value, or None for a tombstone.
        key: the key, or None.
        headers: (name, value) pairs.
        timestamp: milliseconds since 1970, or None for the broker's time.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), converter=_pairs)
    timestamp: int | None = attrs.field(
        default=None, validator=validators.optional(validators.ge(0))
    )


@final
@attrs.frozen(kw_only=True)
class StoredRecord:
    """A record as it is read back.

    Attributes:
        offset: its offset.
        timestamp: milliseconds since 1970.
        append_time: whether the timestamp is the broker's.
        key: the key, or None.
        value: the value, or None.
        headers: (name, value) pairs.
    """

    offset: int
    timestamp: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def batch_of(records: Sequence[NewRecord], now: int) -> bytes:
    """A batch of records, each without a timestamp at ``now`` (milliseconds since 1970).

    Raises:
        ValueError: there is no record.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    times = [now if record.timestamp is None else record.timestamp for record in records]
    body = bytearray()
    for delta, (record, time) in enumerate(zip(records, times, strict=True)):
        _write_record(body, record, delta, time - times[0])
    return batches.assemble(
        bytes(body), count=len(records), base_timestamp=times[0], max_timestamp=max(times)
    )


def marker(producer_id: int, producer_epoch: int, *, committed: bool, now: int) -> bytes:
    """The control batch that ends a transaction in a partition."""
    body = bytearray()
    key, value = _MARKER_KEY.pack(0, 1 if committed else 0), _MARKER_VALUE.pack(0, 0)
    _write_record(body, NewRecord(value, key), 0, 0)
    return batches.assemble(
        bytes(body),
        count=1,
        base_timestamp=now,
        max_timestamp=now,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def records_of(data: bytes, header: BatchHeader) -> Iterator[StoredRecord]:
    """The records of a stored batch, in the order of their offsets.

    Raises:
        CompressedBatchError: its codec is neither none nor gzip.
        ValueError: the records are not what the batch says.
    """
    body = data[batches.HEADER.size :]
    if header.compression == _GZIP:
        body = zlib.decompress(body, wbits=31)
    elif header.compression:
        codec = _CODECS.get(header.compression, str(header.compression))
        raise CompressedBatchError(
            f"the batch at offset {header.base_offset} is compressed with {codec}, which the"
            " embedded broker stores and serves but cannot read; use none or gzip"
        )
    at = 0
    try:
        for _ in range(header.count):
            record, at = _read_record(body, at, header)
            yield record
    except IndexError as error:
        raise ValueError(f"the batch at offset {header.base_offset} is cut off") from error


def _write_record(body: bytearray, record: NewRecord, offset_delta: int, time_delta: int) -> None:
    inner = bytearray(1)
    _write_varint(inner, time_delta)
    _write_varint(inner, offset_delta)
    _write_bytes(inner, record.key)
    _write_bytes(inner, record.value)
    _write_varint(inner, len(record.headers))
    for name, content in record.headers:
        _write_bytes(inner, name.encode())
        _write_bytes(inner, content)
    _write_varint(body, len(inner))
    body += inner


def _read_record(body: bytes, at: int, header: BatchHeader) -> tuple[StoredRecord, int]:
    length, at = _read_varint(body, at)
    end = at + length
    time_delta, at = _read_varint(body, at + 1)
    offset_delta, at = _read_varint(body, at)
    key, at = _read_bytes(body, at)
    value, at = _read_bytes(body, at)
    count, at = _read_varint(body, at)
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at)
        content, at = _read_bytes(body, at)
        headers.append(((name or b"").decode(), content))
    append_time = header.has_append_time
    record = StoredRecord(
        offset=header.base_offset + offset_delta,
        timestamp=header.max_timestamp if append_time else header.base_timestamp + time_delta,
        append_time=append_time,
        key=key,
        value=value,
        headers=tuple(headers),
    )
    return record, end


def _write_varint(body: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _write_bytes(body: bytearray, value: bytes | None) -> None:
    if value is None:
        _write_varint(body, -1)
    else:
        _write_varint(body, len(value))
        body += value


def _read_bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(body, at)
    if length < 0:
        return None, at
    if at + length > len(body):
        raise IndexError(length)
    return body[at : at + length], at + length
