"""Metrics and traces for OpenTelemetry, with the extra ``kgroup[opentelemetry]``.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging, which are
still in development: a later release of kgroup may follow them to other names.

A batch has one span, which links to the context that each record's producer has written into its
headers; a span has one parent at most, and a batch has many producers. A program that processes
records one by one can make spans of its own with `context_of`.

Source: OpenTelemetry's "Semantic conventions for messaging spans" and "... for Kafka".
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, Final, Protocol, TypeVar, cast, final

from kgroup.batch_handler import progress_of
from kgroup.events import CommitRefused, Committed, Event
from kgroup.functions import is_async, name_of
from kgroup.interfaces import Batch, Headers, Message
from kgroup.metrics.measuring import Labels, Measuring
from kgroup.metrics.rebalances import RebalanceTimes
from kgroup.metrics.table import ATTRIBUTES, BUCKETS, METRICS, SUCCESSES, SYSTEM, Metric, MetricKind
from kgroup.monitors import Monitored
from kgroup.record_headers import headers_of
from kgroup.types import TopicPartition

try:
    from opentelemetry import metrics, propagate, trace
except ImportError as missing:
    raise ImportError(
        "kgroup.metrics.opentelemetry needs the package opentelemetry-api, which is not installed:"
        " pip install 'kgroup[opentelemetry]'"
    ) from missing
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

SCOPE: Final = "kgroup"
"""The name of the instrumentation scope."""
_NANOSECONDS: Final = 1_000_000_000
R = TypeVar("R")


@final
class OpenTelemetryMetrics:
    """The metrics of all groups that it is given to as ``on_event``; one serves any number.

    Gauges are read when metrics are exported, in the thread that exports them.

    Args:
        provider: the meter provider; by default the one of the process.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        provider: metrics.MeterProvider | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        meter = (provider or metrics.get_meter_provider()).get_meter(SCOPE)
        self._measuring = Measuring(self, now)
        self._counters: dict[Metric, metrics.Counter] = {}
        self._histograms: dict[Metric, metrics.Histogram] = {}
        for metric in METRICS:
            name, unit, meaning = metric.opentelemetry, metric.unit, metric.meaning
            match metric.kind:
                case MetricKind.COUNTER:
                    self._counters[metric] = meter.create_counter(name, unit, meaning)
                case MetricKind.HISTOGRAM:
                    self._histograms[metric] = meter.create_histogram(
                        name, unit, meaning, explicit_bucket_boundaries_advisory=BUCKETS
                    )
                case MetricKind.GAUGE:
                    read = partial(self._read, metric)
                    meter.create_observable_gauge(name, [read], unit, meaning)

    # A Monitor.

    def __call__(self, event: Event) -> None:
        """See `Monitor`."""
        self._measuring(event)

    def attach(self, group: Monitored) -> None:
        """See `Monitor`."""
        self._measuring.attach(group)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See `Monitor`."""
        self._measuring.handed_out(group_id, partition, records)

    def processed(
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """See `Monitor`."""
        self._measuring.processed(group_id, partition, records, seconds, error)

    # A Sink.

    def add(self, metric: Metric, labels: Labels, number: int) -> None:
        """See `Sink`."""
        self._counters[metric].add(number, attributes_of(metric, labels))

    def observe(self, metric: Metric, labels: Labels, seconds: float) -> None:
        """See `Sink`."""
        self._histograms[metric].record(seconds, attributes_of(metric, labels))

    def _read(self, metric: Metric, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for labels, value in self._measuring.gauges(metric)[metric].items():
            yield metrics.Observation(value, attributes_of(metric, labels))


def attributes_of(metric: Metric, labels: Labels) -> dict[str, str]:
    """The attributes of a measurement; what has succeeded has no ``error.type``."""
    named = {
        ATTRIBUTES[name]: value
        for name, value in zip(metric.labels, labels, strict=True)
        if name != "outcome" or value not in SUCCESSES
    }
    return {**SYSTEM, **metric.attributes, **named}


class TracedGeneration(Protocol):
    """What a span names of a generation: of either kind."""

    @property
    def group_id(self) -> str:
        """The group."""
        ...

    @property
    def member_id(self) -> str:
        """The member."""
        ...

    @property
    def generation_id(self) -> int:
        """The generation."""
        ...


M = TypeVar("M", bound=TracedGeneration)


@final
class OpenTelemetryTraces:
    """Spans of batches, commits and rebalances.

    Given to a group as ``on_event``, it makes the spans of commits and rebalances. For batches,
    wrap the function that processes them with `traced`, or its work with `process`::

        traces = OpenTelemetryTraces()
        kgroup.run(config, traces.traced(handle), on_event=traces)

    Args:
        provider: the tracer provider; by default the one of the process.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        provider: trace.TracerProvider | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracer = (provider or trace.get_tracer_provider()).get_tracer(SCOPE)
        self._rebalances = RebalanceTimes(now)
        self._now = now

    # A Monitor, so that a busy event loop of asyncio does not falsify the times.

    def __call__(self, event: Event) -> None:
        """See `Monitor`."""
        if isinstance(event, Committed | CommitRefused):
            self._commit(event)
        self._rebalance(event)

    def attach(self, group: Monitored) -> None:
        """See `Monitor`."""
        self._rebalances.entered(group)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See `Monitor`."""

    def processed(
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """See `Monitor`."""

    @contextmanager
    def process(self, generation: TracedGeneration, batch: Batch) -> Iterator[trace.Span]:
        """A block that processes a batch, in any thread; its span is the current one in it.

        The span links to the contexts of the records' producers. An exception that leaves the block
        is recorded, and raised.

        Args:
            generation: the generation, of either kind.
            batch: the batch.
        """
        attributes: dict[str, str | int] = {
            **SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": generation.group_id,
            "messaging.client.id": generation.member_id,
            "messaging.destination.name": batch.partition.topic,
            "messaging.destination.partition.id": str(batch.partition.partition),
            "messaging.batch.message_count": len(batch),
            "messaging.kafka.offset": batch.start_offset,
            "kgroup.generation.id": generation.generation_id,
        }
        name, kind = f"process {batch.partition.topic}", SpanKind.CONSUMER
        links = links_of(batch.messages)
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, links=links
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def traced(self, handle: Callable[[M, Batch], R]) -> Callable[[M, Batch], R]:
        """A function for ``run`` or ``serve``, plain or async, that is called within `process`.

        It commits what ``handle`` would, also what ``kgroup.retrying`` has processed before it
        fails.
        """

        @wraps(handle)
        async def process_async(generation: M, batch: Batch) -> Any:  # R is awaitable
            progress_of(process_async, batch).reporter = handle
            with self.process(generation, batch):
                return await handle(generation, batch)  # type: ignore[misc] # R is awaitable

        @wraps(handle)
        def process(generation: M, batch: Batch) -> Any:
            progress_of(process, batch).reporter = handle
            with ExitStack() as span:
                span.enter_context(self.process(generation, batch))
                returned = handle(generation, batch)
                # A lambda, for one, shows only by its result that it is async.
                return (
                    _awaited_in(span.pop_all(), returned)
                    if inspect.isawaitable(returned)
                    else returned
                )

        wrapper = process_async if is_async(handle) else process
        wrapper.__qualname__ = name_of(handle)  # the name in errors
        return cast("Callable[[M, Batch], R]", wrapper)

    def _commit(self, event: Committed | CommitRefused) -> None:
        """The span of a commit that is over. Its parent is the span of the task that commits."""
        attributes: dict[str, str | int] = {
            **_subject(event),
            "messaging.operation.name": "commit",
            "messaging.operation.type": "settle",
        }
        topics = {partition.topic for partition in event.offsets}
        name = "commit"
        if len(topics) == 1:
            (topic,) = topics
            attributes["messaging.destination.name"] = topic
            name = f"commit {topic}"
        ended = time.time_ns()
        span = self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=ended - int(event.seconds * _NANOSECONDS),
        )
        if isinstance(event, CommitRefused):
            span.set_attribute("error.type", "stale" if event.stale else "refused")
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end(ended)

    def _rebalance(self, event: Event) -> None:
        """The span of a rebalance that is over, with one for each of its parts."""
        spans = self._rebalances.take(event)
        if not spans:
            return
        *parts, whole = spans
        now, ended = self._now(), time.time_ns()

        def wall(at: float) -> int:
            return ended - int((now - at) * _NANOSECONDS)

        span = self._tracer.start_span(
            "rebalance",
            context=Context(),
            attributes=_subject(event),
            start_time=wall(whole.began),
        )
        around = trace.set_span_in_context(span, Context())
        for part in parts:
            inner = self._tracer.start_span(
                f"rebalance {part.phase}",
                context=around,
                attributes={**_subject(event), "kgroup.rebalance.phase": part.phase},
                start_time=wall(part.began),
            )
            inner.end(wall(part.ended))
        span.end(ended)


async def _awaited_in(span: ExitStack, work: Awaitable[Any]) -> Any:
    with span:
        return await work


def _subject(event: Event) -> dict[str, str | int]:
    return {
        **SYSTEM,
        "messaging.consumer.group.name": event.group_id,
        "messaging.client.id": event.member_id,
        "kgroup.generation.id": event.generation_id,
    }


def context_of(message: Message) -> Context:
    """The context that a record's producer has written into its headers; empty without one.

    For a span of a record of its own: ``tracer.start_span(name, context=context_of(message))``.
    """
    return propagate.extract(headers_of(message) or [], context=Context(), getter=_GETTER)


def links_of(messages: Sequence[Message]) -> list[Link]:
    """A link to each different context of these records' producers."""
    found: dict[tuple[int, int], Link] = {}
    for message in messages:
        if headers_of(message):
            context = trace.get_current_span(context_of(message)).get_span_context()
            if context.is_valid:
                found[context.trace_id, context.span_id] = Link(context)
    return list(found.values())


@final
class _HeaderGetter(Getter[Headers]):
    """Reads headers of records for OpenTelemetry's propagators; a value that is no text is none."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        wanted = key.lower()  # some propagators ask for X-Amzn-Trace-Id, for example
        values = [value for name, value in carrier if name.lower() == wanted and value is not None]
        return [value.decode("utf-8", "replace") for value in values] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()
