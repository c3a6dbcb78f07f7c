"""Values that no setting expects: extreme numbers, odd texts, objects that raise when used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

NUMBERS: Final = (
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    5e-324,
    0.5,
    1.5,
    -1,
    -0.0,
    0,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    10**30,
    10**400,
    10**5000,  # more digits than Python prints
    -(10**5000),
    True,
)
TEXTS: Final = (
    "",
    " ",
    "-",
    "\0",
    "a\0b",
    "a..b:9092",
    ".:9092",
    ":0",
    ":9092",
    "a:99999",
    "a:-1",
    "a:²",
    "[::1]:9092:1",
    "x" * 64 + ":9092",
    "x" * 100_000,
    "\ud800",
    "a\udcff:9092",
    "\N{GREEK SMALL LETTER ALPHA}" * 300 + ":9092",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e308",
    "-1",
    "0x10",
    "1_000",
    "٣",
    str(2**31),
    "9" * 5000,
    "a:b:c",
    "=",
    "a=",
    "../..",
    "..a:b",
    "a..b:c",
    "line\nbreak",
)


class Raises:
    """An object all of whose methods raise."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"{name} was read")

    def _fail(self, *_: object) -> NoReturn:
        raise RuntimeError("touched")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __iter__ = __len__ = __float__ = _fail
    __repr__ = __str__ = __bool__ = __contains__ = __index__ = __hash__ = _fail


class Endless:
    """A list without end."""

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat("a:9092")


class RaisesLater:
    """A list that raises midway."""

    def __iter__(self) -> Iterator[str]:
        yield "a:9092"
        raise RuntimeError("midway")


OBJECTS: Final[tuple[Any, ...]] = (
    None,
    b"bytes",
    [],
    [None],
    [[]],
    {},
    {"a": 1},
    {1: 2, "a": 3},
    object(),
    int,
    len,
    Raises(),
    [Raises()],
    Endless(),
    RaisesLater(),
    itertools.count(),
)


def every_value() -> Iterator[tuple[str, object]]:
    """Each value, with a name for it."""
    for number, value in enumerate((*NUMBERS, *TEXTS, *OBJECTS)):
        yield f"{number}-{type(value).__name__}", value


VALUES: Final[Mapping[str, object]] = dict(every_value())
