"""Java's command-line tools against a broker in the test's process, and their output as rows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from kgroup.broker import EmbeddedBroker
from kgroup.testing.tools import run_tool

Row = dict[str, str]
"""One line of a table, by the titles of its columns."""


async def printed(broker: EmbeddedBroker, name: str, *args: str) -> str:
    """Run a tool until it succeeds; return its standard output."""
    run = partial(run_tool, broker.bootstrap_servers, name, *args)
    return (await trio.to_thread.run_sync(run, abandon_on_cancel=True)).stdout


def table(text: str) -> list[Row]:
    """The rows of a table with its titles in the first line that is not empty.

    A coordinator is printed with its node id behind it in brackets, in title and rows.
    """
    lines = [re.sub(r" *\([^)]*\)", "", line).split() for line in text.splitlines() if line.strip()]
    titles, *rows = lines
    return [dict(zip(titles, row, strict=True)) for row in rows]


async def together(*works: Callable[[], Awaitable[str]]) -> list[str]:
    """Run several tools at once; return their outputs in the order of the arguments."""
    texts: dict[int, str] = {}

    async def run(number: int, work: Callable[[], Awaitable[str]]) -> None:
        texts[number] = await work()

    async with trio.open_nursery() as nursery:
        for number, work in enumerate(works):
            nursery.start_soon(run, number, work)
    return [texts[number] for number in range(len(works))]
