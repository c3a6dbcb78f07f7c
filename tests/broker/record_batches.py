"""Record batches for tests."""

from __future__ import annotations

import zlib
from typing import Any

from kgroup.broker import batches
from kgroup.broker.log import AppendResult, PartitionLog
from kgroup.broker.records import NewRecord, batch_of, marker

NOW = 1_600_000_000_000


def batch(*values: bytes, timestamp: int = NOW, **producer: Any) -> bytes:
    """A batch of values; ``producer`` is what ``batches.assemble`` takes."""
    records = [NewRecord(value, timestamp=timestamp) for value in values]
    plain = batch_of(records, NOW)
    return batches.assemble(
        plain[batches.HEADER.size :],
        count=len(values),
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        **producer,
    )


def compressed(codec: int, *values: bytes, timestamp: int = NOW) -> bytes:
    """A batch whose attributes name a codec; with 1 (gzip) it really is compressed."""
    plain = batch_of([NewRecord(value, timestamp=timestamp) for value in values], NOW)
    body = plain[batches.HEADER.size :]
    if codec == 1:
        packer = zlib.compressobj(wbits=31)
        body = packer.compress(body) + packer.flush()
    return batches.assemble(
        body,
        count=len(values),
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        compression=codec,
    )


def append(log: PartitionLog, data: bytes, now: int = NOW) -> AppendResult:
    """Check a batch and append it."""
    header, checked = batches.check(data)
    return log.append(checked, header, now)


def end_transaction(log: PartitionLog, producer_id: int, *, committed: bool) -> None:
    """End the transaction of a producer at epoch 0."""
    data = marker(producer_id, 0, committed=committed, now=NOW)
    log.end_transaction(producer_id, 0, data, committed=committed)
