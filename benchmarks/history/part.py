"""The command ``python -m benchmarks history``: the schemes of docs/history.md, measured.

Everything is simulated: a second run has the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.arguments import count
from benchmarks.clients.roster import Present
from benchmarks.history.change import CUT_OFF, JOIN, Figures, figures_of, lanes_of, played
from benchmarks.report.results import Results
from kgroup.testing.simulation.schemes import SCHEMES
from kgroup.testing.simulation.schemes.findings import find

PICTURE: Final = "picture"
SEEDS: Final = "seeds"
SHOWN: Final = {"members": 3, "partitions": 8}
"""The group of the pictures."""
BEFORE: Final = 0.2
"""Seconds that a picture shows before the change."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--schemes", nargs="*", default=list(SCHEMES), choices=SCHEMES)
    parser.add_argument("--members", nargs="*", type=count, default=[10, 100, 1000])
    parser.add_argument("--partitions", nargs="*", type=count, default=[1, 10, 100, 1000])
    parser.add_argument(
        "--cut-off", nargs="*", type=count, default=[10, 100], help="members, with 100 partitions"
    )
    parser.add_argument("--seeds", type=count, default=200, help="how many plans of faults")


def run(arguments: argparse.Namespace, folder: Path) -> Results:
    """Play every change in every scheme."""
    settings = {"seeds": arguments.seeds}
    about = {name: SCHEMES[name].about for name in arguments.schemes}
    results = Results.begin("history", settings, Present((), about, {}), folder)
    del results.machine["broker"]  # there is none
    for scheme in arguments.schemes:
        results.add(_guarded(scheme, PICTURE, SHOWN, partial(picture, scheme)))
        results.add(_guarded(scheme, SEEDS, {}, partial(broken, scheme, arguments.seeds)))
    sizes = [(JOIN, one, other) for one in arguments.members for other in arguments.partitions]
    sizes += [(CUT_OFF, one, 100) for one in arguments.cut_off]
    for case, members, partitions in sizes:
        for scheme in arguments.schemes:
            measure = partial(change, scheme, case, members, partitions)
            size = {"members": members, "partitions": partitions}
            row = _guarded(scheme, case, size, measure)
            print(row, flush=True)
            results.add(row)
    return results


def _guarded(
    scheme: str, case: str, size: Mapping[str, int], measure: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """A row; one that failed says why."""
    row: dict[str, Any] = {"client": scheme, "case": case, **size}
    try:
        return {**row, **measure()}
    except Exception as error:  # noqa: BLE001 # the other rows are still measured
        return {**row, "failed": f"{type(error).__name__}: {error}"}


def change(scheme: str, case: str, members: int, partitions: int) -> dict[str, Any]:
    """The figures of one change."""
    found: Figures = figures_of(played(SCHEMES[scheme], members, partitions, case))
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in attrs.asdict(found).items()
    }


def broken(scheme: str, seeds: int) -> dict[str, Any]:
    """What a scheme breaks under the plans of some seeds."""
    found = find(SCHEMES[scheme], range(seeds))
    return {
        "broken": {str(number): found.broken[number] for number in sorted(found.broken)},
        "processed": found.processed,
        "twice": found.twice,
        "shared": round(found.shared, 1),
    }


def picture(scheme: str) -> dict[str, Any]:
    """The lanes of one small change, until it is over."""
    entries = played(SCHEMES[scheme], SHOWN["members"], SHOWN["partitions"])
    settled = figures_of(entries).settled
    if settled is None:
        raise RuntimeError("the change was not over at the end")
    seconds = round(settled * 1.15 + 0.1, 2)
    lanes = [
        {
            "name": one.name,
            "spans": [(round(a, 4), round(b, 4), text) for a, b, text in one.spans],
            "marks": [(round(at, 4), what) for at, what in one.marks],
        }
        for one in lanes_of(entries, BEFORE, seconds)
    ]
    return {"seconds": seconds, "lanes": lanes}
