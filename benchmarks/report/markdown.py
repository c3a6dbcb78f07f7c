"""Tables of Markdown, and figures with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns after the first one are aligned to the right."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def spread(values: Sequence[float], form: str) -> str:
    """The median and, of several values, the lowest and the highest."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    if len(values) == 1:
        return median
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, by linear interpolation.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    place = (len(values) - 1) * percent / 100
    below = int(place)
    ordered = sorted(values)
    above = ordered[min(below + 1, len(ordered) - 1)]
    return ordered[below] + (above - ordered[below]) * (place - below)


def listing(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and what is said of them."""
    return "".join(f"- {name}: {text}\n" for name, text in pairs)
