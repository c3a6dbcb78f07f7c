"""Shows the schemes side by side: tables, a line for each scheme, and one change of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from benchmarks.history.change import CUT_OFF, JOIN
from benchmarks.history.part import BEFORE, PICTURE, SEEDS
from benchmarks.report.markdown import table
from benchmarks.report.results import Results
from benchmarks.report.svg import Curve, Spans, growth, spans
from kgroup.testing.simulation.schemes.judge import INVARIANTS

OURS: Final = "classic"
PARTITIONS: Final = 100
"""The partitions of the changes that the lines show."""
ABOUT: Final = """\
Simulated, so that a second run has the same figures; [history.md](history.md) says what they mean.

"""
_MARKED: Final = re.compile(
    r"(<!-- figures: (?P<name>[\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL
)


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    shown = "".join(
        f"![{name}]({pictures}/history-{name}.svg)\n\n" for name in ("messages", "time")
    )
    return ABOUT + shown + changes(results)


def pictures(results: Results) -> dict[str, str]:
    """Lines of the messages and the time by size, and one change in each scheme."""
    found = {f"history-{row['client']}.svg": change(row) for row in _rows(results, PICTURE)}
    found["history-messages.svg"] = growth(
        f"One member joins a group that has {PARTITIONS} partitions: messages",
        "notifications and requests; a line for each scheme, both scales in powers of ten",
        "members",
        list(_lines(results, "requests", "notifications")),
    )
    found["history-time.svg"] = growth(
        f"One member joins a group that has {PARTITIONS} partitions: time",
        "seconds until every partition has one owner for good; both scales in powers of ten",
        "members",
        list(_lines(results, "settled")),
    )
    return found


def change(row: dict[str, Any]) -> str:
    """One change, drawn from its trace."""
    lanes = [
        Spans(
            name=lane["name"],
            spans=[(one, other, text) for one, other, text in lane["spans"]],
            marks=[(at, what == "received") for at, what in lane["marks"]],
        )
        for lane in row["lanes"]
    ]
    title = f"{row['client']}: a fourth member joins"
    legend = "filled: owns these partitions; red: gets a notification; blue: reads or writes"
    return spans(title, legend, -BEFORE, row["seconds"], lanes)


def changes(results: Results) -> str:
    """A member joins, at every size."""
    heads = ["members and partitions", "scheme", "notifications", "requests", "settled, s"]
    names = ("notifications", "requests", "settled", "shared", "twice")
    rows = [
        [f"{row['members']:,} and {row['partitions']:,}", row["client"], *_cells(row, *names)]
        for row in _rows(results, JOIN)
    ]
    return table([*heads, "two owners, s", "processed again"], rows)


def cut_off(results: Results) -> str:
    """A member is cut off for a while."""
    heads = ["members and partitions", "scheme", "two owners, s", "processed again"]
    rows = [
        [
            f"{row['members']:,} and {row['partitions']:,}",
            row["client"],
            *_cells(row, "shared", "twice"),
        ]
        for row in _rows(results, CUT_OFF)
    ]
    return table(heads, rows)


def broken(results: Results) -> str:
    """In how many seeds each scheme breaks each invariant."""
    found = list(_rows(results, SEEDS))
    heads = ["", *(row["client"] for row in found)]
    rows = [
        [f"{number}. {words}", *(str(row["broken"].get(str(number), 0)) for row in found)]
        for number, words in INVARIANTS.items()
    ]
    rows.append(["records processed", *(f"{row['processed']:,}" for row in found)])
    rows.append(["of them again", *(f"{row['twice']:,}" for row in found)])
    rows.append(["two owners, s", *(f"{row['shared']:,g}" for row in found)])
    return table(heads, rows)


TABLES: Final = {"changes": changes, "cut-off": cut_off, "broken": broken}


def with_figures(text: str, results: Results) -> str:
    """A page with the tables that it names between its marks."""
    return _MARKED.sub(
        lambda found: f"{found[1]}\n{TABLES[found['name']](results)}\n{found[3]}", text
    )


def _rows(results: Results, case: str) -> Iterable[dict[str, Any]]:
    return (row for row in results.rows if row["case"] == case and "failed" not in row)


def _cells(row: dict[str, Any], *names: str) -> list[str]:
    return ["never" if row[name] is None else f"{row[name] or 0:,}" for name in names]


def _lines(results: Results, *names: str) -> Iterable[Curve]:
    """For each scheme the sum of some figures, by members."""
    for scheme in results.versions:
        points = [
            (row["members"], sum(row[name] for name in names))
            for row in _rows(results, JOIN)
            if row["client"] == scheme
            and row["partitions"] == PARTITIONS
            and None not in (row[name] for name in names)
        ]
        if points:
            yield Curve(name=scheme, points=points, ours=scheme == OURS)
