"""Reads the logs from within the process: decoded records, positions, waiting for more.

In-memory ``RecordSource``s and tests use it. Consumers over the wire fetch batches instead.
"""

from __future__ import annotations

from typing import final
from uuid import UUID

from kgroup.broker.log import PartitionLog
from kgroup.broker.records import UnreadableBatchError
from kgroup.broker.request_error import RequestError
from kgroup.broker.topics import Topics
from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.records.memory import BatchRecords
from kgroup.types import IsolationLevel, TopicPartition


@final
class LogReader:
    """All logs of a broker, to read."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic, or None for an unknown one; a topic created again has another id."""
        found = self._topics.get(topic)
        return None if found is None else found.topic_id

    def start_offset(self, partition: TopicPartition) -> int:
        """The first offset that can be read.

        Raises:
            FetchError: there is no such partition.
        """
        return self._log(partition).start_offset

    def end_offset(
        self,
        partition: TopicPartition,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> int:
        """The offset up to which records can be read: the end, or the last stable offset.

        Raises:
            FetchError: there is no such partition.
        """
        return self._log(partition).limit(committed=_committed(isolation))

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        max_records: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> BatchRecords:
        """Records from an offset on, at most ``max_records``; does not wait.

        Raises:
            OffsetOutOfRangeError: the offset is outside of the log.
            FetchError: there is no such partition, or a batch's records cannot be read.
        """
        log = self._log(partition)
        try:
            records, following = log.records(offset, max_records, committed=_committed(isolation))
        except RequestError as error:
            raise OffsetOutOfRangeError(
                f"{partition}: {error.message}", partition, offset
            ) from error
        except UnreadableBatchError as error:
            raise FetchError(f"{partition}: {error}", partition) from error
        return BatchRecords(records, following)

    async def wait_for(
        self,
        partition: TopicPartition,
        offset: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        """Wait until ``read`` at this offset may return records.

        It returns after any change of the log, also when the topic is deleted: read again.

        Raises:
            FetchError: there is no such partition.

        Cancellation: nothing is left behind.
        """
        await self._log(partition).wait_beyond(offset, committed=_committed(isolation))

    def _log(self, partition: TopicPartition) -> PartitionLog:
        try:
            return self._topics.log(partition.topic, partition.partition)
        except RequestError as error:
            raise FetchError(
                f"the embedded broker has no partition {partition}", partition
            ) from error


def _committed(isolation: IsolationLevel) -> bool:
    return isolation is IsolationLevel.READ_COMMITTED
