"""Tables and bars of the parts whose rows have a client, a case and a few figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs

from benchmarks.report.markdown import spread, table
from benchmarks.report.results import Results
from benchmarks.report.svg import Bar, bars

FAILED = "**failed**"


@final
@attrs.frozen
class Column:
    """A figure: its name in a row, its heading, its form, and what it is multiplied by."""

    name: str
    heading: str
    form: str
    factor: float = 1.0


def values_of(results: Results, client: str, case: str, column: Column) -> list[float] | None:
    """A client's figures in all rounds, or None if it failed in one of them.

    There are none if the run was interrupted before.
    """
    rows = [row for row in results.rows if row["client"] == client and row["case"] == case]
    if any("failed" in row for row in rows):
        return None
    found = list[float]()
    for row in rows:
        value: Any = row[column.name]
        found += value if isinstance(value, list) else [value]
    return [value * column.factor for value in found]


def ratio_of(
    results: Results, column: Column, ours: tuple[str, str], theirs: tuple[str, str]
) -> str:
    """The ratio of the figures of two clients and cases, where both have the same round."""
    found, others = (
        {row["round"]: row[column.name] for row in results.rows if _is_of(row, one)}
        for one in (ours, theirs)
    )
    return spread([found[one] / others[one] for one in found if one in others], ".2f")


def _is_of(row: Mapping[str, Any], one: tuple[str, str]) -> bool:
    return (row["client"], row["case"]) == one and "failed" not in row


def table_of(results: Results, columns: Sequence[Column], case: str = "") -> str:
    """A row for each client, with medians and their spread."""
    rows = []
    for client in results.versions:
        cells = []
        for column in columns:
            values = values_of(results, client, case, column)
            cells.append(FAILED if values is None else spread(values, column.form))
        rows.append([client, *cells])
    return table(["client", *(column.heading for column in columns)], rows)


def bars_of(results: Results, column: Column, title: str, unit: str, case: str = "") -> str:
    """A bar for each client, with the median and its spread."""
    found = []
    for client in results.versions:
        values = values_of(results, client, case, column)
        ours = client.startswith("kgroup")
        if not values:
            reasons = [
                row["failed"] for row in results.rows if row["client"] == client and "failed" in row
            ]
            found.append(
                Bar(name=client, value=None, text=(reasons or ["no figures"])[0], ours=ours)
            )
            continue
        median = statistics.median(values)
        text = format(median, column.form)
        low, high = min(values), max(values)
        found.append(Bar(name=client, value=median, low=low, high=high, text=text, ours=ours))
    return bars(title, unit, found)
