"""Verifies that the records before a commit are still in the log (KIP-320).

A commit carries the leader epoch of the record before it (``read_epochs``). Under one epoch a
leader cuts nothing off its log. If a partition has a later epoch when a member is assigned it, its
leader returns where the log of the commit's epoch ends: before the commit, if records were lost
with an earlier leader. The offset alone does not show that, because other records may have been
written since.

A member learns the present epochs by a Metadata request, which it sends together with OffsetFetch.
The response has all partitions of a topic: if each member of a large group requested it in each
rebalance, the bytes would grow with the square of the group. So for a topic of more than `MANY`
partitions, the member sends OffsetForLeaderEpoch for every commit, to the leaders that it knows
from earlier. A leader that has been replaced since refuses it, because the request has the epoch
under which that leader was known.

The response has the ids of the topics, too: by another id the record source learns that a topic was
created again, of which the member may have kept partitions.

A commit may also have a later epoch than the metadata. Then the metadata is out of date, and its
leader may be deposed without knowing it, or the topic was created again. The request has the
commit's epoch, so that such a leader refuses it, and the leader is looked up again.

INVARIANT: a hand-over does not wait for what cannot be verified soon (`LONGEST`), nor for a
partition without a leader. Such a commit is accepted. The record source receives its epoch, and
detects a truncation at the next change of the leader.

Source: Kafka's ``SubscriptionState.maybeCompleteValidation`` and ``OffsetsForLeaderEpochClient``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, final

import attrs
import trio

from kgroup.client.error_policy import Action, Request, failed_request, reaction_to
from kgroup.client.partition_leaders import each_kind
from kgroup.errors import (
    BrokerError,
    OffsetOutOfRangeError,
    TransportError,
)
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.types import EpochEnd, TopicPartition

LONGEST: Final = 2.0
"""Seconds for which a hand-over waits for leaders to say where epochs end."""
MANY: Final = 200
"""The metadata of a topic of more partitions, some 5 kB, is not requested in each rebalance."""
FRESH: Final = 1.0
"""Seconds for which the metadata of a topic counts as that of now."""


@final
@attrs.frozen
class CutCommit:
    """A commit whose records are not in the log any more.

    Attributes:
        error: the error for the program, where it has to decide.
        end: where the log of the commit's epoch ends; None if the log does not know that epoch.
    """

    error: OffsetOutOfRangeError
    end: EpochEnd | None


@final
class CommitVerifier:
    """Verifies the commits at which the partitions of one generation start."""

    def __init__(self, member: MemberContext, lifecycle: Lifecycle) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._looked_up = trio.Event()
        self._up_to_date: frozenset[str] = frozenset()
        self._looked_up_at = trio.current_time()  # a group's leader requests metadata after this

    @property
    def knows_leaders(self) -> bool:
        """Whether this member requested metadata just now, as a group's leader does."""
        leads = self._lifecycle.membership.leader
        return (leads or bool(self._up_to_date)) and not self._lifecycle.was_held

    def begin(self, topics: Collection[str]) -> None:
        """Look up the leaders, in the time that the coordinator takes to return the commits."""
        if self.knows_leaders:
            self._up_to_date = frozenset(topics)
        known = self._member.cluster.cached_partitions
        wanted = frozenset(
            name for name in topics if name not in self._up_to_date and not known(name) > MANY
        )
        if not (wanted and self._lifecycle.start_service(self._look_up, wanted)):
            self._looked_up.set()

    async def until_looked_up(self) -> None:
        """Wait until the ids of the topics are known too, unless that takes long.

        Cancellation: nothing changes.
        """
        with trio.move_on_at(self._looked_up_at + LONGEST):
            await self._looked_up.wait()

    async def not_in_log(
        self, committed: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, CutCommit]:
        """The commits whose records are not in their logs any more, as far as it is known soon.

        Args:
            committed: the offsets.
            epochs: the leader epochs of the records before those that are to be verified.

        Cancellation: requests that were sent break their connections; nothing else changes.
        """
        ends: dict[TopicPartition, EpochEnd | None] = {}
        if epochs:
            with trio.move_on_after(LONGEST) as scope:
                await self._looked_up.wait()
                await self._find_ends(epochs, ends)
            if scope.cancelled_caught:
                self._member.cluster.forget_leaders(epochs.keys() - ends.keys())
        return {
            name: CutCommit(_error(name, committed[name], epochs[name], ends[name]), ends[name])
            for name in sorted(ends)
            if (end := ends[name]) is None or end.offset < committed[name]
        }

    async def _look_up(self, topics: frozenset[str]) -> None:
        self._looked_up_at = trio.current_time()
        # A failure shows once more, and is reported, if there is something to verify.
        with suppress(BrokerError, TransportError):
            await self._member.cluster.metadata(topics)
            self._up_to_date = topics
        self._looked_up.set()

    async def _find_ends(
        self,
        epochs: Mapping[TopicPartition, int],
        found: dict[TopicPartition, EpochEnd | None],
    ) -> None:
        """Find where those of these leader epochs end that are not the present ones any more."""
        member, left = self._member, epochs
        backoff, use_cached = member.new_backoff(), not self._lifecycle.was_held
        while left:
            fresh = trio.current_time() - self._looked_up_at <= FRESH
            failed: Mapping[TopicPartition, BrokerError | TransportError]
            try:
                failed = await member.cluster.epoch_ends(
                    left,
                    found,
                    use_cached=use_cached,
                    up_to_date=self._up_to_date if fresh else (),
                )
            except (BrokerError, TransportError) as error:
                failed = dict.fromkeys(left, error)
            left = {name: epochs[name] for name in self._to_retry(failed)}
            use_cached = False
            if left:
                await trio.sleep(backoff.next())

    def _to_retry(
        self, failed: Mapping[TopicPartition, BrokerError | TransportError]
    ) -> list[TopicPartition]:
        """Report these failures, each kind once, and return what is worth another request."""
        for error in each_kind(failed.values()):
            request = failed_request(error, Request.EPOCH_ENDS)
            self._member.emitter.failed(request, error, reaction_to(Request.EPOCH_ENDS, error))
        return [
            name
            for name, error in failed.items()
            if reaction_to(Request.EPOCH_ENDS, error).action is Action.RETRY
        ]


def _error(
    partition: TopicPartition, offset: int, epoch: int, end: EpochEnd | None
) -> OffsetOutOfRangeError:
    found = (
        "does not know that epoch any more"
        if end is None
        else f"of that epoch ends at {end.offset}: it was truncated"
    )
    return OffsetOutOfRangeError(
        f"{partition}: offset {offset} is committed, after a record of leader epoch {epoch}, but"
        f" the log {found}. A stream with this partition reads nothing until seek() names an offset"
        " of it",
        partition,
        offset,
        None if end is None else end.offset,
    )
