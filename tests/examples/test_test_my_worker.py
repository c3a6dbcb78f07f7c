"""The example of a test: it passes, and it fails if the worker under test is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.examples.reader import Reader

NAME: Final = "test_my_worker.py"
PROCESS: Final = """\
            for message in batch:
                await process(message)
"""
COMMIT: Final = """\
            await generation.commit({partition: batch.next_offset})
"""


@pytest.mark.parametrize(
    ("worker", "status", "outcome"),
    [
        pytest.param(PROCESS + COMMIT, 0, "2 passed", id="right"),
        pytest.param(COMMIT + PROCESS, 1, "1 failed, 1 passed", id="commits before it processes"),
        pytest.param(PROCESS, 1, "1 failed, 1 passed", id="never commits"),
    ],
)
def test_it_distinguishes_right_from_wrong_workers(
    reader: Reader, tmp_path: Path, worker: str, status: int, outcome: str
) -> None:
    """It works in a separate folder, with pytest and pytest-trio and without configuration."""
    text = (reader.folder / "examples" / NAME).read_text(encoding="utf-8")
    assert text.count(PROCESS + COMMIT) == 1
    (tmp_path / NAME).write_text(text.replace(PROCESS + COMMIT, worker), encoding="utf-8")
    run = reader.run("-m", "pytest", NAME, cwd=tmp_path)
    assert (run.returncode, outcome in run.stdout) == (status, True), run.stdout
