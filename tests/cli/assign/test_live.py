"""A live group, fetched from a broker in memory."""

from __future__ import annotations

import types
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.apis import APIS
from kgroup.cli.assign.group_input import GroupInput
from kgroup.cli.assign.live import fetch_group, read_members
from kgroup.errors import ProtocolError, TransportError, UsageError
from kgroup.testing.memory import memory_runtime
from kgroup.types import Claim, TopicPartition
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.group.harness import Harness, harness

ALL = tuple(TopicPartition("topic", number) for number in range(4))


async def fetch(here: Harness, group_id: str = "group") -> GroupInput:
    """Fetch a group."""
    return await fetch_group(
        here.broker.bootstrap_servers, group_id, memory_runtime(here.broker, seed=99)
    )


@pytest.mark.parametrize("version", range(SUPPORTED_REQUESTS["describe_groups"].highest + 1))
async def test_a_live_group_is_fetched(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The result has members, their subscriptions and assignments, and the topics' partitions."""
    monkeypatch.setitem(
        APIS, "describe_groups", attrs.evolve(APIS["describe_groups"], highest=version)
    )
    async with harness(4) as here:
        settings: dict[str, Any] = {"rack_id": "east", "group_instance_id": "one"}
        async with here.group(**settings) as group:
            generation = await group.next()
            found = await fetch(here)
            (member,) = found.members
            assert member.member_id == generation.member_id
            assert (member.topics, member.rack_id) == (("topic",), "east")
            assert member.group_instance_id == ("one" if version >= 4 else None)
            assert found.claims == {member.member_id: Claim(ALL, -1)}
            assert found.topics["topic"].partitions == 4
            assert generation.end is None


async def test_a_group_that_does_not_exist(autojump_clock: MockClock) -> None:
    """The error names the group and the likely causes."""
    async with harness(1) as here:
        with pytest.raises(UsageError, match="group 'nobody' does not exist"):
            await fetch(here, "nobody")


async def test_a_group_without_members(autojump_clock: MockClock) -> None:
    """A group without members is an error, because there is nothing to assign."""
    async with harness(1) as here:
        async with here.group() as group:
            await group.next()
        with pytest.raises(UsageError, match=r"group 'group' has no members \(state Empty\)"):
            await fetch(here)


async def test_no_broker(autojump_clock: MockClock) -> None:
    """The error is the transport's own."""

    async def refuse(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise OSError(f"{host}:{port} refused")

    async with harness(1) as here:
        runtime = attrs.evolve(memory_runtime(here.broker), open_stream=refuse)
        with pytest.raises(TransportError, match="refused"):
            await fetch_group(here.broker.bootstrap_servers, "group", runtime)


def described(**fields: Any) -> Any:
    """A group as DescribeGroups reports it."""
    described = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "members": [member(b"\0\0" + bytes(8), b"")],
    }
    return types.SimpleNamespace(**{**described, **fields})


def member(metadata: bytes, assignment: bytes) -> Any:
    """A member as DescribeGroups reports it."""
    return types.SimpleNamespace(
        member_id="m", member_metadata=metadata, member_assignment=assignment
    )


def test_a_member_that_has_nothing_claims_nothing() -> None:
    """A member may have an empty assignment, of no bytes."""
    (found,), claims = read_members(described())
    assert (found.member_id, found.topics, claims) == ("m", (), {})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"error_code": 30}, "FAILED: grant the user DESCRIBE on group 'g', or correct its name"),
        ({"error_code": 69}, "group 'g' does not exist, or"),
        ({"group_state": "Dead", "members": []}, "group 'g' does not exist, or"),
        (
            {"protocol_type": "connect"},
            "group 'g' is not a consumer group: its protocol type is 'connect'",
        ),
        (
            {"group_state": "PreparingRebalance"},
            r"group 'g' is rebalancing \(state PreparingRebalance\)",
        ),
    ],
)
def test_groups_that_are_refused(fields: dict[str, Any], fault: str) -> None:
    """A group that cannot be read is one error, which names the group."""
    with pytest.raises(UsageError, match=fault):
        read_members(described(**fields))


def test_bytes_that_cannot_be_read() -> None:
    """If a member's bytes cannot be decoded, the error names the member."""
    with pytest.raises(ProtocolError, match="subscription of member 'm'"):
        read_members(described(members=[member(b"\0", b"")]))
