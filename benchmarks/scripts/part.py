"""The commands ``python -m benchmarks assignors`` and ``spark``: programs beside this folder.

Options that this command does not know are the program's own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.clients.roster import Present
from benchmarks.processes import environment
from benchmarks.report.results import Results

PATIENCE: Final = 30.0
"""Seconds after which a program that was interrupted is killed."""
FOLDER: Final = Path(__file__).resolve().parents[1]
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {"assignors": (), "spark": ("pyspark", "psutil")}
"""For each program the packages without which it is left out."""


def runner(name: str) -> Callable[[argparse.Namespace, Path], Results]:
    """What runs a program."""
    return partial(run, name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""
    parser.epilog = f"Further options are those of python benchmarks/{parser.prog.split()[-1]}.py"


def run(name: str, arguments: argparse.Namespace, folder: Path) -> Results:
    """Run a program, show its output as it comes, and keep it."""
    options: list[str] = getattr(arguments, "options", [])
    missing = [package for package in NEEDS[name] if not importlib.util.find_spec(package)]
    left_out = {name: f"{', '.join(missing)} not installed"} if missing else {}
    versions = {"kgroup": f"kgroup {importlib.metadata.version('kgroup')}"}
    there = Present((), versions, left_out)
    results = Results.begin(name, {"options": options}, there, folder)
    if missing:
        print(f"\n*** LEFT OUT: {name}: {left_out[name]} ***\n", file=sys.stderr, flush=True)
        results.write(folder / f"{name}.json")
        return results
    lines = list[str]()
    command = [sys.executable, "-u", str(FOLDER / f"{name}.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        except BaseException as error:
            # Ctrl-C reaches it from the terminal; a second signal would interrupt its clean-up.
            _end(process, tell=not isinstance(error, KeyboardInterrupt))
            raise
    row: dict[str, object] = {"client": "kgroup", "case": name, "round": 0, "text": "".join(lines)}
    if process.returncode:
        row["failed"] = f"benchmarks/{name}.py ended with {process.returncode}"
    results.add(row)
    return results


def _end(process: subprocess.Popen[str], *, tell: bool) -> None:
    """Let an interrupted program clean up, and kill it if that takes too long."""
    if tell:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
