"""The demo's own broker, in a separate process so that no other work delays it.

Run as ``python -m kgroup.cli.demo.broker``: it writes its address as one line on standard output,
and exits when its standard input is closed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import trio

from kgroup.broker import serve
from kgroup.cli.demo.processes import exit_after_parent

SETTINGS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    # The first workers should form one generation; Kafka's default of 3 s is longer than needed.
    "group.initial.rebalance.delay.ms": "500",
}


GRACE: Final = 30.0
"""Seconds that the broker may take to exit by itself."""


async def main() -> None:
    """Serve until standard input ends."""
    exit_after_parent(GRACE)
    async with serve(settings=SETTINGS) as broker:
        print(broker.bootstrap_servers, flush=True)
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
            while await stdin.receive_some():
                pass


if __name__ == "__main__":
    trio.run(main)
