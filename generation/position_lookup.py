"""Where each partition starts: the committed offset, or what ``auto_offset_reset`` says.

Offsets are fetched stable: a transaction that is still to decide is waited for, never read as "no
offset". With ``latest``, a partition without an offset in a topic of which the group has others
starts at the earliest: it was added later, and its first records count.

Source: KIP-447 (stable offsets), KIP-32 (ListOffsets); Kafka's ``ConsumerCoordinator`` and
``OffsetFetcher``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.client.cluster import EARLIEST, LATEST, Cluster
from kgroup.client.error_policy import Action, Request, decide
from kgroup.client.retry import Report, until_answered
from kgroup.errors import BrokerError, NoOffsetError, OffsetOutOfRangeError, TransportError
from kgroup.interfaces import Coordinator
from kgroup.types import (
    AutoOffsetReset,
    IsolationLevel,
    Membership,
    OffsetAndMetadata,
    TopicPartition,
)

_TIMESTAMPS: Final = {AutoOffsetReset.EARLIEST: EARLIEST, AutoOffsetReset.LATEST: LATEST}


@final
@attrs.frozen
class StartPosition:
    """A position that no commit gave: the offset, by which rule, and why."""

    offset: int
    rule: AutoOffsetReset
    reason: str


@final
class PositionLookup:
    """Finds positions for one membership."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        membership: Membership,
        reset: AutoOffsetReset,
        *,
        backoff: Callable[[], Backoff],
        report: Report,
    ) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self.membership = membership
        self._reset = reset
        self._backoff = backoff
        self._report = report

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The group's stable offsets; None where there is none.

        Raises:
            BrokerError | TransportError: what the recovery table does not retry.

        Cancellation: the offsets connection may be broken; nothing else.
        """
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        return await until_answered(
            Request.FETCH_OFFSETS,
            partial(self._coordinator.fetch_offsets, self.membership, partitions),
            find=self._coordinator.find,
            backoff=self._backoff(),
            report=self._report,
        )

    async def without_commit(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, StartPosition]:
        """Positions of partitions for which nothing is committed.

        Raises:
            NoOffsetError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is AutoOffsetReset.ERROR:
            names = ", ".join(map(str, sorted(partitions)))
            raise NoOffsetError(
                f"{self.membership}: no offset is committed for {names} and auto_offset_reset is"
                " 'error'; commit a position first, or choose 'earliest' or 'latest'"
            )
        rule = self._reset
        late: Collection[TopicPartition] = ()
        if rule is AutoOffsetReset.LATEST:
            late = await self._added_later(partitions)
        found: dict[TopicPartition, StartPosition] = {}
        reason = f"no offset is committed, so by auto_offset_reset at the {rule.value}"
        for name, offset in (await self._list(set(partitions).difference(late), rule)).items():
            found[name] = StartPosition(offset, rule, reason)
        reason = "no offset is committed and the partition was added later, so at the earliest"
        for name, offset in (await self._list(late, AutoOffsetReset.EARLIEST)).items():
            found[name] = StartPosition(offset, AutoOffsetReset.EARLIEST, reason)
        return found

    async def out_of_range(self, error: OffsetOutOfRangeError) -> StartPosition:
        """The position after one that the log does not have.

        Raises:
            OffsetOutOfRangeError: the very one, where ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is AutoOffsetReset.ERROR:
            raise error
        found = await self._list([error.partition], self._reset)
        at = f"offset {error.offset}" if error.offset >= 0 else "its position"
        reason = f"{at} is not in the log, so by auto_offset_reset at the {self._reset.value}"
        return StartPosition(found[error.partition], self._reset, reason)

    async def now(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        isolation_level: IsolationLevel | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Offsets from the leaders that answer now; the others' partitions are left out.

        One request for each leader; Metadata is asked only where who leads is not known any more.

        Raises:
            BrokerError: a leader refuses for good.

        Cancellation: nothing changes.
        """
        found: dict[TopicPartition, int] = {}
        try:
            answers = await self._cluster.list_offsets(
                sorted(partitions),
                timestamp,
                isolation_level=isolation_level,
                remembered=True,
            )
        except TransportError as error:
            self._report(Request.LIST_OFFSETS, error, decide(Request.LIST_OFFSETS, error))
            return found
        told: set[TransportError] = set()
        for name, answer in answers.items():
            if isinstance(answer, int):
                found[name] = answer
                continue
            if answer in told:  # the way to one leader fails once for all of its partitions
                continue
            reaction = decide(Request.LIST_OFFSETS, answer)
            if reaction.action is not Action.RETRY:
                raise answer
            self._report(Request.LIST_OFFSETS, answer, reaction)
            if isinstance(answer, TransportError):
                told.add(answer)
        return found

    async def _added_later(
        self, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Those of topics of which the group has committed other partitions."""
        topics = {name.topic for name in partitions}
        known = await until_answered(
            Request.METADATA,
            partial(self._cluster.metadata, topics),
            find=None,
            backoff=self._backoff(),
            report=self._report,
        )
        everything = [
            TopicPartition(topic.name, number)
            for topic in known.topics.values()
            for number in range(topic.partitions)
        ]
        committed = await self.committed(everything)
        begun = {name.topic for name, offset in committed.items() if offset is not None}
        return frozenset(name for name in partitions if name.topic in begun)

    async def _list(
        self, partitions: Collection[TopicPartition], rule: AutoOffsetReset
    ) -> dict[TopicPartition, int]:
        """Offsets from the leaders, however long it takes for all to answer."""
        found: dict[TopicPartition, int] = {}

        async def ask() -> None:
            # Sorted, so that the same partitions make the same requests in every run.
            wanted = sorted(set(partitions) - found.keys())
            answers = await self._cluster.list_offsets(wanted, _TIMESTAMPS[rule])
            failed: BrokerError | TransportError | None = None
            for name, answer in answers.items():
                if isinstance(answer, int):
                    found[name] = answer
                else:
                    failed = answer
            if failed is not None:
                raise failed

        if partitions:
            await until_answered(
                Request.LIST_OFFSETS,
                ask,
                find=None,
                backoff=self._backoff(),
                report=self._report,
            )
        return found
