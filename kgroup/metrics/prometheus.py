"""Metrics for Prometheus, with the extra ``kgroup[prometheus]``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, final

from kgroup.errors import ArgumentError
from kgroup.events import Event
from kgroup.metrics.measuring import Labels, Measuring
from kgroup.metrics.table import BUCKETS, METRICS, Metric, MetricKind
from kgroup.monitors import Monitored
from kgroup.types import TopicPartition

try:
    import prometheus_client
except ImportError as missing:
    raise ImportError(
        "kgroup.metrics.prometheus needs the package prometheus-client, which is not installed:"
        " pip install 'kgroup[prometheus]'"
    ) from missing
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

GAUGES: Final = tuple(metric for metric in METRICS if metric.kind is MetricKind.GAUGE)


@final
class PrometheusMetrics(Collector):
    """The metrics of all groups that it is given to as ``on_event``; one serves any number.

    For example::

        metrics = PrometheusMetrics()
        prometheus_client.start_http_server(9000)
        kgroup.run(config, handle, on_event=metrics)

    Gauges are read when Prometheus scrapes, in the thread that serves it. The mode of
    prometheus-client for several processes has no gauges of this kind; let each process serve its
    own metrics.

    Args:
        registry: where they are registered; by default the registry of the process.
        now: the clock, in seconds.

    Raises:
        ArgumentError: the registry has these metrics already.
    """

    def __init__(
        self,
        registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measuring = Measuring(self, now)
        try:
            registry.register(self)
        except ValueError as error:
            raise ArgumentError(
                "registry",
                registry,
                "it has metrics of these names already; one PrometheusMetrics serves all groups of"
                " a process, so make it once, and another one needs a"
                " registry=prometheus_client.CollectorRegistry() of its own",
            ) from error
        self._counters = {
            metric: prometheus_client.Counter(
                metric.prometheus, metric.meaning, metric.labels, registry=registry
            )
            for metric in METRICS
            if metric.kind is MetricKind.COUNTER
        }
        self._histograms = {
            metric: prometheus_client.Histogram(
                metric.prometheus,
                metric.meaning,
                metric.labels,
                registry=registry,
                buckets=BUCKETS,
            )
            for metric in METRICS
            if metric.kind is MetricKind.HISTOGRAM
        }

        # `labels` takes longer than what is done with its result, and returns the same each time.
        self._labelled_counters: dict[tuple[Metric, Labels], prometheus_client.Counter] = {}
        self._labelled_histograms: dict[tuple[Metric, Labels], prometheus_client.Histogram] = {}

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
        counter = self._labelled_counters.get((metric, labels))
        if counter is None:
            counter = self._counters[metric].labels(*labels)
            self._labelled_counters[metric, labels] = counter
        counter.inc(number)

    def observe(self, metric: Metric, labels: Labels, seconds: float) -> None:
        """See `Sink`."""
        histogram = self._labelled_histograms.get((metric, labels))
        if histogram is None:
            histogram = self._histograms[metric].labels(*labels)
            self._labelled_histograms[metric, labels] = histogram
        histogram.observe(seconds)

    # A Collector.

    def describe(self) -> Iterator[Family]:
        """The gauges without values, by which the registry finds names that it has already."""
        for metric in GAUGES:
            yield GaugeMetricFamily(metric.prometheus, metric.meaning, labels=metric.labels)

    def collect(self) -> Iterator[Family]:
        """The gauges, for a scrape."""
        for metric, values in self._measuring.gauges(*GAUGES).items():
            family = GaugeMetricFamily(metric.prometheus, metric.meaning, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
