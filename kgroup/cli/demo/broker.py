"""The demo's own broker, in a process of its own, so that nobody's work delays it.

Run as ``python -m kgroup.cli.demo.broker``: it writes its address as one line on standard output,
and ends when its standard input is closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import trio

from kgroup.broker import serve
from kgroup.cli.demo import parent_watch

SETTINGS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    # The workers that begin together should be one generation; three seconds are not needed.
    "group.initial.rebalance.delay.ms": "500",
}


GRACE: Final = 10.0
"""Seconds that it gets to end by itself."""


async def main() -> None:
    """Serve until standard input ends."""
    parent_watch.hold(GRACE)
    async with serve(settings=SETTINGS) as broker:
        print(broker.bootstrap_servers, flush=True)
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
            while await stdin.receive_some():
                pass


if __name__ == "__main__":
    trio.run(main)
