"""What the streams of a generation share: the partitions that they hold, and for how long.

A stream holds its partitions while it is open: no other stream of the generation can read them. It
ends when its generation does, whatever the cause. `RecordStream` (``record_stream``) hands out
records. `OffsetStream` (``offset_stream``) is for programs that read them by other means.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, final

import attrs

from kgroup.generation.commits import Committer
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.generation.pauses import Pauses
from kgroup.generation.position_searches import PositionSearches
from kgroup.generation.positions import Positions
from kgroup.generation.start_finder import StartFinder
from kgroup.generation.states import State
from kgroup.loop_thread import LoopThread
from kgroup.retry_policy import OpenRecords
from kgroup.types import TopicPartition
from kgroup.uncopied import SEND_MESSAGES, Uncopied


@final
@attrs.frozen(kw_only=True, eq=False)
class GenerationParts:
    """The live parts of one generation, which the generation and its streams share.

    Attributes:
        member: the parts of the member that outlive this generation.
        lifecycle: the generation's state, lease and tasks.
        positions: where its partitions start, and what may be committed.
        starts: finds positions that are not known, or that do not exist.
        searches: when it does so, after the hand-over.
        committer: sends its commits.
        pauses: the partitions of which nothing is handed out.
        open_records: the records that have failed, and are to be tried again.
    """

    member: MemberContext
    lifecycle: Lifecycle
    positions: Positions
    starts: StartFinder
    searches: PositionSearches
    committer: Committer
    pauses: Pauses
    open_records: OpenRecords = attrs.field(factory=OpenRecords)


class PartitionStream(Uncopied):
    """The partitions that a stream of one generation holds. Made by the class that is a stream.

    Args:
        parts: the generation's.
        partitions: those of this stream.
        open_streams: the generation's open streams, which this one joins until it is closed.

    Attributes:
        partitions: those of this stream.
    """

    _in_its_place = SEND_MESSAGES

    def __init__(
        self,
        parts: GenerationParts,
        partitions: frozenset[TopicPartition],
        open_streams: set[Any],
    ) -> None:
        self._member = parts.member
        self._lifecycle = parts.lifecycle
        self._positions = parts.positions
        self._open_streams = open_streams
        self._closed = False
        self._loop_thread = LoopThread()
        self._held_since: dict[Hashable, float] = {}
        """Since when the program has had each batch, by what `_hold` was called with."""
        self.partitions = partitions
        open_streams.add(self)

    @property
    def held_for(self) -> float:
        """The longest time in seconds for which the program has held a batch; 0 if it has none."""
        since = list(self._held_since.values())  # a copy: threads may change it meanwhile
        return self._member.clock.now() - min(since) if since else 0.0

    def _hold(self, work: Hashable) -> None:
        """The program is given a batch: that of a partition, or another one at the same time."""
        self._release(work)
        self._held_since[work] = self._member.clock.now()

    def _release(self, work: Hashable) -> float:
        """It has processed that batch; the seconds that this took, 0 if it had none."""
        since = self._held_since.pop(work, None)
        if since is None:
            return 0.0
        seconds = self._member.clock.now() - since
        self._lifecycle.batch_took(seconds)
        return seconds

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them.

        Raises:
            UsageError: another thread calls it.
        """
        # In a forked process it changes only that process's copy, and may be a part of its end.
        if not self._loop_thread.is_here:
            self._check_thread("close")
        self._closed = True
        self._open_streams.discard(self)

    def __repr__(self) -> str:
        names = ", ".join(map(str, sorted(self.partitions)))
        return f"<{type(self).__name__} of {names}{', closed' if self._closed else ''}>"

    def _check_thread(self, method: str, *, waits: bool = False) -> None:
        self._loop_thread.check(self._lifecycle.membership, f"stream.{method}", waits=waits)

    def _is_running(self) -> bool:
        return self._lifecycle.state is State.RUNNING and not self._closed
