"""docs/metrics.md lists each metric as it is, and mentions no other."""

from __future__ import annotations

import re
from typing import Final

from kgroup.metrics.table import ATTRIBUTES, METRICS, Metric
from tests.conftest import ROOT

PAGE: Final = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def row(metric: Metric) -> str:
    """The metric's row of the table."""
    labels = ", ".join(f"`{name}`" for name in metric.labels[1:])
    return (
        f"| `{metric.prometheus}` | {labels} | `{metric.opentelemetry}` |"
        f" {metric.kind.value}, {metric.unit} | {metric.meaning} |"
    )


def test_the_page_lists_each_metric() -> None:
    """The table is in the order of ``METRICS``."""
    assert "\n".join(map(row, METRICS)) in PAGE


def test_the_page_names_no_other_metric() -> None:
    """Each name that begins like a metric's is one, or a series of a histogram."""
    known = {metric.prometheus for metric in METRICS}
    for name in re.findall(r"\bkgroup_\w+", PAGE):
        assert re.sub("_(count|sum|bucket)$", "", name) in known


def test_names_keep_to_the_rules() -> None:
    """Prometheus: base units and _total; OpenTelemetry: the conventions' names, or our own."""
    for metric in METRICS:
        assert metric.prometheus.endswith("_total") == (metric.kind.value == "counter")
        assert metric.prometheus.endswith("_seconds") == (metric.unit == "s")
        assert metric.opentelemetry.startswith(("messaging.", "kgroup."))
        assert set(metric.labels) <= ATTRIBUTES.keys()
    for names in zip(*((one.prometheus, one.opentelemetry) for one in METRICS), strict=True):
        assert len(set(names)) == len(names)
