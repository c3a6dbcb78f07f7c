"""The metrics of a group: names, kinds, units, labels and meanings.

Names and labels for OpenTelemetry are those of its semantic conventions for messaging where these
have one, and begin with ``kgroup`` otherwise.
Source: OpenTelemetry's "Semantic conventions for messaging client metrics".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

import attrs


@final
class MetricKind(enum.Enum):
    """What a metric is."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@final
@attrs.frozen(kw_only=True, eq=False)
class Metric:
    """A metric.

    Attributes:
        prometheus: its name in Prometheus.
        opentelemetry: its name in OpenTelemetry.
        kind: what it is.
        unit: its unit, as OpenTelemetry writes it (UCUM).
        meaning: what it says, as a sentence.
        labels: its labels in Prometheus; the first one is always the group.
        attributes: attributes that it always has in OpenTelemetry.
        combine: how the values of several members of a group in one process become one, if it is a
            gauge.
    """

    prometheus: str
    opentelemetry: str
    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ("group",)
    attributes: Mapping[str, str] = attrs.field(factory=dict)
    combine: Callable[[Iterable[float]], float] = max


ATTRIBUTES: Final = {
    "group": "messaging.consumer.group.name",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "outcome": "error.type",
    "phase": "kgroup.rebalance.phase",
    "cause": "kgroup.generation.end.cause",
    "request": "kgroup.request",
    "event": "kgroup.event",
}
"""For each label of Prometheus the attribute of OpenTelemetry."""
SYSTEM: Final = {"messaging.system": "kafka"}
"""An attribute of all metrics and spans in OpenTelemetry."""
COMMITTED: Final = "committed"
"""The outcome of a commit that has succeeded."""
PROCESSED: Final = "processed"
"""The outcome of a batch that was processed."""
SUCCESSES: Final = frozenset({COMMITTED, PROCESSED})
"""The outcomes that are no errors, and so no ``error.type``."""
STALE: Final = "stale"
"""The outcome of a batch or a commit whose generation had ended."""
FAILED: Final = "failed"
"""The outcome of a batch for which the program raised an exception."""
CANCELLED: Final = "cancelled"
"""The outcome of a batch whose processing was cut short, not by an exception of its own."""
BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""The upper bounds of the histograms' buckets, in seconds."""

RECORDS: Final = Metric(
    prometheus="kgroup_records_total",
    opentelemetry="messaging.client.consumed.messages",
    kind=MetricKind.COUNTER,
    unit="{message}",
    meaning="Records that were handed out.",
    labels=("group", "topic", "partition"),
    attributes={"messaging.operation.name": "poll", "messaging.operation.type": "receive"},
)
BATCH: Final = Metric(
    prometheus="kgroup_batch_seconds",
    opentelemetry="messaging.process.duration",
    kind=MetricKind.HISTOGRAM,
    unit="s",
    meaning=(
        "The time for which the program had a batch, until it asked for the next one or raised. The"
        " outcome is processed; failed, if it raised; stale, if it raised because the generation"
        " had ended; or cancelled."
    ),
    labels=("group", "topic", "outcome"),
    attributes={"messaging.operation.name": "process", "messaging.operation.type": "process"},
)
COMMIT: Final = Metric(
    prometheus="kgroup_commit_seconds",
    opentelemetry="messaging.client.operation.duration",
    kind=MetricKind.HISTOGRAM,
    unit="s",
    meaning=(
        "The time of a commit, from the request to its response. The outcome is committed; stale,"
        " if the generation ended meanwhile; or refused, if it was refused for another reason or"
        " got no answer."
    ),
    labels=("group", "outcome"),
    attributes={"messaging.operation.name": "commit", "messaging.operation.type": "settle"},
)
REBALANCE: Final = Metric(
    prometheus="kgroup_rebalance_seconds",
    opentelemetry="kgroup.rebalance.duration",
    kind=MetricKind.HISTOGRAM,
    unit="s",
    meaning="The time from the end of a generation, or the first join, to the next generation.",
)
REBALANCE_PHASE: Final = Metric(
    prometheus="kgroup_rebalance_phase_seconds",
    opentelemetry="kgroup.rebalance.phase.duration",
    kind=MetricKind.HISTOGRAM,
    unit="s",
    meaning=(
        "The parts of that time: drain, until the work has ended; rejoin, until the program is back"
        " in next() and waits are over; join, until JoinGroup is answered; sync, until the"
        " partitions and their start offsets are known; hand_over, until the program has them."
    ),
    labels=("group", "phase"),
)
GENERATIONS: Final = Metric(
    prometheus="kgroup_generations_ended_total",
    opentelemetry="kgroup.generation.ended",
    kind=MetricKind.COUNTER,
    unit="{generation}",
    meaning="Generations that have ended, by the cause.",
    labels=("group", "cause"),
)
FAILURES: Final = Metric(
    prometheus="kgroup_requests_failed_total",
    opentelemetry="kgroup.request.failures",
    kind=MetricKind.COUNTER,
    unit="{request}",
    meaning=(
        "Requests to brokers that failed, refused heartbeats included, and commits that were sent"
        " again; kgroup_commit_seconds counts those that were refused."
    ),
    labels=("group", "request"),
)
RETRIED: Final = Metric(
    prometheus="kgroup_records_retried_total",
    opentelemetry="kgroup.records.retried",
    kind=MetricKind.COUNTER,
    unit="{message}",
    meaning="Attempts to process a record that failed and were followed by another one.",
    labels=("group", "topic"),
)
PARKED: Final = Metric(
    prometheus="kgroup_records_parked_total",
    opentelemetry="kgroup.records.parked",
    kind=MetricKind.COUNTER,
    unit="{message}",
    meaning="Records that kept failing and were parked.",
    labels=("group", "topic"),
)
LATE: Final = Metric(
    prometheus="kgroup_heartbeats_late_total",
    opentelemetry="kgroup.heartbeat.late",
    kind=MetricKind.COUNTER,
    unit="{heartbeat}",
    meaning=(
        "Heartbeats that were late by over a third of the session timeout, because the event loop"
        " was blocked or the process suspended."
    ),
)
WARNINGS: Final = Metric(
    prometheus="kgroup_warnings_total",
    opentelemetry="kgroup.warnings",
    kind=MetricKind.COUNTER,
    unit="{event}",
    meaning="Events of the level WARNING, by their name (docs/events.md).",
    labels=("group", "event"),
)
LAG: Final = Metric(
    prometheus="kgroup_lag",
    opentelemetry="kgroup.partition.lag",
    kind=MetricKind.GAUGE,
    unit="{message}",
    meaning="How far a partition's reader is behind its high watermark, as generation.lag() says.",
    labels=("group", "topic", "partition"),
)
PARTITIONS: Final = Metric(
    prometheus="kgroup_partitions",
    opentelemetry="kgroup.partition.count",
    kind=MetricKind.GAUGE,
    unit="{partition}",
    meaning="The partitions of the generation.",
    combine=sum,
)
GENERATION_AGE: Final = Metric(
    prometheus="kgroup_generation_age_seconds",
    opentelemetry="kgroup.generation.age",
    kind=MetricKind.GAUGE,
    unit="s",
    meaning="The time since the program received the generation; 0 without one.",
    combine=min,
)
BUFFERED_RECORDS: Final = Metric(
    prometheus="kgroup_buffered_records",
    opentelemetry="kgroup.buffer.records",
    kind=MetricKind.GAUGE,
    unit="{message}",
    meaning="Records that were fetched and not handed out, without those in librdkafka's queue.",
    combine=sum,
)
BUFFERED_BYTES: Final = Metric(
    prometheus="kgroup_buffered_bytes",
    opentelemetry="kgroup.buffer.size",
    kind=MetricKind.GAUGE,
    unit="By",
    meaning="The bytes of those records.",
    combine=sum,
)
RECORD_AGE: Final = Metric(
    prometheus="kgroup_last_record_age_seconds",
    opentelemetry="kgroup.record.age",
    kind=MetricKind.GAUGE,
    unit="s",
    meaning=(
        "The time since a record was last handed out, or since the process first entered the group."
    ),
    combine=min,
)
HEARTBEAT_AGE: Final = Metric(
    prometheus="kgroup_heartbeat_age_seconds",
    opentelemetry="kgroup.heartbeat.age",
    kind=MetricKind.GAUGE,
    unit="s",
    meaning="The time since the last heartbeat that confirmed the membership; 0 without one.",
)
BATCH_AGE: Final = Metric(
    prometheus="kgroup_batch_age_seconds",
    opentelemetry="kgroup.batch.age",
    kind=MetricKind.GAUGE,
    unit="s",
    meaning="The longest time for which a handler has had its batch.",
)
LIVE: Final = Metric(
    prometheus="kgroup_live",
    opentelemetry="kgroup.live",
    kind=MetricKind.GAUGE,
    unit="1",
    meaning="1, or 0 if only a restart of the program helps: group.health().live.",
    combine=min,
)
READY: Final = Metric(
    prometheus="kgroup_ready",
    opentelemetry="kgroup.ready",
    kind=MetricKind.GAUGE,
    unit="1",
    meaning="1 if the member does its part of the group's work: group.health().ready.",
    combine=min,
)

METRICS: Final = (
    *(LAG, RECORDS, RECORD_AGE, BATCH, BATCH_AGE, RETRIED, PARKED, COMMIT),
    *(LIVE, READY, PARTITIONS, GENERATION_AGE, GENERATIONS, REBALANCE, REBALANCE_PHASE),
    *(HEARTBEAT_AGE, LATE, FAILURES, WARNINGS, BUFFERED_RECORDS, BUFFERED_BYTES),
)
"""All metrics, as docs/metrics.md lists them."""
