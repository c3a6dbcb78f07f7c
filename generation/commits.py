"""Commits of one generation: one request at a time, those that wait go out together.

Each caller gets its own answer, for its own partitions. Nothing is ever stamped with another
generation than the one the commit was made in.

Outcome under cancellation. INVARIANT: from the moment that a request takes a caller's offsets
along, that caller is shielded until the outcome is known, or until the deadline. Before that, a
cancelled caller takes its offsets back and nothing of them is sent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import attrs
import trio
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kgroup.errors import LeaseExpiredError, OffsetBehindFloorError
from kgroup.generation.attempt import (
    Attempt,
    Positions,
    Setting,
    numbers,
    stale_error,
    unknown_error,
)
from kgroup.generation.transactions import group_metadata
from kgroup.model import Cause, End, OffsetAndMetadata, TopicPartition
from kgroup.recovery import Request, Then, broker_error, move_for

if TYPE_CHECKING:
    from confluent_kafka import Producer


@final
@attrs.define(eq=False)
class _Entry:
    """One caller's commit."""

    offsets: Positions
    taken: bool = False
    done: trio.Event = attrs.field(factory=trio.Event)
    error: Exception | None = None


@final
class Committer:
    """Sends the commits of one generation."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._waiting: list[_Entry] = []
        self._turn = trio.StrictFIFOLock()
        self._changed = trio.Event()
        self._over: End | None = None
        self._latest = float("inf")
        self._scope: trio.CancelScope | None = None

    def bound(self, deadline: float) -> None:
        """From now on no commit outlasts this time of trio's clock."""
        self._latest = min(self._latest, deadline)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, self._latest)

    def stop(self, end: End) -> None:
        """The generation has ended: what has not been sent is refused."""
        self._over = end
        self.wake()

    def wake(self) -> None:
        """The lease was confirmed, or the generation is over: look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def commit(self, offsets: Positions) -> None:
        """Send these offsets, which were checked, and wait for their outcome."""
        entry = _Entry(offsets)
        self._waiting.append(entry)
        try:
            async with self._turn:
                if not entry.done.is_set():
                    await self._send_waiting()
        except trio.Cancelled:
            if not entry.taken:
                self._waiting.remove(entry)
                raise
            await self._outcome_of_anothers_request(entry)
        if entry.error is not None:
            raise entry.error

    async def commit_in_transaction(
        self, producer: Producer, offsets: Positions, seconds: float
    ) -> None:
        """Hand these offsets, which were checked, to the producer's open transaction."""
        setting = self._setting
        if await self._lease_is_over():
            raise _lease_error(setting)
        positions = [
            KafkaPartition(name.topic, name.partition, at.offset, at.metadata or None)
            for name, at in sorted(offsets.items())
        ]
        metadata = group_metadata(setting.membership)
        try:
            await trio.to_thread.run_sync(
                partial(producer.send_offsets_to_transaction, positions, metadata, seconds),
                abandon_on_cancel=True,
            )
        except KafkaException as error:
            code = error.args[0].code()
            move = move_for(Request.COMMIT, code)
            if move.then not in (Then.LOST, Then.FAIL):
                raise
            refusal = broker_error(Request.COMMIT, code, str(setting.membership))
            setting.refused(numbers(offsets), refusal.name, True)
            end = setting.end(End(move.cause or Cause.MEMBERSHIP_LOST, str(refusal), refusal))
            reason = f"the coordinator refused it ({refusal.name}); abort the transaction"
            raise stale_error(setting.membership, end, reason) from error
        setting.committed(numbers(offsets))

    async def _outcome_of_anothers_request(self, entry: _Entry) -> None:
        with trio.CancelScope(shield=True, deadline=self._deadline()):
            await entry.done.wait()
        if not entry.done.is_set():
            entry.error = unknown_error(self._setting, entry.offsets)

    def _deadline(self) -> float:
        return min(trio.current_time() + self._setting.request_timeout, self._latest)

    async def _send_waiting(self) -> None:
        """Send all that waits, as one request. Raises Cancelled only before it takes any."""
        expired = await self._lease_is_over()
        entries, self._waiting = self._waiting, []
        for entry in entries:
            entry.taken = True
        try:
            if self._over is not None:
                reason = f"the generation has ended ({self._over})"
                self._refuse(entries, stale_error(self._setting.membership, self._over, reason))
            elif expired:
                self._refuse(entries, _lease_error(self._setting))
            else:
                await self._send(entries)
        finally:
            for entry in entries:
                entry.done.set()

    async def _lease_is_over(self) -> bool:
        """Wait for a heartbeat to confirm membership; True if none did in time."""
        with trio.move_on_at(self._deadline()):
            while self._setting.lease.left <= 0 and self._over is None:
                await self._changed.wait()
        return self._setting.lease.left <= 0

    def _refuse(self, entries: list[_Entry], error: Exception) -> None:
        for entry in entries:
            entry.error = error
            self._setting.refused(numbers(entry.offsets), str(error), True)

    async def _send(self, entries: list[_Entry]) -> None:
        merged = self._merge(entries)
        attempt = Attempt(self._setting, merged)
        with trio.CancelScope(shield=True, deadline=self._deadline()) as self._scope:
            await attempt.run()
        self._scope = None
        for entry in entries:
            entry.error = entry.error or attempt.outcome(entry.offsets)

    def _merge(self, entries: list[_Entry]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What one request carries: of each partition the latest call's offset."""
        merged: dict[TopicPartition, OffsetAndMetadata] = {}
        for entry in entries:
            try:
                self._setting.floors.check(entry.offsets)
                for partition, position in entry.offsets.items():
                    _check_order(partition, position, merged)
            except OffsetBehindFloorError as error:
                entry.error = error
            else:
                merged.update(entry.offsets)
        return merged


def _check_order(partition: TopicPartition, position: OffsetAndMetadata, merged: Positions) -> None:
    if partition in merged and position.offset < merged[partition].offset:
        raise OffsetBehindFloorError(
            f"{partition}: offset {position.offset} is behind {merged[partition].offset}, whose"
            " commit was asked for before; nothing of this commit was sent"
        )


def _lease_error(setting: Setting) -> LeaseExpiredError:
    return LeaseExpiredError(
        f"{setting.membership}: the lease has ended and no heartbeat could confirm membership, so"
        " the commit was not sent; its records will be read again by whoever owns the partitions"
    )
