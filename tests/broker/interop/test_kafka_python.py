"""kafka-python against the embedded broker: a producer and a consumer group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from kgroup.broker import BrokerSecurity, serve
from tests.broker.interop.clients import AT_ONCE
from tests.broker.interop.members import KAFKA_PYTHON

CLIENT = Path(__file__).resolve().parent / "kafka_python_client.py"


@KAFKA_PYTHON
@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-512"])
async def test_what_is_produced_is_consumed(mechanism: str | None) -> None:
    """Every record arrives once, and the offsets are committed; with a login too."""
    users = {} if mechanism is None else {"alice": "secret"}
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    given = json.dumps({} if mechanism is None else login)
    async with serve(settings=AT_ONCE, security=BrokerSecurity(users=users)) as broker:
        await broker.create_topic("t", 2)
        client = await trio.run_process(
            [sys.executable, str(CLIENT), broker.bootstrap_servers, given],
            capture_stderr=True,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        assert client.returncode == 0, client.stderr.decode()
        assert sum(one.offset for one in (await broker.committed("g")).values()) == 100
