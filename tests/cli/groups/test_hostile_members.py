"""What other members send cannot end ``kgroup groups``, nor reach the terminal as it is."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest
import trio
from click.testing import CliRunner, Result

from kgroup.broker import EmbeddedBroker, serve
from kgroup.cli import main
from tests.broker.wire import Client, joining

SUBSCRIPTION = b"\0\0" + struct.pack(">i", 1) + b"\0\1t" + struct.pack(">i", -1)
ASSIGNMENT = (
    b"\0\0"
    + struct.pack(">i", 2)
    + b"".join(struct.pack(">h", 1) + name + struct.pack(">ii", 1, 0) for name in (b"t", b"\xff"))
    + struct.pack(">i", -1)
)
"""Partition 0 of a topic, and of one whose name is no UTF-8."""
NAME = "\x1b]0;title\x07"
"""A client's name that sets the title of a terminal."""


async def join(broker: EmbeddedBroker) -> None:
    """Become a static member with that name, and assign itself these partitions."""
    await broker.create_topic("t", 1)
    client = Client(await trio.open_tcp_stream(broker.host, broker.port), name=NAME)
    async with client.stream:
        fields = joining(
            session_timeout=timedelta(seconds=300),
            group_instance_id="i",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
        )
        joined = await client.request("join_group", 6, **fields)
        await client.request(
            "sync_group",
            3,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            assignments=[{"member_id": joined.member_id, "assignment": ASSIGNMENT}],
        )


@pytest.mark.parametrize(
    "command",
    [
        "describe",
        "describe --group g",
        "lag",
        "lag --group g",
        "list",
        "reset --group g --to earliest",
        "reset --group g --to earliest --execute",
        "delete --group g",
    ],
)
async def test_a_member_can_have_any_name_and_assignment(command: str) -> None:
    """Each command ends as it does for other members, and prints no control characters."""

    def run(servers: str) -> Result:
        words = command.split()
        return CliRunner().invoke(main, ["groups", *words, "--bootstrap-servers", servers])

    async with serve(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await join(broker)
        result = await trio.to_thread.run_sync(run, broker.bootstrap_servers)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert result.output
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    if command.startswith("describe"):
        assert "t:0" in result.output or " t " in result.output
