"""The dashboard for Grafana uses metrics and labels that there are, in queries that parse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Final

import prometheus_client
import promql_parser
import pytest

from kgroup.metrics.dashboard import dashboard
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.metrics.table import METRICS, Metric, MetricKind
from tests.conftest import ROOT

DASHBOARD: Final[dict[str, Any]] = json.loads(dashboard())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: Final = [target["expr"] for panel in PANELS for target in panel["targets"]]
OF_TARGETS: Final = {"le", "instance"}
"""Labels that a histogram has, and that Prometheus gives to each target."""
PAGE: Final = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
ALERTS: Final = re.findall(r"^ +expr: (.+)$", PAGE, re.MULTILINE)


def exposed() -> dict[str, Metric]:
    """The names of the time series that Prometheus finds, each with its metric."""
    registry = prometheus_client.CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for metric in METRICS:
        labels = tuple("x" for _ in metric.labels)
        if metric.kind is MetricKind.COUNTER:
            metrics.add(metric, labels, 1)
        elif metric.kind is MetricKind.HISTOGRAM:
            metrics.observe(metric, labels, 1.0)
    known = {
        sample.name
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    known |= {metric.prometheus for metric in METRICS if metric.kind is MetricKind.GAUGE}
    return {name: next(one for one in METRICS if name.startswith(one.prometheus)) for name in known}


def parsed(query: str) -> Any:
    """A query as Prometheus reads it, after Grafana has put its variables in."""
    return promql_parser.parse(query.replace("$__rate_interval", "1m"))


def expressions(node: Any) -> Iterator[Any]:
    """An expression and all that it contains."""
    yield node
    inner = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for child in [*inner, *getattr(node, "args", [])]:
        if child is not None:
            yield from expressions(child)


def selectors(query: str) -> list[Any]:
    """The time series that a query reads."""
    kind = promql_parser.VectorSelector
    return [one for one in expressions(parsed(query)) if isinstance(one, kind)]


@pytest.mark.parametrize("query", [*QUERIES, *ALERTS])
def test_a_query_reads_what_there_is(query: str) -> None:
    """Each time series has a metric's name, and each label is one of its metric's."""
    names = exposed()
    found = selectors(query)
    assert found
    known = set(OF_TARGETS)
    for one in found:
        metric = names[one.name]
        known |= set(metric.labels)
        assert {matcher.name for matcher in one.matchers.matchers} <= set(metric.labels)
    for one in expressions(parsed(query)):
        modifier = getattr(one, "modifier", None)
        assert set(getattr(modifier, "labels", ())) <= known


def test_the_alert_on_the_lag_fires_where_nothing_was_read() -> None:
    """A counter that nothing has been added to is no series, and no comparison with it is true."""
    (rule,) = [query for query in ALERTS if "kgroup_lag" in query]
    compared = parsed(rule).rhs
    assert "or" in [str(getattr(one, "op", "")).strip() for one in expressions(compared)]


def test_each_metric_has_a_panel() -> None:
    """No metric is left out."""
    names = exposed()
    shown = {names[one.name] for query in QUERIES for one in selectors(query)}
    assert shown == set(METRICS)


def test_variables_read_what_there_is() -> None:
    """The lists of groups and topics are labels of metrics."""
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert found is not None
            assert found[2] in exposed()[found[1]].labels


def test_panels_are_complete_and_do_not_overlap() -> None:
    """Each has an id, a title, a description, a unit and legends that name labels of its query."""
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith((".", ")"))
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            for name in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert name in target["expr"] or "topk" in target["expr"]
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_the_module_prints_it() -> None:
    """``python -m kgroup.metrics.dashboard`` writes the file that Grafana imports."""
    shown = subprocess.run(
        [sys.executable, "-m", "kgroup.metrics.dashboard"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == DASHBOARD


def test_a_dashboard_that_cannot_be_written() -> None:
    """Where standard output cannot be written, the error is one line and the status is 1."""
    ended = subprocess.run(
        [sys.executable, "-c", _UNWRITABLE_OUTPUT], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "Error: the dashboard cannot be written: Bad file descriptor\n"


_UNWRITABLE_OUTPUT: Final = """
import os, runpy
os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
runpy.run_module("kgroup.metrics.dashboard", run_name="__main__")
"""
