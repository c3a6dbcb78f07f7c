"""A partition's state of idempotent producers: their epochs and their last batches.

It recognises a repeated batch, and refuses one that does not follow the last one. A batch that was
refused because it is outside of a transaction counts too: those after it must wait until it is sent
again. The log decides offsets and knows of transactions.

Source: Kafka's ``ProducerStateManager``, ``ProducerAppendInfo``, ``ProducerStateEntry``,
``VerificationStateEntry``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from kgroup.broker.batches import BatchHeader
from kgroup.broker.records import COORDINATOR_EPOCH
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

REMEMBERED: Final = 5
"""Batches of a producer that are recognised: as many as it may have in flight."""
_WRAP: Final = 2**31


@final
@attrs.frozen
class Written:
    """A batch that a producer has written."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int
    """The largest of its records."""


@final
@attrs.define(eq=False)
class _Producer:
    """A producer; most have one batch or few, for which a tuple is a tenth of a deque."""

    epoch: int
    batches: tuple[Written, ...] = ()
    last_timestamp: int = -1
    coordinator_epoch: int = -1


@final
@attrs.frozen
class ProducerSummary:
    """A producer, for admin tools.

    Attributes:
        last_sequence: -1 if it has written nothing in its epoch.
        last_timestamp: of its last batch or marker.
        coordinator_epoch: of its last marker; -1 without one.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int


@final
class ProducerState:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._outside: dict[int, tuple[int, int]] = {}
        """Producer id -> the epoch and the lowest sequence number of its batches that were refused
        because they are outside of a transaction."""

    def duplicate(self, batch: BatchHeader) -> Written | None:
        """The batch that this one repeats, or None if it is new and may be written.

        Raises:
            RequestError: INVALID_PRODUCER_EPOCH for a producer that was fenced,
                OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that does not follow the last one.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            # Its earlier batches may have been deleted: any sequence number begins.
            self._refuse_gap(batch)
            return None
        self._refuse_old_epoch(known, batch)
        self._refuse_gap(batch)
        if batch.producer_epoch > known.epoch:
            expected = 0
        else:
            for written in known.batches:
                if (written.first_sequence, written.last_sequence) == (
                    batch.base_sequence,
                    batch.last_sequence,
                ):
                    return written
            # After a marker there may be no batch of this epoch yet: the sequence begins at 0.
            expected = (known.batches[-1].last_sequence + 1) % _WRAP if known.batches else 0
        if batch.base_sequence != expected:
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence},"
                f" but {expected} must follow",
            )
        return None

    def refused_outside(self, batch: BatchHeader) -> None:
        """Note a batch that was refused because it is outside of a transaction.

        Its producer may have sent the next batches already. Until one is written that begins no
        later, those that begin later are refused, so that none takes its place.
        """
        new = batch.producer_epoch, batch.base_sequence
        old = self._outside.get(batch.producer_id)
        if old is None or new[0] > old[0] or (new[0] == old[0] and new[1] < old[1]):
            self._outside[batch.producer_id] = new

    def forget_outside(self) -> None:
        """Forget the batches that were refused outside of a transaction."""
        self._outside.clear()

    def written(self, batch: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Note a batch that was appended, and its largest timestamp."""
        producer = self._at_epoch(batch.producer_id, batch.producer_epoch)
        new = Written(batch.base_sequence, batch.last_sequence, base_offset, timestamp)
        producer.batches = (*producer.batches, new)[-REMEMBERED:]
        producer.last_timestamp = timestamp
        self._outside.pop(batch.producer_id, None)

    def epoch_of(self, producer_id: int) -> int | None:
        """The epoch of a producer's last batch or marker, or None for an unknown producer."""
        known = self._producers.get(producer_id)
        return None if known is None else known.epoch

    @property
    def count(self) -> int:
        """How many producers there are."""
        return len(self._producers)

    def producers(self) -> Iterator[ProducerSummary]:
        """All producers; those that come while the iterator is used are left out."""
        for producer_id, known in tuple(self._producers.items()):
            yield ProducerSummary(
                producer_id=producer_id,
                epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence if known.batches else -1,
                last_timestamp=known.last_timestamp,
                coordinator_epoch=known.coordinator_epoch,
            )

    def transaction_ended(self, producer_id: int, epoch: int, timestamp: int) -> None:
        """Note a transaction's marker: from now on its epoch is the lowest that is accepted."""
        producer = self._at_epoch(producer_id, epoch)
        producer.last_timestamp, producer.coordinator_epoch = timestamp, COORDINATOR_EPOCH
        self._outside.pop(producer_id, None)

    def _at_epoch(self, producer_id: int, epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch < epoch:
            before = -1 if producer is None else producer.coordinator_epoch
            producer = _Producer(epoch, coordinator_epoch=before)
            self._producers[producer_id] = producer
        return producer

    @staticmethod
    def _refuse_old_epoch(known: _Producer, batch: BatchHeader) -> None:
        if batch.producer_epoch < known.epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {batch.producer_id} has epoch {known.epoch} here,"
                f" the batch has {batch.producer_epoch}",
            )

    def _refuse_gap(self, batch: BatchHeader) -> None:
        epoch, lowest = self._outside.get(batch.producer_id, (batch.producer_epoch, _WRAP))
        if batch.producer_epoch == epoch and batch.base_sequence > lowest:
            raise RequestError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {batch.base_sequence}, but {lowest}"
                " was refused and must come first",
            )
