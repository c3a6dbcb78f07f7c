"""The coordinator as a client sees it: every version of every request, and invalid responses.

The flows in each version are those of a whole member, beside the embedded broker limited to that
version. Responses that no correct broker sends come from a scripted broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.apis import APIS
from kgroup.client.coordinator import UNREADABLE, CoordinatorClient
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthorizationError,
    BrokerError,
    ConnectionLostError,
    FencedInstanceError,
    MemberIdRequiredError,
    ProtocolError,
    RequestTimeoutError,
    StaleGenerationError,
    UnsupportedVersionError,
)
from kgroup.events import BackingOff, RequestFailed
from kgroup.types import Membership, OffsetAndMetadata, TopicPartition
from kgroup.wire.codec import RequestFrame
from kgroup.wire.consumer_protocol import encode_assignment, encode_subscription
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.client.test_cluster import coordinator_of
from tests.fake_brokers import SILENCE, Answer, FakeBroker, FakeBrokers
from tests.group.harness import P0, P1, harness

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBERSHIP: Final = Membership(
    group_id="g",
    member_id="m-1",
    group_instance_id=None,
    generation_id=7,
    epoch=1,
    assignor="range",
    leader=False,
)
#: The requests that a member sends in its life.
FLOW: Final = (
    "find_coordinator",
    "join_group",
    "sync_group",
    "heartbeat",
    "offset_fetch",
    "offset_commit",
    "leave_group",
)
#: The first version of each request that carries a static identity.
FIRST_WITH_INSTANCE: Final = {
    "join_group": 5,
    "sync_group": 3,
    "heartbeat": 3,
    "offset_commit": 7,
}


def common_versions() -> Iterator[tuple[str, int]]:
    """Each version that kgroup and the embedded broker have in common."""
    for api in FLOW:
        lowest = max(SUPPORTED_REQUESTS[api].lowest, APIS[api].lowest)
        for version in range(lowest, min(SUPPORTED_REQUESTS[api].highest, APIS[api].highest) + 1):
            yield api, version


def hold_to(monkeypatch: pytest.MonkeyPatch, api: str, highest: int) -> None:
    """Let the embedded broker support no later version."""
    monkeypatch.setitem(APIS, api, attrs.evolve(APIS[api], highest=highest))


@pytest.mark.parametrize(("api", "version"), list(common_versions()))
async def test_a_member_s_life_in_every_version(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, api: str, version: int
) -> None:
    """A member joins, reads, commits, resumes at its offset, and leaves, without a failure."""
    hold_to(monkeypatch, api, version)
    async with harness(2) as here:
        await here.append(3)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records(P0))
            await generation.commit({P0: OffsetAndMetadata(batch.next_offset, 0, "note")})
            await trio.sleep(5)
        async with here.group() as group:
            again = await group.next()
            assert again.start_offsets == {P0: 3, P1: 0}
        sent = here.requests_for(api)
        assert {request.__version__ for _, request in sent} == {version}
        assert here.events_of(RequestFailed) == []
        stored = (await here.broker.committed("group"))[P0]
        carries_epoch = api != "offset_commit" or version >= 6
        assert stored == OffsetAndMetadata(3, 0 if carries_epoch else -1, "note")


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api, version in common_versions() if api in FIRST_WITH_INSTANCE],
)
async def test_a_static_member_needs_brokers_with_static_members(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, api: str, version: int
) -> None:
    """Versions since KIP-345 carry the instance id; for older ones there is an error."""
    hold_to(monkeypatch, api, version)
    refused: BaseException | None = None
    async with harness() as here:
        try:
            async with here.group(group_instance_id="one") as group:
                generation = await group.next()
                await generation.commit({P0: 0})
                await trio.sleep(3)
        except Exception as error:  # noqa: BLE001 # looked at below
            refused = error
        sent = here.requests_for(api)
    if version >= FIRST_WITH_INSTANCE[api]:
        assert refused is None
        assert {request.group_instance_id for _, request in sent} == {"one"}
    else:
        if isinstance(refused, StaleGenerationError):  # the commit's
            assert refused.end is not None
            refused = refused.end.error
        assert isinstance(refused, UnsupportedVersionError)
        assert f"up to v{version}" in str(refused)
        assert "group_instance_id" in str(refused)
        assert sent == []


@pytest.mark.parametrize("version", [2, 3, 4, 9])
@pytest.mark.parametrize("retention", [None, 60.0])
async def test_a_retention_is_carried_by_old_commits_only(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    retention: float | None,
) -> None:
    """With a retention, v4 is the latest version; without, old versions leave it to the broker."""
    hold_to(monkeypatch, "offset_commit", version)
    async with harness() as here:
        async with here.group(offset_retention=retention) as group:
            await (await group.next()).commit(
                {P0: OffsetAndMetadata(0, 5, "note")}, beyond_read=True
            )
        ((_, request),) = here.requests_for("offset_commit")
    spoken = version if retention is None else min(version, 4)
    assert request.__version__ == spoken
    if spoken <= 4:
        milliseconds = -1 if retention is None else 60_000
        assert request.retention_time == timedelta(milliseconds=milliseconds)


async def test_a_broker_without_a_version_that_carries_a_retention(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An error names the field; the field is not left out silently."""
    async with coordinator(nursery, offset_retention=60.0) as (here, node, _):
        node.ranges["offset_commit"] = (5, 9)
        with pytest.raises(UnsupportedVersionError, match=r"OffsetCommit v2 to v4; .* v5 to v9"):
            await here.commit(MEMBERSHIP, {T0: OffsetAndMetadata(1)}, do_nothing, do_nothing)


# Responses that no correct coordinator sends.


def do_nothing() -> None:
    """A callback of a commit that nothing waits for."""


@asynccontextmanager
async def coordinator(
    nursery: trio.Nursery, *, static: str | None = None, **settings: Any
) -> AsyncIterator[tuple[CoordinatorClient, FakeBroker, FakeBrokers]]:
    """A coordinator that is found at b:9."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", find_coordinator=coordinator_of)
    node = nodes.add("b:9", find_coordinator=coordinator_of)
    cluster = nodes.cluster(group_instance_id=static, **settings)
    made = CoordinatorClient(cluster, nodes.config(group_instance_id=static, **settings))
    await made.find()
    try:
        yield made, node, nodes
    finally:
        await made.aclose()
        await cluster.aclose()


def joined(**fields: Any) -> Answer:
    """A JoinGroup response to a follower."""
    return {
        "error_code": 0,
        "generation_id": 7,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "m-0",
        "member_id": "m-1",
        "members": [],
        **fields,
    }


def seen(member_id: str, metadata: bytes) -> dict[str, Any]:
    """A member in the response to the leader."""
    return {"member_id": member_id, "group_instance_id": None, "metadata": metadata}


async def test_an_unreadable_subscription_ends_no_leader(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """That member has no topics and is marked; the others are read, sorted by their ids."""
    async with coordinator(nursery) as (here, node, _):
        good = encode_subscription(topics=["t", "u"], rack_id="east")
        node.answers["join_group"] = joined(
            leader="m-1",
            members=[
                seen("m-3", b"\xff\xff\x00"),
                seen("m-2", b""),
                seen("m-1", good),
                seen("m-0", b"\x00\x00\x7f\xff\xff\xff"),
            ],
        )
        answer = await here.join("m-1", ["t"], "why")
    assert answer.leader
    assert [member.member_id for member in answer.members] == ["m-0", "m-1", "m-2", "m-3"]
    assert [member.version for member in answer.members] == [
        UNREADABLE,
        3,
        UNREADABLE,
        UNREADABLE,
    ]
    assert [member.topics for member in answer.members] == [(), ("t", "u"), (), ()]
    assert answer.members[1].rack_id == "east"


@pytest.mark.parametrize(
    ("fields", "leader", "skip"),
    [
        ({}, False, False),
        ({"leader": "m-1", "members": [seen("m-1", b"")]}, True, False),
        ({"leader": "m-1", "skip_assignment": True}, True, True),
        # Before KIP-814, the response to a static leader that restarted names its old member id.
        ({"leader": "old", "members": [seen("m-1", b"")]}, True, False),
    ],
)
async def test_who_leads(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    fields: dict[str, Any],
    leader: bool,
    skip: bool,
) -> None:
    """The named leader, or the one that gets the members; it may have to skip (KIP-814)."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["join_group"] = joined(**fields)
        answer = await here.join("", ["t"], "why")
    assert (answer.leader, answer.skip_assignment) == (leader, skip)
    assert (answer.member_id, answer.generation_id, answer.assignor) == ("m-1", 7, "range")


async def test_the_fields_of_a_join(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Times are milliseconds, assignors are in order, and the same topics give the same bytes."""
    async with coordinator(nursery, session_timeout=12.5, rebalance_timeout=20.0) as (
        here,
        node,
        nodes,
    ):
        node.answers["join_group"] = joined()
        await here.join("m-1", ["u", "t"], "why " * 100)
        await here.join("m-1", {"t", "u"}, "")
        first, second = nodes.requests("join_group")
    assert first.session_timeout == timedelta(seconds=12.5)
    assert first.rebalance_timeout == timedelta(seconds=20)
    assert [protocol.name for protocol in first.protocols] == ["range", "roundrobin"]
    assert first.protocols == second.protocols
    assert first.protocols[0].metadata[:2] == b"\0\0"
    assert len(first.reason) == 255


async def test_a_rack_is_sent_in_the_version_that_has_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A subscription has version 3 with a rack, and otherwise 0, which every client reads."""
    async with coordinator(nursery, rack_id="east") as (here, node, nodes):
        node.answers["join_group"] = joined()
        await here.join("", ["t"], "")
        (request,) = nodes.requests("join_group")
    assert request.protocols[0].metadata[:2] == b"\0\3"
    assert b"east" in request.protocols[0].metadata


async def test_an_id_to_join_again_with(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """An exception of its own carries the id; without an id it is a plain BrokerError."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["join_group"] = joined(error_code=int(ErrorCode.MEMBER_ID_REQUIRED))
        with pytest.raises(MemberIdRequiredError) as caught:
            await here.join("", ["t"], "")
        assert caught.value.member_id == "m-1"
        node.answers["join_group"] = joined(error_code=79, member_id="")
        with pytest.raises(BrokerError, match=r"member '' of group 'g' .*MEMBER_ID_REQUIRED"):
            await here.join("", ["t"], "")


@pytest.mark.parametrize(
    "assignment", [b"\x00", b"\x00\x00", b"\xff\xff\x00\x00\x00\x00", b"\0\0\0\0\0\5ab"]
)
async def test_an_assignment_that_cannot_be_read_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock, assignment: bytes
) -> None:
    """It does not count as an empty assignment."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["sync_group"] = {
            "error_code": 0,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignment": assignment,
        }
        with pytest.raises(ProtocolError, match="assignment"):
            await here.sync(MEMBERSHIP, {})


async def test_an_assignment_of_no_bytes_is_empty(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A coordinator sends no bytes to a member that the leader has left out."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["sync_group"] = {
            "error_code": 0,
            "protocol_type": None,
            "protocol_name": None,
            "assignment": b"",
        }
        assert await here.sync(MEMBERSHIP, {}) == ()


@pytest.mark.parametrize("leader", [True, False])
async def test_a_follower_waits_for_its_assignment_as_long_as_for_a_rebalance(
    nursery: trio.Nursery, autojump_clock: MockClock, leader: bool
) -> None:
    """The leader's own SyncGroup gets its response at once, or not at all."""
    async with coordinator(nursery, rebalance_timeout=20.0, request_timeout=4.0) as (
        here,
        node,
        _,
    ):
        node.answers["sync_group"] = SILENCE
        before = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await here.sync(attrs.evolve(MEMBERSHIP, leader=leader), {"m-1": [T0]})
        assert trio.current_time() - before == pytest.approx(4 if leader else 25)


async def test_heartbeats_return_the_throttle_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It is in seconds, from the milliseconds of the response (KIP-124)."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["heartbeat"] = {"error_code": 0, "throttle_time": timedelta(seconds=1.5)}
        assert await here.heartbeat(MEMBERSHIP) == 1.5
        node.answers["heartbeat"] = {"error_code": int(ErrorCode.FENCED_INSTANCE_ID)}
        with pytest.raises(FencedInstanceError, match=r"'m-1' of group 'g' in generation 7"):
            await here.heartbeat(MEMBERSHIP)


def committed(*partitions: int, code: int = 0) -> Answer:
    """An OffsetCommit response for these partitions of t."""
    parts = [{"partition_index": number, "error_code": code} for number in partitions]
    return {"topics": [{"name": "t", "partitions": parts}]}


@pytest.mark.parametrize("partitions", [(), (0,), (0, 1, 2), (1, 2)])
async def test_a_commit_response_without_a_partition_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock, partitions: tuple[int, ...]
) -> None:
    """A partition that the response left out must not count as committed."""
    sent = []
    async with coordinator(nursery) as (here, node, _):
        node.answers["offset_commit"] = committed(*partitions)
        offsets = {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(2)}
        with pytest.raises(ProtocolError, match=r"to OffsetCommit v9 (leaves|names)") as caught:
            await here.commit(MEMBERSHIP, offsets, lambda: sent.append(1), do_nothing)
        assert caught.value.sent
        node.answers["offset_commit"] = committed(0, 1, code=22)
        assert await here.commit(MEMBERSHIP, offsets, lambda: sent.append(1), do_nothing) == {
            T0: 22,
            T1: 22,
        }
    assert sent == [1, 1]


def fetched(
    request: RequestFrame, parts: Mapping[int, Mapping[str, Any]], code: int = 0
) -> Mapping[str, Any]:
    """An OffsetFetch response in the form of its version."""
    usual = {"committed_offset": 5, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}
    topic = {
        "name": "t",
        "partitions": [
            {"partition_index": number, **usual, **fields} for number, fields in parts.items()
        ],
    }
    group = {"topics": [topic], "error_code": code}
    return {"groups": [{"group_id": "g", **group}]} if request.version >= 8 else group


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_offsets_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """They are stable (KIP-447); no offset is None, and no metadata is an empty text."""
    async with coordinator(nursery) as (here, node, nodes):
        node.ranges["offset_fetch"] = (0, version)
        node.answers["offset_fetch"] = lambda request: fetched(
            request,
            {0: {"committed_leader_epoch": 3, "metadata": None}, 1: {"committed_offset": -1}},
        )
        offsets = await here.fetch_offsets(MEMBERSHIP, [T1, T0])
        (request,) = nodes.requests("offset_fetch")
    assert offsets == {T0: OffsetAndMetadata(5, 3), T1: None}
    assert request.require_stable is True


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("whole", [True, False])
async def test_an_error_of_the_offsets_is_found_wherever_it_is(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int, whole: bool
) -> None:
    """The error of the whole response, or of one partition, which it names."""
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with coordinator(nursery) as (here, node, _):
        node.ranges["offset_fetch"] = (0, version)
        node.answers["offset_fetch"] = lambda request: (
            fetched(request, {}, code) if whole else fetched(request, {0: {"error_code": code}})
        )
        named = "for member" if whole else "for t-0 of member"
        with pytest.raises(
            AuthorizationError,
            match=f"OffsetFetch {named} 'm-1' .*grant the user READ on the group",
        ):
            await here.fetch_offsets(MEMBERSHIP, [T0])


async def test_an_offset_response_without_a_partition_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It must not count as "no offset", which would start the partition somewhere else."""
    async with coordinator(nursery) as (here, node, _):
        node.answers["offset_fetch"] = lambda request: fetched(request, {0: {}})
        with pytest.raises(ProtocolError, match=r"OffsetFetch v9 leaves out t-1"):
            await here.fetch_offsets(MEMBERSHIP, [T0, T1])


def left(request: RequestFrame, code: int = 0, member_code: int = 0) -> Mapping[str, Any]:
    """A LeaveGroup response in the form of its version."""
    member = {"member_id": "m-1", "group_instance_id": None, "error_code": member_code}
    if request.version < 3:
        return {"error_code": code or member_code}
    return {"error_code": code, "members": [member]}


@pytest.mark.parametrize("version", range(6))
async def test_a_leave_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """One member by its id, or since v3 in a list of one, with the reason since v5."""
    async with coordinator(nursery) as (here, node, nodes):
        node.ranges["leave_group"] = (0, version)
        node.answers["leave_group"] = left
        await here.leave("m-1", None, "why " * 100)
        (request,) = nodes.requests("leave_group")
        member = request.members[0] if version >= 3 else request
        assert member.member_id == "m-1"
        if version >= 5:
            assert len(member.reason) == 255
        node.answers["leave_group"] = lambda frame: left(frame, member_code=25)
        with pytest.raises(BrokerError, match=r"member 'm-1' of group 'g' .*UNKNOWN_MEMBER_ID"):
            await here.leave("m-1", None, "")
        node.answers["leave_group"] = lambda frame: left(frame, code=16)
        with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
            await here.leave("m-1", None, "")


async def test_a_leave_finds_the_coordinator_itself(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A member that is closed while the coordinator is not known still leaves."""
    async with coordinator(nursery) as (here, node, nodes):
        node.answers["leave_group"] = left
        await here.aclose()
        assert here.broker is None
        await here.leave("m-1", None, "")
        assert len(nodes.requests("leave_group")) == 1


async def test_a_leave_needs_no_further_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The member's partitions do not wait for another handshake and login."""
    async with coordinator(nursery) as (here, node, nodes):
        node.answers |= {"leave_group": left, "heartbeat": {"error_code": 0}}
        await here.heartbeat(MEMBERSHIP)
        opened = nodes.opened
        await here.leave("m-1", None, "")
        assert nodes.opened == opened
        assert here._membership_connection is not None
        await here.heartbeat(MEMBERSHIP)
        assert nodes.opened == opened


async def test_a_leave_does_not_wait_for_other_requests(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """While requests are in flight on both connections, it has a third one, which is closed."""
    async with coordinator(nursery) as (here, node, nodes), trio.open_nursery() as waiting:
        node.answers |= {"leave_group": left, "heartbeat": SILENCE, "sync_group": SILENCE}
        waiting.start_soon(here.heartbeat, MEMBERSHIP)
        waiting.start_soon(here.sync, MEMBERSHIP, {})
        await trio.testing.wait_all_tasks_blocked()
        before = nodes.open_now
        await here.leave("m-1", None, "")
        await trio.testing.wait_all_tasks_blocked()
        assert len(nodes.requests("leave_group")) == 1
        assert nodes.open_now == before
        waiting.cancel_scope.cancel()


async def test_requests_without_a_known_coordinator_are_not_sent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The error policy then has it looked up."""
    async with coordinator(nursery) as (here, _, nodes):
        await here.aclose()
        with pytest.raises(ConnectionLostError, match=r"group 'g' is not known") as caught:
            await here.heartbeat(MEMBERSHIP)
        assert not caught.value.sent
        assert nodes.requests("heartbeat") == []


async def test_a_coordinator_that_stayed_keeps_its_connections(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Finding the same coordinator changes nothing; for another one, the connections change."""
    async with coordinator(nursery) as (here, node, nodes):
        node.answers["heartbeat"] = {"error_code": 0}
        await here.heartbeat(MEMBERSHIP)
        link = here._membership_connection
        await here.find()
        assert here._membership_connection is link
        nodes.add("c:9", heartbeat={"error_code": 0})

        def moved(frame: RequestFrame) -> Mapping[str, Any]:
            return {"coordinators": [{**coordinator_of(frame)["coordinators"][0], "host": "c"}]}

        for name in ("a:1", "b:9"):
            nodes.add(name, find_coordinator=moved)
        here._cluster._connections.clear()
        await here.find()
        await here.heartbeat(MEMBERSHIP)
        assert nodes.addresses("heartbeat") == ["b:9", "c:9"]


async def test_two_lookups_at_once_leave_no_connection_behind(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A heartbeat and a commit that both look up the coordinator find the same one."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", find_coordinator=coordinator_of)
    nodes.add("b:9", heartbeat={"error_code": 0}, offset_commit=committed(0))
    cluster = nodes.cluster()
    here = CoordinatorClient(cluster, nodes.config())
    both = trio.Event()
    asked = cluster.find_coordinator
    waiting = []

    async def together(group_id: str) -> Any:
        found = await asked(group_id)
        waiting.append(found)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return found

    cluster.find_coordinator = together  # type: ignore[method-assign]

    async def beat() -> None:
        await here.find()
        await here.heartbeat(MEMBERSHIP)

    async def commit() -> None:
        await here.find()
        await here.commit(MEMBERSHIP, {T0: OffsetAndMetadata(1)}, do_nothing, do_nothing)

    async with trio.open_nursery() as at_once:
        at_once.start_soon(beat)
        at_once.start_soon(commit)
    await here.aclose()
    await cluster.aclose()
    await trio.sleep(0.1)
    assert nodes.open_now == 0


# The group's reactions to them.


async def test_an_unreadable_assignment_is_requested_again_with_backoff(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is reported, and the waits become longer, until it can be read."""
    spoilt: list[object] = []

    def spoil(partitions: Iterable[TopicPartition]) -> bytes:
        if len(spoilt) == 4:
            return encode_assignment(partitions)
        spoilt.append(partitions)
        return b"\0\0\0\0\0\5ab"

    monkeypatch.setattr("kgroup.client.coordinator.encode_assignment", spoil)
    async with harness() as here, here.group() as group:
        generation = await group.next()
        assert generation.assignment.partitions == (P0,)
    failures = [event for event in here.events_of(RequestFailed) if event.request == "SyncGroup"]
    assert len(failures) == len(spoilt) == 4
    assert all("assignment" in event.reason for event in failures)
    waits = [event.seconds for event in here.events_of(BackingOff)][-4:]
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]
