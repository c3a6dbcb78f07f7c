"""Plays group-coordinator scenarios against a Kafka broker and compares what it answers.

    python -m tests.conformance --bootstrap HOST:PORT
    python -m tests.conformance --bootstrap HOST:PORT --broker delay --suite open
    python -m tests.conformance --bootstrap HOST:PORT --print --scenario sync_refusals
    python -m tests.conformance --bootstrap HOST:PORT --record --source "Apache Kafka 4.3.0"

One run plays the scenarios of one broker configuration.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

import trio

from tests.conformance.driver import SCENARIOS, Scenario
from tests.conformance.golden import BROKERS, compare, golden_path, read_golden, write_golden
from tests.conformance.player import JOBS, SLACK, play_all, tcp, warm_up
from tests.conformance.suites import SUITES
from tests.conformance.wire import NoAnswerError

COMPARE: Final = "compare"
PRINT: Final = "print"
RECORD: Final = "record"


class Report:
    """Prints the result of each scenario as soon as it is known."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.played: dict[str, list[str]] = {}
        self.failed: list[str] = []
        self._golden = {
            suite: read_golden(golden_path(suite))
            for suite in SUITES
            if mode == COMPARE and golden_path(suite).exists()
        }

    def print_transcript(self, scenario: Scenario, lines: list[str]) -> None:
        """Print the differences of a transcript, or all of it if that was requested."""
        self.played[scenario.name] = lines
        if self._mode == COMPARE:
            golden = self._golden.get(scenario.suite, {}).get(scenario.name, {})
            trouble = compare(golden.get("transcript"), lines)
        else:
            trouble = [line for line in lines if line.startswith("!!")]
        if trouble:
            self.failed.append(scenario.name)
        print("FAIL" if trouble else "PASS", scenario.name)
        for line in lines if self._mode == PRINT else trouble:
            print("    " + line)

    def record(self, source: str) -> None:
        """Write the transcripts into the golden files, unless a scenario failed."""
        if self.failed:
            print("nothing recorded")
            return
        for suite in SUITES:
            lines = {
                name: lines for name, lines in self.played.items() if SCENARIOS[name].suite == suite
            }
            if lines:
                write_golden(golden_path(suite), suite, source, lines)


async def run(arguments: argparse.Namespace) -> int:
    """Play the requested scenarios; return the exit status."""
    chosen = [
        scenario
        for scenario in SCENARIOS.values()
        if scenario.broker == arguments.broker
        and scenario.suite in arguments.suite
        and (not arguments.scenario or scenario.name in arguments.scenario)
    ]
    open_stream = tcp(arguments.bootstrap)
    try:
        await warm_up(open_stream)
    except (NoAnswerError, trio.TooSlowError) as error:
        raise SystemExit(f"the broker at {arguments.bootstrap} is not ready: {error}") from error
    started = time.monotonic()
    report = Report(arguments.mode)
    await play_all(
        chosen, open_stream, report.print_transcript, jobs=arguments.jobs, slack=arguments.slack
    )
    if arguments.mode == RECORD:
        report.record(arguments.source)
    passed = len(report.played) - len(report.failed)
    seconds = time.monotonic() - started
    print(f"{passed} passed, {len(report.failed)} failed in {seconds:.0f} s")
    return 1 if report.failed or not chosen else 0


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description=(__doc__ or "").split("\n", maxsplit=1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", required=True)
    parser.add_argument("--suite", choices=SUITES, nargs="+", default=SUITES)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="base")
    parser.add_argument("--scenario", metavar="NAME", nargs="+", help="play only these")
    parser.add_argument("--jobs", type=int, default=JOBS, help="scenarios played at a time")
    parser.add_argument("--slack", type=float, default=SLACK, help="seconds a timer may be late")
    parser.add_argument("--source", default="unknown", help="what --record records from")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--record", dest="mode", action="store_const", const=RECORD, default=COMPARE)
    mode.add_argument("--print", dest="mode", action="store_const", const=PRINT)
    return parser.parse_args(words)


def main() -> int:
    """Run the command line."""
    arguments = parse()
    unknown = set(arguments.scenario or ()) - SCENARIOS.keys()
    if unknown:
        raise SystemExit(f"no such scenario: {', '.join(sorted(unknown))}")
    return trio.run(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
