"""The demo's text: lines of real files, and how they are split into words.

The workers and the audit's direct count use the same `words_of`; they share nothing else. This is
a module of its own because the workers import it, and need nothing else of the demo.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

MOST_LINES: Final = 1_000_000
"""The most lines of one demo; the audit keeps something of each in memory."""
LONGEST_LINE: Final = 100_000
"""Characters; a record has to fit into a broker's ``message.max.bytes``."""
MOST_TEXT: Final = 64 * 1024 * 1024
"""Characters of all lines together, repeated lines included."""
_WORD: Final = re.compile(r"\w+")


def own_sources() -> list[Path]:
    """The modules of the installed Python's standard library, sorted."""
    return sorted(Path(os.__file__).parent.glob("*.py"))


def lines_of(files: Sequence[Path], number: int) -> list[str]:
    """The first ``number`` lines of these files; all of them again if they have fewer.

    Raises:
        OSError: a file cannot be read.
        ValueError: the files have no line at all, a line that is too long, or too much text.
    """
    first = list(islice(_lines(files), number))
    if not first:
        names = ", ".join(map(str, files)) or "no file"
        raise ValueError(f"there is no line of text in {names}")
    times = -(-number // len(first))
    if sum(map(len, first)) * times > MOST_TEXT + sum(map(len, first)):
        raise ValueError(
            f"{number} lines of these files have more than {MOST_TEXT} characters; take fewer lines"
        )
    return list(islice(chain.from_iterable([first] * times), number))


def words_of(line: str) -> Counter[str]:
    """The words of a line in lower case, and how often each occurs."""
    return Counter(_WORD.findall(line.lower()))


def _lines(files: Sequence[Path]) -> Iterator[str]:
    total = 0
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as text:
            while line := text.readline(LONGEST_LINE + 1):
                total += len(line)
                if len(line.rstrip("\n")) > LONGEST_LINE:
                    raise ValueError(f"{file} has a line of more than {LONGEST_LINE} characters")
                if total > MOST_TEXT:
                    raise ValueError(
                        f"the files up to {file} have more than {MOST_TEXT} characters of text"
                    )
                yield line.rstrip("\n")
