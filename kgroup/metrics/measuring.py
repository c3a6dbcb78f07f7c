"""What is measured: a `Monitor` that turns events, batches and the state of groups into numbers.

`Measuring` gives counts and durations to a `Sink` as they happen. It computes gauges when they are
read, in any thread, so that they show a group whose event loop is blocked, too.

Of a group that has ended, `table.READY` and `table.LIVE` stay, because an alert on an absent series
never fires. The group itself is held only until one of its reads has seen its end.

INVARIANT: what is kept of groups that have ended is one `Health` for each group id.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, final

from kgroup.errors import StaleGenerationError
from kgroup.events import (
    BatchCancelled,
    BatchDone,
    BatchFailed,
    CommitRefused,
    Committed,
    Event,
    GenerationEnded,
    LoopBlocked,
    RecordFailed,
    RecordParked,
    RequestFailed,
)
from kgroup.functions import program_errors
from kgroup.health import Health
from kgroup.metrics import table
from kgroup.metrics.rebalances import RebalanceTimes
from kgroup.metrics.table import Metric
from kgroup.monitors import Monitored
from kgroup.status import ENDED, Phase
from kgroup.types import TopicPartition

Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""


class Sink(Protocol):
    """Takes numbers, in any thread."""

    def add(self, metric: Metric, labels: Labels, number: int) -> None:
        """Add to a counter."""
        ...

    def observe(self, metric: Metric, labels: Labels, seconds: float) -> None:
        """Add a duration to a histogram."""
        ...


@final
class Measuring:
    """A `Monitor` of any number of groups.

    Args:
        sink: takes counts and durations.
        now: the clock, in seconds.
    """

    def __init__(self, sink: Sink, now: Callable[[], float]) -> None:
        self._sink = sink
        self._now = now
        self._rebalances = RebalanceTimes(now)
        self._lock = threading.RLock()
        """Of the three below. A finalizer in the thread that has it may enter another group."""
        self._groups: list[weakref.ref[Monitored]] = []
        self._running: dict[int, Monitored] = {}
        """By their ids: the groups whose end was not seen, so that none vanishes before it was."""
        self._ended: dict[str, Health] = {}
        """By group id the last one that has ended, or has failed, since one was attached."""
        self._last_record: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        group = event.group_id
        for span in self._rebalances.take(event):
            if span.phase:
                self._sink.observe(table.REBALANCE_PHASE, (group, span.phase), span.seconds)
            else:
                self._sink.observe(table.REBALANCE, (group,), span.seconds)
        if isinstance(event, Committed):
            self._sink.observe(table.COMMIT, (group, table.COMMITTED), event.seconds)
        elif isinstance(event, CommitRefused):
            outcome = table.STALE if event.stale else "refused"
            self._sink.observe(table.COMMIT, (group, outcome), event.seconds)
        elif isinstance(event, BatchDone):
            self._take_batch(event)
        elif isinstance(event, BatchFailed):
            self._observe_batch(event, table.FAILED, event.running)
        elif isinstance(event, BatchCancelled):
            self._observe_batch(event, table.CANCELLED, event.running)
        elif (counted := _COUNTED.get(type(event))) is not None:
            metric, labels = counted
            self._sink.add(metric, (group, *labels(event)), 1)
        if event.severity >= logging.WARNING:
            self._sink.add(table.WARNINGS, (group, type(event).__name__), 1)

    def _take_batch(self, event: BatchDone) -> None:
        """Count a batch of Spark's by its offsets: its records are not counted by partition."""
        for partition, (first, end) in event.ranges.items():
            self.handed_out(event.group_id, partition, end - first)
        seconds = event.planning + event.running + event.committing
        self._observe_batch(event, table.PROCESSED, seconds)

    def _observe_batch(
        self, event: BatchDone | BatchFailed | BatchCancelled, outcome: str, seconds: float
    ) -> None:
        for topic in {partition.topic for partition in event.ranges}:
            self._sink.observe(table.BATCH, (event.group_id, topic, outcome), seconds)

    def attach(self, group: Monitored) -> None:
        """Measure a group until it is closed; it replaces those of its id that have ended."""
        self._rebalances.entered(group)
        group_id = group.status().group_id
        self._last_record.setdefault(group_id, self._now())
        with self._lock:
            over = [
                one
                for one, health in self._seen()
                if health.status.group_id == group_id and health.status.phase in ENDED
            ]
            self._ended.pop(group_id, None)
            self._running[id(group)] = group
            # In place: a finalizer may have entered another group meanwhile.
            self._groups.append(weakref.ref(group))
            for known in self._groups.copy():
                if (one := known()) is None or one in over:
                    self._groups.remove(known)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """Count records."""
        self._last_record[group_id] = self._now()
        labels = (group_id, partition.topic, str(partition.partition))
        self._sink.add(table.RECORDS, labels, records)

    def processed(
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """Measure a batch."""
        del records
        self._sink.observe(table.BATCH, (group_id, partition.topic, _outcome(error)), seconds)

    def gauges(self, *metrics: Metric) -> dict[Metric, dict[Labels, float]]:
        """The present values of gauges, by their labels; each group is judged once."""
        with self._lock:
            seen = self._seen()
            ended = dict(self._ended)
        healths = [health for _, health in seen if health.status.phase not in ENDED]
        present = {health.status.group_id for health in healths}
        # A member that failed is not made well by others of its group, unlike one that was closed.
        lasting = [
            *healths,
            *(
                health
                for group_id, health in ended.items()
                if group_id not in present or health.status.phase is Phase.FAILED
            ),
        ]
        return {
            metric: self._gauge(metric, lasting if metric in _LASTING else healths)
            for metric in metrics
        }

    def _seen(self) -> list[tuple[Monitored, Health]]:
        """Each group that exists, and its health; what has ended is kept. Under the lock."""
        groups = [group for one in self._groups if (group := one()) is not None]
        seen = [(group, group.health()) for group in groups]
        for group, health in seen:
            if health.status.phase in ENDED:
                self._running.pop(id(group), None)
                group_id = health.status.group_id
                kept = self._ended.setdefault(group_id, health)
                if kept.status.phase is not Phase.FAILED:
                    self._ended[group_id] = health
        return seen

    def _gauge(self, metric: Metric, healths: Iterable[Health]) -> dict[Labels, float]:
        found: dict[Labels, list[float]] = {}
        for health in healths:
            for labels, value in self._values(metric, health):
                found.setdefault((health.status.group_id, *labels), []).append(value)
        return {labels: metric.combine(values) for labels, values in found.items()}

    def _values(self, metric: Metric, health: Health) -> Iterator[tuple[Labels, float]]:
        status = health.status
        if metric is table.LAG:
            for partition, lag in status.lag.items():
                if lag is not None:
                    yield (partition.topic, str(partition.partition)), lag
        elif metric is table.RECORD_AGE:
            yield (), max(0.0, self._now() - self._last_record[status.group_id])
        else:
            yield (), _GAUGES[metric](health)


def _outcome(error: BaseException | None) -> str:
    """The outcome of a batch."""
    if error is None:
        return table.PROCESSED
    raised, _ = program_errors(error)
    if raised is None:
        return table.CANCELLED
    # A nursery of the program raises groups, as if it were one.
    _, failures = BaseExceptionGroup("raised", [raised]).split(StaleGenerationError)
    return table.STALE if failures is None else table.FAILED


_LASTING: Final = frozenset({table.READY, table.LIVE})
"""The gauges that a group keeps after its end."""
_COUNTED: Final[dict[type[Event], tuple[Metric, Callable[[Any], Labels]]]] = {
    GenerationEnded: (table.GENERATIONS, lambda event: (event.end.cause.value,)),
    RequestFailed: (table.FAILURES, lambda event: (event.request,)),
    RecordFailed: (table.RETRIED, lambda event: (event.partition.topic,)),
    RecordParked: (table.PARKED, lambda event: (event.partition.topic,)),
    LoopBlocked: (table.LATE, lambda _: ()),
}
"""For each event that is counted the counter, and its labels behind the group."""
_GAUGES: Final[dict[Metric, Callable[[Health], float]]] = {
    table.PARTITIONS: lambda health: len(health.status.lag),
    table.GENERATION_AGE: lambda health: health.status.age,
    table.BUFFERED_RECORDS: lambda health: health.status.buffered_records,
    table.BUFFERED_BYTES: lambda health: health.status.buffered_bytes,
    table.HEARTBEAT_AGE: lambda health: health.status.heartbeat_age,
    table.BATCH_AGE: lambda health: health.status.batch_age,
    table.LIVE: lambda health: float(health.live),
    table.READY: lambda health: float(health.ready),
}
