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

_WORD: Final = re.compile(r"\w+")


def own_sources() -> list[Path]:
    """The modules of the installed Python's own library, in a fixed order."""
    return sorted(Path(os.__file__).parent.glob("*.py"))


def lines_of(files: Sequence[Path], number: int) -> list[str]:
    """So many lines of these files, from the top again where they have fewer.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is not one line in them.
    """
    first = list(islice(_lines(files), number))
    if not first:
        names = ", ".join(map(str, files)) or "no file"
        raise ValueError(f"there is no line of text in {names}")
    times = -(-number // len(first))
    return list(islice(chain.from_iterable([first] * times), number))


def words_of(line: str) -> Counter[str]:
    """The words of a line, in lower case, and how often each is there."""
    return Counter(_WORD.findall(line.lower()))


def _lines(files: Sequence[Path]) -> Iterator[str]:
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as text:
            yield from (line.rstrip("\n") for line in text)
