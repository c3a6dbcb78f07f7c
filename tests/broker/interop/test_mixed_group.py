"""One group of six clients: kgroup, three other Python clients and two of Java's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from kgroup.broker import EmbeddedBroker
from kgroup.broker.groups.responses import DescribedGroup
from tests.behaviour.harness import Harness
from tests.broker.interop.members import BOTH, Client, start_member
from tests.broker.interop.play import PARTITIONS, check_account, played
from tests.broker.interop.tools import printed, table, together

OTHERS = ("java", "java-console", "confluent-kafka", "aiokafka", "kafka-python")


async def until_all_process(
    here: Harness, broker: EmbeddedBroker, names: set[str]
) -> DescribedGroup:
    """Wait until the group is stable with these members and each processes records."""
    while True:
        (group,) = await broker.groups()
        stable = group.state == "Stable" and {one.client_id for one in group.members} == names
        if names == await _next_to_process(here) and stable:
            return group


async def _next_to_process(here: Harness) -> set[str]:
    entries = here.processed.entries
    begun = len(entries)
    await here.processed.until(
        lambda: len(entries) >= begun + 4 * PARTITIONS, "nothing is processed"
    )
    return {entry.member for entry in entries[begun:]}


async def check_the_tools_view(broker: EmbeddedBroker, group: DescribedGroup) -> None:
    """Java's tool describes every member and partition as the broker does."""
    describe = partial(printed, broker, "kafka-consumer-groups", "--describe")
    name = ("--group", group.group_id)
    found = await together(
        partial(describe, *name),
        partial(describe, *name, "--members", "--verbose"),
        partial(describe, *name, "--state"),
    )
    offsets, members, (state,) = map(table, found)
    ids = {one.member_id for one in group.members}
    assert {(row["PARTITION"], row["CONSUMER-ID"] in ids) for row in offsets} == {
        (str(number), True) for number in range(PARTITIONS)
    }
    assert all(int(row["CURRENT-OFFSET"]) <= int(row["LOG-END-OFFSET"]) for row in offsets)
    assert {(row["CONSUMER-ID"], row["CLIENT-ID"], row["HOST"]) for row in members} == {
        (one.member_id, one.client_id, one.client_host) for one in group.members
    }
    assert {row["#PARTITIONS"] for row in members} == {"1"}
    assert state == {
        "GROUP": group.group_id,
        "COORDINATOR": broker.bootstrap_servers,
        "ASSIGNMENT-STRATEGY": "range",
        "STATE": "Stable",
        "#MEMBERS": "6",
    }


@BOTH
@pytest.mark.real_kafka
async def test_six_clients_in_one_group(tmp_path: Path) -> None:
    """Each owns its partition, three leave cleanly, and every record is processed once."""
    async with played() as (broker, here, producer):
        ours = here.start("kgroup", assignors=["range"])
        nodes = {
            name: await start_member(here, Client(name=name), name, tmp_path / name)
            for name in OTHERS
        }
        group = await until_all_process(here, broker, {"kgroup", *OTHERS})
        assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
        await check_the_tools_view(broker, group)
        for name in ("java-console", "aiokafka", "kafka-python"):
            await nodes.pop(name).leave()
        await until_all_process(here, broker, {"kgroup", *nodes})
        await check_account(here, await producer.stop(), {})
        await ours.leave()
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
