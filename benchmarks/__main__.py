"""Measures kgroup and its peers on a real Kafka that it starts; see docs/benchmarks.md.

python -m benchmarks [--out FOLDER]                  all parts with their defaults
python -m benchmarks PART [options] [--out FOLDER]   one part; PART --help lists its options
python -m benchmarks page [--out FOLDER]             the page again, from results in the folder
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.handover import part as handover
from benchmarks.history import part as history
from benchmarks.idle import part as idle
from benchmarks.latency import part as latency
from benchmarks.memory import part as memory
from benchmarks.processes import FailedError
from benchmarks.records import part as records
from benchmarks.report import page
from benchmarks.report.results import Results
from benchmarks.scripts import part as scripts
from benchmarks.security import part as security
from benchmarks.start import part as start

OUT: Final = Path("build") / "benchmarks"
Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace, Path], Results]
PARTS: Final[Mapping[str, tuple[str, Arguments, Run]]] = {
    name: (about, part.add_arguments, part.run)
    for name, about, part in (
        ("handover", "how long records wait when the group changes", handover),
        ("records", "how fast a backlog is read", records),
        ("latency", "the time from the producer to the handler", latency),
        ("memory", "the memory of a consumer that is slower than its topic", memory),
        ("idle", "what members cost that have nothing to read", idle),
        ("start", "how long a member takes to its first record, and to leave", start),
        ("security", "what encryption and logins cost", security),
        ("history", "Kafka's earlier group protocols beside the classic one, simulated", history),
    )
} | {
    name: (about, scripts.add_arguments, scripts.runner(name))
    for name, about in (
        ("assignors", "kgroup's assignors beside those of Kafka's Java client"),
        ("spark", "kgroup on Spark beside Spark's own Kafka source"),
    )
}
"""For each part what it measures, its options, and what runs it."""


def main() -> None:
    """Run the parts, and write what they have found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--out", type=Path, default=OUT, help=f"by default {OUT}")
    names = parser.add_subparsers(dest="part", metavar="PART")
    for name, (about, add_arguments, _) in PARTS.items():
        one = names.add_parser(
            name, help=about, description=about, parents=[shared], allow_abbrev=False
        )
        add_arguments(one)
    names.add_parser("all", help="all parts (the default)", parents=[shared])
    names.add_parser("page", help="make the page again", parents=[shared])
    given = sys.argv[1:]
    chosen, options = parser.parse_known_args(given if _names_a_part(given) else ["all", *given])
    if options and chosen.part not in scripts.NEEDS:
        parser.error(f"unknown options: {' '.join(options)}")
    chosen.options = options
    # So that SIGTERM too leaves no worker and no broker behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    failed = False
    if chosen.part == "all":
        for name in PARTS:
            failed |= run(parser.parse_args([name, "--out", str(chosen.out)]))
    elif chosen.part != "page":
        failed = run(chosen)
    for path in page.write(chosen.out):
        print(path)
    sys.exit(failed)


def _names_a_part(given: list[str]) -> bool:
    return bool(given) and (not given[0].startswith("-") or given[0] in ("-h", "--help"))


def run(arguments: argparse.Namespace) -> bool:
    """Run one part, and keep its results; return whether something failed."""
    folder = arguments.out / page.NAME
    folder.mkdir(parents=True, exist_ok=True)
    _, _, measure = PARTS[arguments.part]
    try:
        results = measure(arguments, folder)
        results.finish()
    except FailedError as error:
        print(f"*** FAILED: {arguments.part}: {error} ***", file=sys.stderr)
        return True
    except Exception:  # noqa: BLE001 # the other parts still run
        print(f"*** FAILED: {arguments.part} ***", file=sys.stderr)
        traceback.print_exc()
        return True
    page.write(arguments.out)
    failures = results.failures()
    for name, why in failures.items():
        print(f"*** FAILED: {arguments.part}: {name}: {why} ***", file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    main()
