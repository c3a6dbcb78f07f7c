"""Record batches as Kafka stores them (magic 2): the fixed header, not the records behind it.

A batch stays bytes from the producer to the consumer. The log needs only the 61 bytes of its
header; only ``kgroup.broker.records`` reads the records, and only where records are wanted.

Source: Kafka's ``DefaultRecordBatch``, KIP-98.
"""

from __future__ import annotations

import struct
from typing import Final, final

import attrs
from crc32c import crc32c

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and
maximum timestamp, producer id and epoch, base sequence, number of records."""
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

_ROUTING: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")
_LOG_OVERHEAD: Final = 12
"""Bytes before those that a batch's length counts."""
_LENGTH_AT: Final = 8
_LEAST_LENGTH: Final = 14
"""The length of the smallest batch of any magic."""
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

_COMPRESSION: Final = 0x07
_LEAST_RECORD: Final = 7
"""Bytes of the smallest record: length, attributes, two deltas, no key, no value, no header."""
_EXPANDS_TO: Final = {0: 1, 1: 1032, 2: 22, 3: 255, 4: 32_768}
"""The most bytes that one compressed byte can become: none, gzip, snappy, lz4, zstd."""
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@final
@attrs.frozen
class BatchHeader:
    """The header of a batch, in the order of the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; they wrap around at 2^31."""
        return (self.base_sequence + self.last_offset_delta) % 2**31

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _COMPRESSION

    @property
    def is_transactional(self) -> bool:
        """Whether its records belong to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker that ends a transaction."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_append_time(self) -> bool:
        """Whether all its records have the broker's time, which is ``max_timestamp``."""
        return bool(self.attributes & _LOG_APPEND_TIME)


def header_of(data: bytes) -> BatchHeader:
    """The header of a stored batch, which was checked when it was produced."""
    return BatchHeader(*HEADER.unpack_from(data))


def says_transactional(data: bytes | None) -> bool:
    """Whether a batch that was not checked yet says that it belongs to a transaction."""
    if data is None or len(data) < HEADER.size:
        return False
    header = header_of(data)
    return header.magic == MAGIC and header.is_transactional


def check(data: bytes | None) -> tuple[BatchHeader, bytes]:
    """Check the one batch that a producer sends for a partition.

    Returns:
        its header, and the batch: a piece of another one behind it is dropped.

    Raises:
        RequestError: CORRUPT_MESSAGE if the length or the magic is impossible or the CRC wrong;
            INVALID_RECORD if the bytes are not one whole batch of magic 2, or the batch is empty,
            does not begin at offset 0, has an unknown codec, is a control batch, has a producer id
            without a sequence number, or claims more records than its bytes can hold.

    Source: Kafka's ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
    ``LogValidator``.
    """
    data = _sole_batch(data)
    size = len(data)
    if size < HEADER.size:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {size} bytes")
    header = header_of(data)
    if header.base_offset:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"the batch begins at offset {header.base_offset}; a producer's must at 0",
        )
    if crc32c(memoryview(data)[_CRC_FROM:]) != header.crc:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, "the record batch does not match its CRC")
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {header.count} records and {header.last_offset_delta} as last offset",
        )
    if header.is_control:
        raise RequestError(ErrorCode.INVALID_RECORD, "a producer may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"the batch of producer {header.producer_id} has sequence {header.base_sequence}",
        )
    _check_claims(header, size - HEADER.size)
    return header, data


def _sole_batch(data: bytes | None) -> bytes:
    """The first batch, if it is whole, has the right magic, and no other whole one is behind it.

    Raises:
        RequestError: as ``check``.
    """
    if data is None or not (size := _whole_batch(data)):
        raise RequestError(ErrorCode.INVALID_RECORD, "there is no whole record batch")
    if data[_MAGIC_AT] != MAGIC:
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"the batch has magic {data[_MAGIC_AT]}, not {MAGIC}"
        )
    if len(data) == size:
        return data
    if _whole_batch(data[size:]):
        raise RequestError(ErrorCode.INVALID_RECORD, "there is more than one record batch")
    return data[:size]


def _whole_batch(data: bytes) -> int:
    """The size of the batch that begins here, or 0 if it is cut off.

    Raises:
        RequestError: CORRUPT_MESSAGE: its length or its magic is impossible.

    Source: Kafka's ``ByteBufferLogInputStream``.
    """
    if len(data) < _LOG_OVERHEAD:
        return 0
    (length,) = _LENGTH.unpack_from(data, _LENGTH_AT)
    if length < _LEAST_LENGTH:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {length} bytes")
    if len(data) <= _MAGIC_AT:
        return 0
    if data[_MAGIC_AT] > MAGIC:
        raise RequestError(
            ErrorCode.CORRUPT_MESSAGE, f"there is no batch of magic {data[_MAGIC_AT]}"
        )
    size = int(length) + _LOG_OVERHEAD
    return size if size <= len(data) else 0


def _check_claims(header: BatchHeader, size: int) -> None:
    """Check the header's count against the bytes behind it; nothing else bounds the count."""
    expands_to = _EXPANDS_TO.get(header.compression)
    if expands_to is None:
        raise RequestError(
            ErrorCode.INVALID_RECORD, f"the batch has the unknown codec {header.compression}"
        )
    if header.count > size * expands_to // _LEAST_RECORD:
        raise RequestError(
            ErrorCode.INVALID_RECORD,
            f"the batch claims {header.count} records, which {size} bytes cannot hold",
        )


def placed(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The batch with its offset and leader epoch in a log; the CRC covers neither."""
    length = len(data) - _LOG_OVERHEAD
    head = _ROUTING.pack(base_offset, length, leader_epoch)
    return b"".join((head, memoryview(data)[_ROUTING.size :]))


def stamped(data: bytes, timestamp: int) -> bytes:
    """The batch with the broker's time (milliseconds) in place of the producer's."""
    changed = bytearray(data)
    (attributes,) = struct.unpack_from(">h", changed, _ATTRIBUTES_AT)
    struct.pack_into(">h", changed, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    return _with_timestamp(changed, timestamp)


def with_max_timestamp(data: bytes, timestamp: int) -> bytes:
    """The batch with another maximum timestamp in its header."""
    return _with_timestamp(bytearray(data), timestamp)


def _with_timestamp(changed: bytearray, timestamp: int) -> bytes:
    struct.pack_into(">q", changed, _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[_CRC_FROM:]))
    return bytes(changed)


def assemble(
    records: bytes,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch around records that are encoded and compressed already; the log sets its offset."""
    attributes = compression | (_TRANSACTIONAL if transactional else 0)
    attributes |= _CONTROL if control else 0
    head = HEADER.pack(
        0,
        HEADER.size - _LOG_OVERHEAD + len(records),
        0,
        MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch = bytearray(head + records)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return bytes(batch)
