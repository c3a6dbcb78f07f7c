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

from kgroup.backoff import Backoff
from kgroup.cluster import EARLIEST, LATEST, Cluster
from kgroup.errors import BrokerError, NoOffsetError, OffsetOutOfRangeError, TransportError
from kgroup.model import IsolationLevel, Membership, OffsetAndMetadata, OffsetReset, TopicPartition
from kgroup.protocols import Coordinator
from kgroup.recovery import Request, Then, decide
from kgroup.retry import Report, until_answered

_TIMESTAMPS: Final = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}


@final
@attrs.frozen
class Start:
    """A position that no commit gave: the offset, by which rule, and why."""

    offset: int
    rule: OffsetReset
    reason: str


@final
class Positions:
    """Finds positions for one membership."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        membership: Membership,
        reset: OffsetReset,
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
    ) -> Mapping[TopicPartition, Start]:
        """Positions of partitions for which nothing is committed.

        Raises:
            NoOffsetError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is OffsetReset.ERROR:
            names = ", ".join(map(str, sorted(partitions)))
            raise NoOffsetError(
                f"{self.membership}: no offset is committed for {names} and auto_offset_reset is"
                " 'error'; commit a position first, or choose 'earliest' or 'latest'"
            )
        rule = self._reset
        late: Collection[TopicPartition] = ()
        if rule is OffsetReset.LATEST:
            late = await self._added_later(partitions)
        found: dict[TopicPartition, Start] = {}
        reason = f"no offset is committed, so by auto_offset_reset at the {rule.value}"
        for name, offset in (await self._list(set(partitions).difference(late), rule)).items():
            found[name] = Start(offset, rule, reason)
        reason = "no offset is committed and the partition was added later, so at the earliest"
        for name, offset in (await self._list(late, OffsetReset.EARLIEST)).items():
            found[name] = Start(offset, OffsetReset.EARLIEST, reason)
        return found

    async def out_of_range(self, error: OffsetOutOfRangeError) -> Start:
        """The position after one that the log does not have.

        Raises:
            OffsetOutOfRangeError: the very one, where ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        if self._reset is OffsetReset.ERROR:
            raise error
        found = await self._list([error.partition], self._reset)
        at = f"offset {error.offset}" if error.offset >= 0 else "its position"
        reason = f"{at} is not in the log, so by auto_offset_reset at the {self._reset.value}"
        return Start(found[error.partition], self._reset, reason)

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
            move = decide(Request.LIST_OFFSETS, answer)
            if move.then is not Then.RETRY:
                raise answer
            self._report(Request.LIST_OFFSETS, answer, move)
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
        self, partitions: Collection[TopicPartition], rule: OffsetReset
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
