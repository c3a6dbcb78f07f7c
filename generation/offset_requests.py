"""The requests by which a generation learns offsets, and whether topics exist.

Committed offsets come from the coordinator; where logs begin and end, from the partitions' leaders.
`StartFinder` and streams of offsets use them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeAlias, final
from uuid import UUID

import trio

from kgroup.client.error_policy import Action, Request, reaction_to
from kgroup.client.metadata import Metadata
from kgroup.client.partition_leaders import each_kind
from kgroup.client.retry import until_answered
from kgroup.errors import BrokerError, TransportError
from kgroup.generation.member_context import MemberContext
from kgroup.types import EpochEnd, IsolationLevel, Membership, OffsetAndMetadata, TopicPartition

Failure: TypeAlias = BrokerError | TransportError


@final
class OffsetRequests:
    """The requests of one generation.

    Args:
        member: the parts of the member.
        membership: the generation's.
    """

    def __init__(self, member: MemberContext, membership: Membership) -> None:
        self._member = member
        self._membership = membership

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The group's stable offsets; None where there is none.

        Raises:
            BrokerError | TransportError: what the error policy does not retry.

        Cancellation: the offsets connection may be broken; nothing else.
        """
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        member = self._member
        return await until_answered(
            Request.FETCH_OFFSETS,
            partial(member.coordinator.fetch_offsets, self._membership, partitions),
            find=member.coordinator.find,
            backoff=member.new_backoff(),
            report=member.emitter.failed,
        )

    async def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, use_cached: bool
    ) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, Failure]]:
        """Request of each partition the offset at a timestamp, and its leader epoch, once.

        Args:
            timestamps: `EARLIEST` or `LATEST` for each partition.
            use_cached: as for `Cluster.list_offsets`.

        Returns:
            what was found, and what failed.

        Cancellation: requests that were sent break their connections; nothing else changes.
        """
        found: dict[TopicPartition, EpochEnd] = {}
        failed: dict[TopicPartition, Failure] = {}
        # Sorted, so that the same partitions make the same requests in every run.
        for timestamp in sorted(set(timestamps.values())):
            names = sorted(name for name, wanted in timestamps.items() if wanted == timestamp)
            answers: Mapping[TopicPartition, EpochEnd | Failure]
            try:
                answers = await self._member.cluster.list_offsets_with_epochs(
                    names, timestamp, use_cached=use_cached
                )
            except (BrokerError, TransportError) as error:
                answers = dict.fromkeys(names, error)
            for name, answer in answers.items():
                if isinstance(answer, EpochEnd):
                    found[name] = answer
                else:
                    failed[name] = answer
        return found, failed

    async def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        isolation_level: IsolationLevel | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Offsets from the leaders that answer now; the others' partitions are left out.

        One request for each leader; Metadata is requested only where the leader is not known any
        more.

        Args:
            partitions: whose.
            timestamp: `EARLIEST` or `LATEST`.
            isolation_level: the group's by default.

        Raises:
            BrokerError: a leader refuses the request, and would refuse it again.

        Cancellation: nothing changes.
        """
        answers: Mapping[TopicPartition, int | Failure]
        try:
            answers = await self._member.cluster.list_offsets(
                sorted(partitions),
                timestamp,
                isolation_level=isolation_level,
                use_cached=True,
            )
        except TransportError as error:
            answers = dict.fromkeys(partitions, error)
        refused = self.report(
            {name: answer for name, answer in answers.items() if not isinstance(answer, int)}
        )
        for refusal in refused.values():
            raise refusal
        return {name: answer for name, answer in answers.items() if isinstance(answer, int)}

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """The ids of topics; without those that do not exist, and of brokers that have no ids.

        Raises:
            BrokerError | TransportError: what the error policy does not retry.

        Cancellation: nothing changes.
        """
        known = await self.metadata(topics)
        return {
            name: topic.topic_id
            for name, topic in known.topics.items()
            if topic.topic_id is not None
        }

    async def metadata(self, topics: Collection[str], foreign: Collection[str] = ()) -> Metadata:
        """The metadata of topics, however long it takes; the arguments are `Cluster.metadata`'s.

        Raises:
            BrokerError | TransportError: what the error policy does not retry.

        Cancellation: nothing changes.
        """
        return await until_answered(
            Request.METADATA,
            partial(self._member.cluster.metadata, topics, foreign),
            find=None,
            backoff=self._member.new_backoff(),
            report=self._member.emitter.failed,
        )

    def report(self, failed: Mapping[TopicPartition, Failure]) -> dict[TopicPartition, Failure]:
        """Report failures, each kind once, and return those that are worth no other request."""
        for error in each_kind(failed.values()):
            reaction = reaction_to(Request.LIST_OFFSETS, error)
            self._member.emitter.failed(Request.LIST_OFFSETS, error, reaction)
        return {name: error for name, error in failed.items() if not can_be_retried(error)}


def can_be_retried(error: Failure) -> bool:
    """Whether a failed ListOffsets is worth another one."""
    return reaction_to(Request.LIST_OFFSETS, error).action is Action.RETRY
