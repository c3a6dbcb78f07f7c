"""Finds out whether the records before a commit are still in the log (KIP-320).

A commit carries the leader epoch of the record before it (``read_epochs``). Under one epoch a
leader cuts nothing off its log. If the partition has another epoch by the time at which a member is
given it, its leader says where the log of the commit's epoch ends: before the commit, if records
were lost with an earlier leader. The offset alone does not show that, because the log may have
grown past it since.

A member learns the present epochs by a Metadata request, which is under way while the coordinator
looks for the commits. The response has all partitions of a topic: if each member of a large group
requested it in each rebalance, the bytes would grow with the square of the group. So of a topic of
more than `MANY` partitions, the leaders that are known from earlier are asked about every commit. A
leader that has been replaced since refuses that, because the request has the epoch under which it
was known.

INVARIANT: a hand-over does not wait for what cannot be found out soon (`LONGEST`), nor for a
partition without a leader. Such a commit is believed, and the record source, which is told its
epoch, notices a later change of the leader.

Source: Kafka's ``SubscriptionState.maybeCompleteValidation`` and ``OffsetsForLeaderEpochClient``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, final

import trio

from kgroup.client.error_policy import Action, Request, failed_request, reaction_to
from kgroup.errors import (
    BrokerError,
    OffsetOutOfRangeError,
    TransportError,
    UnsupportedVersionError,
)
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.types import EpochEnd, TopicPartition

LONGEST: Final = 2.0
"""Seconds for which a hand-over waits for leaders to say where epochs end."""
MANY: Final = 200
"""The metadata of a topic of more partitions, some 5 kB, is not requested in each rebalance."""


@final
class CommitVerifier:
    """Verifies the commits at which the partitions of one generation start."""

    def __init__(self, member: MemberContext, lifecycle: Lifecycle) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._looked_up = trio.Event()
        self._up_to_date: frozenset[str] = frozenset()

    @property
    def knows_leaders(self) -> bool:
        """Whether this member requested the topics' metadata just now, as a group's leader does."""
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

    async def not_in_log(
        self, committed: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, OffsetOutOfRangeError]:
        """The commits whose records are not in their logs any more, as far as it is known soon.

        Args:
            committed: the offsets.
            epochs: the leader epochs of the records before those that are to be verified.

        Cancellation: requests that were sent break their connections; nothing else changes.
        """
        ends: dict[TopicPartition, EpochEnd | None] = {}
        if epochs:
            with trio.move_on_after(LONGEST):
                await self._looked_up.wait()
                await self._find_ends(epochs, ends)
        return {
            name: _error(name, committed[name], epochs[name], end)
            for name, end in sorted(ends.items(), key=lambda item: item[0])
            if end is None or end.offset < committed[name]
        }

    async def _look_up(self, topics: frozenset[str]) -> None:
        # A failure shows once more, and is reported, if there is something to verify.
        with suppress(BrokerError, TransportError, UnsupportedVersionError):
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
            try:
                answers = await member.cluster.epoch_ends(
                    left, use_cached=use_cached, up_to_date=self._up_to_date
                )
            except UnsupportedVersionError:
                return
            except (BrokerError, TransportError) as error:
                answers = dict.fromkeys(left, error)
            failed = {}
            for name, answer in answers.items():
                if isinstance(answer, BrokerError | TransportError):
                    failed[name] = answer
                else:
                    found[name] = answer
            left = {name: epochs[name] for name in self._to_ask_again(failed)}
            use_cached = False
            if left:
                await trio.sleep(backoff.next())

    def _to_ask_again(
        self, failed: Mapping[TopicPartition, BrokerError | TransportError]
    ) -> list[TopicPartition]:
        """Report these failures, and return what is worth another request."""
        reactions = {error: reaction_to(Request.EPOCH_ENDS, error) for error in failed.values()}
        for error, reaction in reactions.items():
            # A connection fails once for all partitions of its leader.
            request = failed_request(error, Request.EPOCH_ENDS)
            self._member.emitter.failed(request, error, reaction)
        return [name for name in failed if reactions[failed[name]].action is Action.RETRY]


def _error(
    partition: TopicPartition, offset: int, epoch: int, end: EpochEnd | None
) -> OffsetOutOfRangeError:
    found = (
        "does not know that epoch: its topic was created again, or it was truncated"
        if end is None
        else f"of that epoch ends at {end.offset}: it was truncated"
    )
    return OffsetOutOfRangeError(
        f"{partition}: offset {offset} is committed, after a record of leader epoch {epoch}, but"
        f" the log {found}. The partition is paused until seek() names an offset",
        partition,
        offset,
        None if end is None else end.offset,
    )
