"""The text of the demo: lines of real files, and what a word is.

Workers and the direct count take words from a line by the same function; they share nothing else.
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
"""Lines of one demo; each is accounted for in memory."""
LONGEST_LINE: Final = 100_000
"""Characters; a record has to fit in a broker's ``message.max.bytes``."""
MOST_TEXT: Final = 64 * 1024 * 1024
"""Characters of all lines together, those that are taken again included."""
_WORD: Final = re.compile(r"\w+")


def own_sources() -> list[Path]:
    """The modules of the installed Python's own library, in a fixed order."""
    return sorted(Path(os.__file__).parent.glob("*.py"))


def lines_of(files: Sequence[Path], number: int) -> list[str]:
    """So many lines of these files, from the top again where they have fewer.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is not one line in them, or there is too much text.
    """
    first = list(islice(_lines(files), number))
    if not first:
        names = ", ".join(map(str, files)) or "no file"
        raise ValueError(f"there is no line of text in {names}")
    times = -(-number // len(first))
    if sum(map(len, first)) * times > MOST_TEXT + sum(map(len, first)):
        raise ValueError(
            f"{number} lines of these files have more than {MOST_TEXT} characters: take fewer"
        )
    return list(islice(chain.from_iterable([first] * times), number))


def words_of(line: str) -> Counter[str]:
    """The words of a line, in lower case, and how often each is there."""
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
                    raise ValueError(f"{file} goes beyond {MOST_TEXT} characters of text in all")
                yield line.rstrip("\n")
