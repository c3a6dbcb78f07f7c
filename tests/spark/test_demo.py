"""The demo with Spark drivers, as a person runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kgroup.cli.demo.spark_worker import Counted, counted, halves
from kgroup.cli.demo.text import words_of

LINES: Final = 1500
COMMAND: Final = [sys.executable, "-P", "-c", "from kgroup.cli import main; main()", "demo"]


# Three JVMs start, a session has to run out twice, and the machine may be busy.
@pytest.mark.timeout(1000)
def test_drivers_come_and_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every stage is printed with the partitions' owners after it, and the audit succeeds."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [*COMMAND, "--spark", f"--lines={LINES}", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    stories = [
        r"driver-2 has ",
        r"driver-3 has ",
        r"driver-\d is asked to stop",
        r"driver-\d is frozen",
        r"driver-\d is woken",
        r"driver-\d is killed",
        r"The account is right\.",
    ]
    assert re.search(".*".join(stories), ended.stdout, re.DOTALL), ended.stdout
    account = json.loads(ended.stdout.splitlines()[-1])
    assert account["produced"] == account["processed"] == LINES
    assert account["lost"] == account["repeated_planned"] == 0
    assert account["counts_equal"] is True


def test_words_are_counted_in_arrow() -> None:
    """Each line has its words and the count of each."""
    import pyarrow

    lines = ["One two, two", "", "é É"]
    batch = pyarrow.RecordBatch.from_pydict(
        {"partition": [0, 1, 1], "offset": [7, 8, 9], "value": [line.encode() for line in lines]}
    )
    (made,) = counted([batch])
    assert [dict(words) for words in made.to_pydict()["words"]] == [words_of(x) for x in lines]
    assert made.to_pydict()["offset"] == [7, 8, 9]


def test_each_partition_is_halved() -> None:
    """A driver stopped between the halves has processed a part of every partition."""
    rows: list[Counted] = [(part, offset, {}) for part in (0, 1) for offset in range(3)]
    first, second = halves(rows)
    assert [row[:2] for row in first] == [(0, 0), (1, 0)]
    assert [row[:2] for row in second] == [(0, 1), (0, 2), (1, 1), (1, 2)]
