"""kafka-python against the embedded broker: a producer and a consumer group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from kgroup.broker import serve
from tests.broker.interop.clients import AT_ONCE
from tests.broker.interop.members import KAFKA_PYTHON

CLIENT = Path(__file__).resolve().parent / "kafka_python_client.py"


@KAFKA_PYTHON
async def test_what_is_produced_is_consumed() -> None:
    """Every record arrives once, and the offsets are committed."""
    async with serve(settings=AT_ONCE) as broker:
        await broker.create_topic("t", 2)
        client = await trio.run_process(
            [sys.executable, str(CLIENT), broker.bootstrap_servers],
            capture_stderr=True,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        assert client.returncode == 0, client.stderr.decode()
        assert sum(one.offset for one in (await broker.committed("g")).values()) == 100
