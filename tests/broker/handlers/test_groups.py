"""The group requests over the wire: every version carries all of its fields.

The coordinator's decisions are tested in tests/broker/groups.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedBroker
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.broker.wire import Client, commit, connected, joining

AT_ONCE = {"group_initial_rebalance_delay_ms": 0}
TP = TopicPartition("t", 0)


async def joined(client: Client, version: int, **details: Any) -> Any:
    """Join alone in group g; join again if a member id is required."""
    fields = joining(**details)
    if version == 0:
        del fields["rebalance_timeout"]
    answer = await client.request("join_group", version, **fields)
    if int(answer.error_code) == 79:
        fields["member_id"] = answer.member_id
        answer = await client.request("join_group", version, **fields)
    assert int(answer.error_code) == 0
    return answer


async def synced(client: Client, version: int, member: Any) -> Any:
    """Sync as the leader, with an assignment of its own."""
    types = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return await client.request(
        "sync_group",
        version,
        group_id="g",
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[{"member_id": member.member_id, "assignment": b"mine"}],
        **types,
    )


@pytest.mark.parametrize("version", range(10))
async def test_joining_in_every_version(version: int) -> None:
    """The leader gets all members, with unchanged metadata."""
    async with connected(**AT_ONCE) as (broker, client):
        metadata = [{"name": "range", "metadata": b"\x00meta"}]
        details: dict[str, Any] = {"protocols": metadata}
        if version >= 5:
            details["group_instance_id"] = "i"
        if version >= 8:
            details["reason"] = "why not"
        answer = await joined(client, version, **details)
        assert (answer.generation_id, answer.protocol_name) == (1, "range")
        assert answer.leader == answer.member_id
        (member,) = answer.members
        assert (member.member_id, member.metadata) == (answer.member_id, b"\x00meta")
        if version >= 5:
            assert member.group_instance_id == "i"
        if version >= 7:
            assert answer.protocol_type == "consumer"
        (group,) = await broker.groups()
        assert [one.client_host for one in group.members] == ["/memory"]


@pytest.mark.parametrize("version", range(6))
async def test_syncing_and_heartbeats_in_every_version(version: int) -> None:
    """The member gets the assignment that the leader sent, and its heartbeat succeeds."""
    async with connected(**AT_ONCE) as (_, client):
        member = await joined(client, 4)
        answer = await synced(client, version, member)
        assert (int(answer.error_code), answer.assignment) == (0, b"mine")
        beat = {
            "group_id": "g",
            "generation_id": member.generation_id,
            "member_id": member.member_id,
        }
        answer = await client.request("heartbeat", min(version, 4), **beat)
        assert int(answer.error_code) == 0


async def test_a_sync_sent_again_is_answered_once(autojump_clock: trio.testing.MockClock) -> None:
    """Of two copies of a parked Sync only the later is answered, as in Kafka."""
    async with connected() as (broker, leader):
        older, later = [await Client.open(broker, "follower") for _ in range(2)]
        leads = await leader.request("join_group", 4, **joining())
        follows = await older.request("join_group", 4, **joining())
        await leader.send("join_group", 4, **joining(member_id=leads.member_id))
        await trio.testing.wait_all_tasks_blocked()
        await older.request("join_group", 4, **joining(member_id=follows.member_id))
        await leader.answer("join_group", 4)
        sync = {"group_id": "g", "generation_id": 1, "assignments": []}
        for client in (older, later):
            await client.send("sync_group", 4, **sync, member_id=follows.member_id)
            await trio.testing.wait_all_tasks_blocked()
        sync["assignments"] = [{"member_id": follows.member_id, "assignment": b"yours"}]
        await leader.request("sync_group", 4, **sync, member_id=leads.member_id)
        assert (await later.answer("sync_group", 4)).assignment == b"yours"
        with trio.move_on_after(60) as scope:
            await older.frame()
        assert scope.cancelled_caught


@pytest.mark.parametrize("version", range(6))
async def test_leaving_in_every_version(version: int) -> None:
    """Before version 3 the response has one error; later each of several members has its own."""
    async with connected(**AT_ONCE) as (broker, client):
        member = await joined(client, 4)
        if version < 3:
            codes = []
            for member_id in (member.member_id, "stranger"):
                answer = await client.request(
                    "leave_group", version, group_id="g", member_id=member_id
                )
                codes.append(int(answer.error_code))
        else:
            leavers = [{"member_id": member.member_id}, {"member_id": "stranger"}]
            answer = await client.request("leave_group", version, group_id="g", members=leavers)
            assert int(answer.error_code) == 0
            codes = [int(one.error_code) for one in answer.members]
        assert codes == [0, 25]
        assert [group.state for group in await broker.groups()] == ["Empty"]


@pytest.mark.parametrize("version", range(2, 10))
async def test_committing_in_every_version(version: int) -> None:
    """The offset is stored with its metadata and, where the version has it, its leader epoch."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        epoch = 3 if version >= 6 else None
        assert await commit(client, version, epoch=epoch) == 0
        expected = OffsetAndMetadata(7, -1 if epoch is None else epoch, "m")
        assert await broker.committed("g") == {TP: expected}


async def test_the_retention_time_of_a_commit() -> None:
    """Versions 2 to 4 set how long a commit is kept; -1 means the broker's setting."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for retention in (timedelta(milliseconds=-1), timedelta(hours=1)):
            assert await commit(client, 4, retention_time=retention) == 0


async def fetched(client: Client, version: int, topics: Any) -> list[Any]:
    """The committed offsets of group g, as a flat list."""
    if version >= 8:
        answer = await client.request(
            "offset_fetch", version, groups=[{"group_id": "g", "topics": topics}]
        )
        (group,) = answer.groups
        assert (group.group_id, int(group.error_code)) == ("g", 0)
        found = group.topics
    else:
        found = (await client.request("offset_fetch", version, group_id="g", topics=topics)).topics
    return [(topic.name, one) for topic in found for one in topic.partitions]


@pytest.mark.parametrize("version", range(1, 10))
async def test_fetching_offsets_in_every_version(version: int) -> None:
    """A partition without a commit has -1; null means all partitions with a commit."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        await commit(client, epoch=3)
        requested = [{"name": "t", "partition_indexes": (0, 1)}]
        found = await fetched(client, version, requested)
        assert [(name, one.partition_index, one.committed_offset) for name, one in found] == [
            ("t", 0, 7),
            ("t", 1, -1),
        ]
        assert found[0][1].metadata == "m"
        if version >= 5:
            assert found[0][1].committed_leader_epoch == 3
        if version >= 2:
            everything = await fetched(client, version, None)
            assert [(name, one.partition_index) for name, one in everything] == [("t", 0)]


async def test_offsets_are_deleted() -> None:
    """OffsetDelete forgets partitions one by one; an unknown group is refused as a whole."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await commit(client)
        for group_id, code in (("g", 0), ("nobody", 69)):
            answer = await client.request(
                "offset_delete",
                0,
                group_id=group_id,
                topics=[{"name": "t", "partitions": [{"partition_index": 0}]}],
            )
            assert int(answer.error_code) == code
        assert await broker.committed("g") == {}


async def stable(broker: EmbeddedBroker, client: Client) -> str:
    """Bring group g with one member into Stable; return the member's id."""
    await broker.create_topic("t")
    member = await joined(client, 4)
    await synced(client, 4, member)
    return str(member.member_id)


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(version: int) -> None:
    """State, protocol and members with metadata and assignment; a missing group is Dead."""
    async with connected(**AT_ONCE) as (broker, client):
        member_id = await stable(broker, client)
        plain = {"include_authorized_operations": False} if version >= 3 else {}
        answer = await client.request("describe_groups", version, groups=["g", "nobody"], **plain)
        group, missing = answer.groups
        assert (group.group_id, group.group_state) == ("g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (member_id, "test")
        assert (member.client_host, member.member_assignment) == ("/memory", b"mine")
        assert missing.group_state == "Dead"


@pytest.mark.parametrize("version", [3, 6])
async def test_authorized_operations_are_listed_on_request(version: int) -> None:
    """All operations are listed, as without an authorizer; a group with an error has none."""
    omitted = -(1 << 31)
    async with connected(**AT_ONCE) as (broker, client):
        await stable(broker, client)
        found = []
        for requested in (True, False):
            answer = await client.request(
                "describe_groups",
                version,
                groups=["g", "nobody"],
                include_authorized_operations=requested,
            )
            found.append([group.authorized_operations for group in answer.groups])
        assert found == [[3400, 3400 if version < 6 else omitted], [omitted, omitted]]


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(version: int) -> None:
    """Name and protocol type are listed, in later versions with state, type and filters."""
    async with connected(**AT_ONCE) as (broker, client):
        await stable(broker, client)
        filters = {}
        if version >= 4:
            filters["states_filter"] = ("Stable",)
        if version >= 5:
            filters["types_filter"] = ("classic",)
        (group,) = (await client.request("list_groups", version, **filters)).groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        if version >= 4:
            assert group.group_state == "Stable"
            answer = await client.request("list_groups", 4, states_filter=("Empty",))
            assert answer.groups == ()
        if version >= 5:
            assert group.group_type == "classic"


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_in_every_version(version: int) -> None:
    """An empty group is deleted; a missing one has its own error."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await commit(client)
        answer = await client.request("delete_groups", version, groups_names=["g", "nobody"])
        assert {one.group_id: int(one.error_code) for one in answer.results} == {
            "g": 0,
            "nobody": 69,
        }
        assert await broker.groups() == ()
