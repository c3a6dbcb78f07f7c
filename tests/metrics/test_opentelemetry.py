"""Metrics and traces for OpenTelemetry, as its SDK exports them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from threading import Event
from typing import Any, Final, final

import attrs
import pytest
import trio
from opentelemetry import propagate, trace
from opentelemetry.context import Context, get_value, set_value
from opentelemetry.propagators.textmap import (
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

import kgroup
from kgroup import aio, threaded
from kgroup.errors import ArgumentError
from kgroup.events import CommitRefused, Committed
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch, Message
from kgroup.metrics.opentelemetry import (
    OpenTelemetryMetrics,
    OpenTelemetryTraces,
    context_of,
    links_of,
)
from kgroup.metrics.table import METRICS
from kgroup.monitors import Monitors
from kgroup.records.memory import LogMessage, StoredRecord
from kgroup.testing.memory import memory_runtime
from tests.aio.test_group import Here as AsyncioHarness
from tests.aio.test_group import in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.group.harness import P0, harness
from tests.threaded.harness import SOON
from tests.threaded.harness import Harness as ThreadedHarness

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
P0_ATTRIBUTES = {
    "messaging.system": "kafka",
    "messaging.consumer.group.name": "group",
    "messaging.destination.name": "topic",
    "messaging.destination.partition.id": "0",
}


def message(*headers: tuple[str, bytes | None]) -> LogMessage:
    """A record with these headers."""
    stored = StoredRecord(
        offset=0, timestamp=0, append_time=False, key=None, value=b"", headers=headers
    )
    return LogMessage(P0, stored)


def points(reader: InMemoryMetricReader) -> Iterator[tuple[str, Any]]:
    """The data points that an export has, each with the name of its metric."""
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.scope.name == "kgroup"
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    yield metric.name, point


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Where spans go."""
    return InMemorySpanExporter()


@pytest.fixture
def traces(spans: InMemorySpanExporter) -> OpenTelemetryTraces:
    """Traces by trio's clock."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return OpenTelemetryTraces(provider, now=trio.current_time)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    """The finished spans of this name."""
    return [span for span in spans.get_finished_spans() if span.name == name]


def seconds_of(span: ReadableSpan) -> float:
    """How long a span took."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


async def test_a_groups_metrics_and_spans(
    autojump_clock: MockClock, traces: OpenTelemetryTraces, spans: InMemorySpanExporter
) -> None:
    """Metrics have the conventions' names; batches, commits and the rebalance have spans."""
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]), now=trio.current_time)
    processed = trio.Event()

    async def handle(generation: Generation, batch: Batch) -> None:
        await generation.commit({P0: batch.next_offset})
        await trio.sleep(2)
        processed.set()

    async with harness() as here:
        await here.append(5)
        group = ConsumerGroup(
            here.config(),
            runtime=memory_runtime(here.broker),
            on_event=Monitors(metrics, traces, here.events.append),
        )
        async with group, trio.open_nursery() as nursery:
            serve = partial(kgroup.serve, group, traces.traced(handle), commit=False)
            nursery.start_soon(serve)
            await processed.wait()
            await trio.sleep(1)
            found = dict(points(reader))
            group.shutdown()
    assert found["kgroup.partition.lag"].attributes == P0_ATTRIBUTES
    consumed = found["messaging.client.consumed.messages"]
    assert consumed.value == 5
    assert consumed.attributes == {
        **P0_ATTRIBUTES,
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
    }
    commits = found["messaging.client.operation.duration"]
    assert (commits.count, "error.type" in commits.attributes) == (1, False)
    assert found["messaging.process.duration"].sum == pytest.approx(2, abs=0.1)
    assert set(found) <= {metric.opentelemetry for metric in METRICS}
    assert here.events
    ended = dict(points(reader))
    assert [ended[name].value for name in ("kgroup.ready", "kgroup.live")] == [0, 1]
    assert "kgroup.partition.count" not in ended

    (process,) = named(spans, "process topic")
    assert process.kind is SpanKind.CONSUMER
    assert process.attributes is not None
    assert P0_ATTRIBUTES.items() <= process.attributes.items()
    assert process.attributes["messaging.batch.message_count"] == 5
    commit = named(spans, "commit topic")[0]
    assert commit.kind is SpanKind.CLIENT
    assert commit.parent == process.get_span_context()
    (rebalance,) = named(spans, "rebalance")
    phases = [span for span in spans.get_finished_spans() if span.name.startswith("rebalance ")]
    assert [span.name.split()[1] for span in phases] == ["join", "sync", "hand_over"]
    assert all(span.parent == rebalance.get_span_context() for span in phases)
    assert sum(map(seconds_of, phases)) == pytest.approx(seconds_of(rebalance), abs=0.01)


class Transaction:
    """A producer with an open transaction."""

    def send_offsets_to_transaction(self, *_: object) -> None:
        """Add offsets."""


PRODUCER: Final[Any] = Transaction()


def check_commits_are_children(spans: InMemorySpanExporter, topic: str) -> None:
    """Both commits of the first batch, and a commit outside of any, have the right parents."""
    (process,) = named(spans, f"process {topic}")
    (body,) = named(spans, "body")
    in_batch = process.get_span_context()
    found = [span.parent for span in named(spans, f"commit {topic}")]
    assert found == [in_batch, in_batch, body.get_span_context()]


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_commits_of_threads_are_children_of_their_spans(
    kafka: Kafka, traces: OpenTelemetryTraces, spans: InMemorySpanExporter
) -> None:
    """The parent of a commit, in a transaction or not, is the span of the thread that commits."""
    here = ThreadedHarness(kafka)
    here.create(1, 5)
    tracer = traces._tracer

    def handle(generation: threaded.Generation, batch: Batch) -> None:
        generation.commit({batch.partition: 1})
        generation.commit_in_transaction(PRODUCER, {batch.partition: 2})

    with here.group(traces) as group:
        generation = group.next()
        with generation.scope():
            for batch in generation.records():
                traces.traced(handle)(generation, batch)
                with tracer.start_as_current_span("body"):
                    generation.commit({batch.partition: 3})
                break
    check_commits_are_children(spans, here.topic)


@pytest.mark.parametrize("monitor", [False, True])
@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_commits_of_asyncio_are_children_of_their_spans(
    kafka: Kafka, traces: OpenTelemetryTraces, spans: InMemorySpanExporter, monitor: bool
) -> None:
    """It is the same for tasks, in whatever thread the events are handled."""
    here = AsyncioHarness(kafka)
    tracer = traces._tracer

    async def handle(generation: aio.Generation, batch: Batch) -> None:
        await generation.commit({batch.partition: 1})
        await generation.commit_in_transaction(PRODUCER, {batch.partition: 2})

    async def main() -> None:
        on_event = Monitors(traces) if monitor else traces
        async with aio.ConsumerGroup(here.harness.config(), on_event=on_event) as group:
            generation = await group.next()
            batch = await anext(generation.records())
            await generation.run(partial(traces.traced(handle), generation, batch))
            with tracer.start_as_current_span("body"):
                await generation.commit({batch.partition: 3})

    in_asyncio(main)
    check_commits_are_children(spans, here.harness.topic)


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_a_busy_loop_of_asyncio_does_not_lengthen_spans(
    kafka: Kafka,
) -> None:
    """A rebalance is over when its generation is handed over, whenever the program's loop runs."""
    here = AsyncioHarness(kafka)
    measured = Event()

    class Processor(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if span.name == "rebalance":
                measured.set()

    provider = TracerProvider()
    provider.add_span_processor(Processor())

    async def main() -> None:
        on_event = OpenTelemetryTraces(provider)
        async with aio.ConsumerGroup(here.harness.config(), on_event=on_event) as group:
            joined = asyncio.create_task(group.next())
            await asyncio.sleep(0)
            assert measured.wait(SOON)  # which blocks asyncio's loop
            await joined

    in_asyncio(main)


async def test_a_refused_commit_is_an_error(
    traces: OpenTelemetryTraces, spans: InMemorySpanExporter
) -> None:
    """Its span has the reason and a low-cardinality type, and lasts as long as the commit did."""
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]))
    both = {P0: 1, attrs.evolve(P0, topic="other"): 2}
    for event in (
        CommitRefused(group_id="g", offsets=both, reason="why", stale=True, seconds=0.5),
        CommitRefused(group_id="g", offsets={P0: 1}, reason="why", stale=False),
        Committed(group_id="g", offsets={P0: 1}, seconds=1.5),
    ):
        metrics(event)
        traces(event)
    stale, refused, done = spans.get_finished_spans()
    assert (stale.name, refused.name) == ("commit", "commit topic")
    assert stale.attributes is not None
    assert stale.attributes["error.type"] == "stale"
    assert (stale.status.status_code, stale.status.description) == (StatusCode.ERROR, "why")
    assert seconds_of(stale) == pytest.approx(0.5)
    assert seconds_of(done) == pytest.approx(1.5)
    kinds = {
        point.attributes.get("error.type"): point.sum
        for name, point in points(reader)
        if name == "messaging.client.operation.duration"
    }
    assert kinds == {None: 1.5, "stale": 0.5, "refused": 0.0}


def test_links_lead_to_the_producers() -> None:
    """The trace context is read from the headers; others, and broken ones, give no link."""
    records = [
        message(("traceparent", TRACE)),
        message(("Traceparent", TRACE), ("other", None)),
        message(("traceparent", b"\xff nonsense")),
        message(("traceparent", None)),
        message(),
    ]
    (link,) = links_of(records)
    assert f"{link.context.span_id:016x}" == "b7ad6b7169203331"
    assert context_of(records[-1]) == {}


@final
class _CapitalPropagator(TextMapPropagator):
    """Reads a header whose name has capital letters, as X-Ray's does."""

    def extract(
        self, carrier: Any, context: Context | None = None, getter: Getter[Any] = default_getter
    ) -> Context:
        found = getter.get(carrier, "X-Amzn-Trace-Id")
        return set_value("found", found, context)

    def inject(
        self, carrier: Any, context: Context | None = None, setter: Setter[Any] = default_setter
    ) -> None:
        raise NotImplementedError

    @property
    def fields(self) -> set[str]:
        return {"X-Amzn-Trace-Id"}


def test_propagators_may_ask_for_capital_letters() -> None:
    """The case of a header's name matters neither in the record nor in the propagator."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(_CapitalPropagator())
    try:
        names = ("X-Amzn-Trace-Id", "x-amzn-trace-id")
        contexts = [context_of(message((name, b"Root=1"))) for name in names]
    finally:
        propagate.set_global_textmap(before)
    assert [get_value("found", one) for one in contexts] == [["Root=1"], ["Root=1"]]


def recording() -> bool:
    """Whether the current span is one that has not ended."""
    return trace.get_current_span().is_recording()


class AsyncHandler:
    """An object whose call is async, for any event loop."""

    def __init__(self, wait: Callable[[], Awaitable[object]], done: Callable[[], object]) -> None:
        self.wait = wait
        self.done = done
        self.processed: list[tuple[int, bool]] = []

    async def __call__(self, _: Any, batch: Batch) -> None:
        """Process a batch, with a wait before the end."""
        await self.wait()
        self.processed.append((len(batch), recording()))
        self.done()

    def forms(self) -> Iterator[Callable[[Any, Batch], Awaitable[None]]]:
        """It as each kind of async function."""
        yield self
        yield self.__call__
        yield partial(self.__call__)
        yield partial(self)
        yield lambda generation, batch: self(generation, batch=batch)


FORMS: Final = range(5)


@pytest.mark.parametrize("form", FORMS)
async def test_every_kind_of_async_function(
    autojump_clock: MockClock, traces: OpenTelemetryTraces, spans: InMemorySpanExporter, form: int
) -> None:
    """On trio, the span ends after the work of a method, an object, a partial or a lambda."""
    async with harness() as here:
        await here.append(5)
        async with here.group() as group:
            handler = AsyncHandler(partial(trio.sleep, 2), lambda: group.shutdown(promptly=True))
            await kgroup.serve(group, traces.traced(list(handler.forms())[form]))
        assert (await here.committed()) == {P0: 5}
    assert handler.processed == [(5, True)]
    assert len(named(spans, "process topic")) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_every_kind_of_async_function_on_asyncio(
    kafka: Kafka, traces: OpenTelemetryTraces, spans: InMemorySpanExporter, form: int
) -> None:
    """It is the same on asyncio."""
    here = AsyncioHarness(kafka, records=5)
    found: list[AsyncHandler] = []

    async def main() -> None:
        async with here.group() as group:
            handler = AsyncHandler(partial(asyncio.sleep, 0), lambda: group.shutdown(promptly=True))
            found.append(handler)
            await aio.serve(group, traces.traced(list(handler.forms())[form]))

    in_asyncio(main)
    assert found[0].processed == [(5, True)]
    assert here.harness.committed() == 5
    assert len(named(spans, f"process {here.harness.topic}")) == 1


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_plain_functions_in_threads(
    kafka: Kafka, traces: OpenTelemetryTraces, spans: InMemorySpanExporter
) -> None:
    """A partial of a plain function runs within a span; async functions are refused as usual."""
    here = ThreadedHarness(kafka)
    here.create(1, 5)
    found: list[bool] = []

    def handle(generation: threaded.Generation, batch: Batch, more: list[bool]) -> None:
        more.append(recording())
        group.shutdown(promptly=True)

    with here.group() as group:
        for form in AsyncHandler(trio.lowlevel.checkpoint, int).forms():
            if getattr(form, "__name__", "") != "<lambda>":
                with pytest.raises(ArgumentError, match="async"):
                    threaded.serve(group, traces.traced(form))  # type: ignore[arg-type]
        threaded.serve(group, traces.traced(partial(handle, more=found)))
    assert found == [True]
    assert len(named(spans, f"process {here.topic}")) == 1


def fails_at_two(message: Message) -> None:
    """Process a record; the third one cannot be."""
    if message.offset() == 2:
        raise ValueError("bad")


async def test_a_retried_function_that_fails_keeps_what_it_has_done(
    autojump_clock: MockClock, traces: OpenTelemetryTraces
) -> None:
    """On trio, the records before the one that fails are committed, as without spans."""

    async def handle(_: Generation, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        fails_at_two(message)

    async with harness() as here:
        await here.append(5)
        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                traced = traces.traced(traces.traced(kgroup.retrying(handle, attempts=1)))
                await kgroup.serve(group, traced)
        assert raised.group_contains(ValueError, match="bad")
        assert await here.committed() == {P0: 2}


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_a_retried_function_in_threads(kafka: Kafka, traces: OpenTelemetryTraces) -> None:
    """It is the same in threads."""
    here = ThreadedHarness(kafka)
    here.create(1, 5)

    def handle(_: threaded.Generation, message: Message) -> None:
        fails_at_two(message)

    with pytest.raises(ExceptionGroup), here.group() as group:
        threaded.serve(group, traces.traced(threaded.retrying(handle, attempts=1)))
    assert here.committed() == 2


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_a_retried_function_on_asyncio(kafka: Kafka, traces: OpenTelemetryTraces) -> None:
    """It is the same on asyncio."""
    here = AsyncioHarness(kafka, records=5)

    async def handle(_: aio.Generation, message: Message) -> None:
        await asyncio.sleep(0)
        fails_at_two(message)

    async def main() -> None:
        with pytest.raises(ExceptionGroup):
            async with here.group() as group:
                await aio.serve(group, traces.traced(aio.retrying(handle, attempts=1)))

    in_asyncio(main)
    assert here.harness.committed() == 2


async def test_plain_functions_and_their_exceptions(
    traces: OpenTelemetryTraces, spans: InMemorySpanExporter
) -> None:
    """A plain function is wrapped too; what it raises is recorded and raised."""
    generation: Any = type("G", (), {"group_id": "g", "member_id": "m", "generation_id": 3})
    batch = Batch(partition=P0, messages=[message()], next_offset=1, epoch=1)

    def handle(generation: Any, batch: Batch) -> int:
        if batch.epoch == 2:
            raise ValueError("bad")
        return batch.next_offset

    handle_traced = traces.traced(handle)
    assert handle_traced.__name__ == "handle"
    assert handle_traced(generation, batch) == 1
    with pytest.raises(ValueError, match="bad"):
        handle_traced(generation, attrs.evolve(batch, epoch=2))
    good, bad = spans.get_finished_spans()
    assert good.status.status_code is StatusCode.UNSET
    assert bad.status.status_code is StatusCode.ERROR
    assert bad.attributes is not None
    assert bad.attributes["error.type"] == "ValueError"
