"""The records in a batch: written by ``BrokerAdmin.append``, read for readers and timestamps.

A Fetch does not decode records. A Produce only checks their lengths, and reads those that may break
a rule of their topic. Uncompressed and gzip batches can be read. The other codecs are not in
Python's library, and reading such a batch is an error that says so.

A batch comes from a client and may claim anything: reading is bounded by its bytes, or by a limit
if it is compressed, whatever its header says.

Source: Kafka's ``DefaultRecord``, ``EndTransactionMarker``, ``LogValidator``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.broker import batches
from kgroup.broker.batches import BatchHeader
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode
from kgroup.errors import ArgumentError, short_repr
from kgroup.records.memory import StoredRecord
from kgroup.types import INT64_MAX, INT64_MIN

_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_GZIP: Final = 1
_GZIP_FORMAT: Final = 31
"""zlib's ``wbits`` for it."""
READABLE: Final = (0, _GZIP)
"""The codecs whose records this broker can read."""
MOST: Final = 1 << 26
"""The most bytes of a batch once it is decompressed, where no setting says otherwise."""
_PIECE: Final = 1 << 14
"""Bytes that are decompressed at a time, in one step."""
_LENGTH_BYTES: Final = 5
_LONG_BYTES: Final = 10
"""Bytes of the longest varint of 32 and of 64 bits."""
_LONG_HALF: Final = 2**63
"""How many numbers of 64 bits are not negative."""
_LEAST_BODY: Final = 6
"""Bytes of the smallest record, without its length."""
_LENGTHS_OF_A_STEP: Final = 25
_MOST_LISTED: Final = 1000
"""The most refused records of a batch that a response lists."""
COORDINATOR_EPOCH: Final = 0
"""The epoch of the transaction coordinator in every marker."""
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class UnreadableBatchError(Exception):
    """A batch whose records this broker cannot read; it can still be fetched."""


@final
class CompressedBatchError(UnreadableBatchError):
    """Its codec is one that this broker cannot read."""


class CorruptBatchError(UnreadableBatchError):
    """Its records do not match its header."""


@final
class TooLargeBatchError(CorruptBatchError):
    """It is larger than allowed once it is decompressed."""


def _pairs(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    given: Any = headers
    return tuple(given) if isinstance(given, Iterable) else given  # _check_pairs refuses others


def _check_pairs(record: object, field: attrs.Attribute[Any], value: object) -> None:
    del record
    given: Any = value
    try:
        right = all(
            isinstance(name, str) and (content is None or isinstance(content, bytes))
            for name, content in given
        )
    except (TypeError, ValueError):
        right = False
    if not right or isinstance(value, str):
        raise ArgumentError(field.name, value, "it must be pairs of a name and bytes, or None")


def _check_timestamp(record: object, field: attrs.Attribute[Any], value: object) -> None:
    del record
    if value is not None:
        bounds.whole(0, INT64_MAX).check(field.name, value, ArgumentError)


def _check_bytes(record: object, field: attrs.Attribute[bytes | None], value: object) -> None:
    del record
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        how = f"; encode it: {short_repr(value)}.encode()" if isinstance(value, str) else ""
        if isinstance(value, tuple | dict):
            how = "; for a key or headers, use kgroup.broker.NewRecord(value, key=...)"
        raise ArgumentError(field.name, value, f"it must be bytes, or None{how}")


@final
@attrs.frozen
class NewRecord:
    """A record to append.

    Attributes:
        value: the value, or None for a tombstone.
        key: the key, or None.
        headers: (name, value) pairs.
        timestamp: milliseconds since 1970, or None for the broker's time.

    Raises:
        ArgumentError: the value or the key is not bytes, or ``headers`` or ``timestamp`` is not as
            above.
    """

    value: bytes | None = attrs.field(validator=_check_bytes)
    key: bytes | None = attrs.field(default=None, validator=_check_bytes)
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(
        default=(), converter=_pairs, validator=_check_pairs
    )
    timestamp: int | None = attrs.field(default=None, validator=_check_timestamp)


def batch_of(records: Sequence[NewRecord], now: int, **producer: Any) -> bytes:
    """A batch of records; ``now`` (milliseconds since 1970) replaces missing timestamps.

    Args:
        records: at least one.
        now: for those without a timestamp.
        producer: the arguments of ``batches.assemble`` about a producer; none without an id.

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
        bytes(body),
        count=len(records),
        base_timestamp=times[0],
        max_timestamp=max(times),
        **producer,
    )


def marker(producer_id: int, producer_epoch: int, *, committed: bool, now: int) -> bytes:
    """The control batch that ends a transaction in a partition."""
    body = bytearray()
    key, value = (
        _MARKER_KEY.pack(0, 1 if committed else 0),
        _MARKER_VALUE.pack(0, COORDINATOR_EPOCH),
    )
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


def check_records(data: bytes, header: BatchHeader, most: int) -> Iterator[None]:
    """Check the records of a producer's batch: their number and their lengths.

    Later readers of the log depend on no more than that. Batches with a codec that this broker
    cannot read are accepted as they are. The check is complete when the iterator ends; each step
    reads one record or 16 KiB of a compressed batch, or 25 records of another one.

    Args:
        data: the batch.
        header: its header, from ``batches.check``.
        most: the most bytes that its records may have once they are decompressed.

    Raises:
        RequestError: INVALID_RECORD; MESSAGE_TOO_LARGE for more bytes, after which Java's producer
            sends the batch again in halves.

    Source: Kafka's ``LogValidator``.
    """
    try:
        if not header.compression:
            yield from _check_lengths(data, header.count)
        elif header.compression == _GZIP:
            for _ in _bodies(data, header, most):
                yield
    except TooLargeBatchError as error:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptBatchError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from error


@final
@attrs.frozen(kw_only=True)
class RecordRules:
    """What a topic requires of each record.

    Attributes:
        needs_keys: whether each must have a key, as in a compacted topic.
        oldest: the lowest timestamp that is accepted.
        newest: the highest.
    """

    needs_keys: bool = False
    oldest: int = INT64_MIN
    newest: int = INT64_MAX

    def may_refuse(self, header: BatchHeader) -> bool:
        """Whether a batch with this header may have a record that is refused."""
        # Most topics set no limit for the past, and none of their batches is to be read for it.
        return (
            self.needs_keys
            or self.oldest > 0
            or self.oldest > header.base_timestamp
            or self.newest < max(header.base_timestamp, header.max_timestamp)
        )

    def fault(self, key: bytes | None, timestamp: int) -> tuple[ErrorCode, str] | None:
        """Why a record is refused, or None."""
        if self.needs_keys and key is None:
            return ErrorCode.INVALID_RECORD, "it has no key, which a compacted topic needs"
        return self.timestamp_fault(timestamp)

    def timestamp_fault(self, timestamp: int) -> tuple[ErrorCode, str] | None:
        """Why a timestamp is refused, or None; a record without one is accepted."""
        if timestamp == batches.NO_TIMESTAMP or self.oldest <= timestamp <= self.newest:
            return None
        reason = (
            f"its timestamp {timestamp} is not in {self.oldest}..{self.newest}, the broker's time"
            " less message.timestamp.before.max.ms and plus message.timestamp.after.max.ms"
        )
        return ErrorCode.INVALID_TIMESTAMP, reason


@final
class RefusedRecordsError(RequestError):
    """Some records of a batch are refused, and with them the whole batch.

    Attributes:
        records: the number of each in the batch, and why; empty if they are many, or unknown.
    """

    def __init__(self, code: ErrorCode, message: str, records: Mapping[int, str]) -> None:
        super().__init__(code, message)
        self.records: Final = records


def check_rules(data: bytes, header: BatchHeader, most: int, rules: RecordRules) -> Iterator[None]:
    """Check that every record of a producer's batch keeps the rules of its topic.

    Of batches with a codec that this broker cannot read, only the timestamps in the header are
    checked. Each step reads one record, or 16 KiB of a compressed batch.

    Args:
        data: the batch, which ``check_records`` has accepted.
        header: its header.
        most: the most bytes that its records may have once they are decompressed.
        rules: those of the topic.

    Raises:
        RefusedRecordsError: INVALID_RECORD, or INVALID_TIMESTAMP.
        RequestError: INVALID_RECORD: a record cannot be read.

    Source: Kafka's ``LogValidator.validateRecord``.
    """
    if header.compression not in READABLE:
        for timestamp in (header.max_timestamp, header.base_timestamp):
            if (fault := rules.timestamp_fault(timestamp)) is not None:
                raise RefusedRecordsError(fault[0], f"a record of the batch: {fault[1]}", {})
        return
    faults: dict[int, tuple[ErrorCode, str]] = {}
    number = 0
    try:
        for record in records_in_steps(data, header, most):
            if record is not None:
                if (fault := rules.fault(record.key, record.timestamp)) is not None:
                    faults[number] = fault
                number += 1
            yield
    except CorruptBatchError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from error
    if faults:
        raise _refused(faults)


def timestamps(data: bytes, header: BatchHeader, most: int) -> Iterator[int | None]:
    """The timestamp of each record of a producer's batch; None for a step without a record.

    Of batches with a codec that this broker cannot read, only the base timestamp is known.

    Args:
        data: the batch, which ``check_records`` has accepted.
        header: its header.
        most: the most bytes that its records may have once they are decompressed.

    Raises:
        RequestError: INVALID_RECORD: a record cannot be read.
    """
    if header.compression not in READABLE:
        yield header.base_timestamp
        return
    try:
        for record in records_in_steps(data, header, most):
            yield None if record is None else record.timestamp
    except CorruptBatchError as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from error


def _refused(faults: Mapping[int, tuple[ErrorCode, str]]) -> RefusedRecordsError:
    # As in Kafka, one record with a wrong timestamp decides the error of the batch.
    first, (code, reason) = next(
        (one for one in faults.items() if one[1][0] is ErrorCode.INVALID_TIMESTAMP),
        next(iter(faults.items())),
    )
    others = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    listed = {number: why for number, (_, why) in faults.items()}
    return RefusedRecordsError(
        code,
        f"record {first} of the batch{others}: {reason}",
        listed if len(listed) <= _MOST_LISTED else {},
    )


def _check_lengths(data: bytes, count: int) -> Iterator[None]:
    """The checks of ``_bodies`` without copying the records, because every Produce needs them."""
    at, end = batches.HEADER.size, len(data)
    try:
        for number in range(1, count + 1):
            first = data[at]
            if first < 0x80 and not first & 1:
                length, at = first >> 1, at + 1
            else:
                length, at = _read_varint(data, at, _LENGTH_BYTES)
            if length < _LEAST_BODY:
                raise CorruptBatchError(f"a record has {length} bytes")
            at += length
            if not number % _LENGTHS_OF_A_STEP:
                yield
    except IndexError:
        at = end + 1
    if at != end:
        raise CorruptBatchError(f"the batch's {count} records do not fill its {end} bytes")


def records_of(data: bytes, header: BatchHeader, most: int = MOST) -> Iterator[StoredRecord]:
    """As ``records_in_steps``, without the steps."""
    return (one for one in records_in_steps(data, header, most) if one is not None)


def records_in_steps(
    data: bytes, header: BatchHeader, most: int = MOST
) -> Iterator[StoredRecord | None]:
    """The records of a stored batch, in the order of their offsets.

    A compressed batch is decompressed piece by piece, only as far as its records are read. Each
    piece is a step of its own, which is None: a record can have many pieces.

    Args:
        data: the batch.
        header: its header.
        most: the most bytes that are decompressed.

    Raises:
        CompressedBatchError: its codec is neither none nor gzip.
        CorruptBatchError: the records do not match the header.
    """
    if header.compression not in READABLE:
        codec = _CODECS.get(header.compression, str(header.compression))
        raise CompressedBatchError(
            f"the batch at offset {header.base_offset} is compressed with {codec}, which the"
            " embedded broker stores and serves but cannot read; use none or gzip"
        )
    for body in _bodies(data, header, most):
        try:
            yield None if body is None else _read_record(body, header)
        except (IndexError, ValueError) as error:
            raise CorruptBatchError(
                f"a record of the batch at offset {header.base_offset} cannot be read: {error}"
            ) from error


def _bodies(data: bytes, header: BatchHeader, most: int) -> Iterator[bytes | None]:
    """The bytes of each record, without its length; as many records as the header says.

    After each piece that was decompressed comes None.

    INVARIANT: every step consumes bytes, so a header cannot make this longer than its bytes.
    """
    pieces: Iterable[bytes] = (data[batches.HEADER.size :],)
    if header.compression == _GZIP:
        pieces = _inflated(data[batches.HEADER.size :], most)
    left, at = header.count, 0
    buffer = bytearray()
    for piece in pieces:
        del buffer[:at]
        buffer += piece
        at = 0
        while (found := _whole_record(buffer, at)) is not None:
            if left == 0:
                raise CorruptBatchError(f"the batch has more than its {header.count} records")
            start, at = found
            left -= 1
            yield bytes(buffer[start:at])
        if header.compression:
            yield None
    if left or at < len(buffer):
        raise CorruptBatchError(
            f"{left} of the batch's {header.count} records are missing or cut off"
        )


def _whole_record(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Start and end of the body of the record that begins here; None if it is incomplete."""
    try:
        length, start = _read_varint(buffer, at, _LENGTH_BYTES)
    except IndexError:
        return None
    if length < _LEAST_BODY:
        raise CorruptBatchError(f"a record has {length} bytes")
    return (start, start + length) if start + length <= len(buffer) else None


def _inflated(data: bytes, most: int) -> Iterator[bytes]:
    """Decompress gzip in pieces; there is never more than one piece in memory."""
    decoder, size = zlib.decompressobj(wbits=_GZIP_FORMAT), 0
    for at in range(0, len(data), _PIECE):
        left = data[at : at + _PIECE]
        more = True
        while more:
            if decoder.eof:  # gzip files can be joined
                decoder = zlib.decompressobj(wbits=_GZIP_FORMAT)
            try:
                piece = decoder.decompress(left, _PIECE)
            except zlib.error as error:
                raise CorruptBatchError(f"the batch is not gzip: {error}") from error
            size += len(piece)
            if size > most:
                raise TooLargeBatchError(f"the batch has more than {most} bytes decompressed")
            yield piece
            left = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            more = bool(left) or (len(piece) == _PIECE and not decoder.eof)
    if not decoder.eof:
        raise CorruptBatchError("the batch's gzip data is cut off")


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


def _read_record(body: bytes, header: BatchHeader) -> StoredRecord:
    time_delta, at = _read_varint(body, 1)
    offset_delta, at = _read_varint(body, at)
    key, at = _read_bytes(body, at)
    value, at = _read_bytes(body, at)
    count, at = _read_varint(body, at)
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at)
        content, at = _read_bytes(body, at)
        # As in Java. Whoever writes a record may give its headers any names.
        headers.append(((name or b"").decode(errors="replace"), content))
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise ValueError(f"offset {offset_delta} of {header.last_offset_delta + 1}")
    append_time = header.has_append_time
    # A sum of two numbers that a client has sent wraps around, as in Java.
    time = (header.base_timestamp + time_delta + _LONG_HALF) % (2 * _LONG_HALF) - _LONG_HALF
    return StoredRecord(
        offset=header.base_offset + offset_delta,
        timestamp=header.max_timestamp if append_time else time,
        append_time=append_time,
        key=key,
        value=value,
        headers=tuple(headers),
        leader_epoch=header.leader_epoch,
    )


def _write_varint(body: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        body.append(value & 0x7F | 0x80)
        value >>= 7
    body.append(value)


def _read_varint(body: bytes | bytearray, at: int, longest: int = _LONG_BYTES) -> tuple[int, int]:
    value = shift = 0
    for _ in range(longest):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise CorruptBatchError(f"a number has more than {longest} bytes")


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
