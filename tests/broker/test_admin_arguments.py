"""Values that the methods of embedded brokers refuse, and those that they convert."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kgroup.broker import EmbeddedCluster, NewRecord, in_memory
from kgroup.errors import ArgumentError, ConfigError, UsageError
from kgroup.types import TopicPartition
from tests.broker.clusters import T0, three_brokers

Call = Callable[[EmbeddedCluster, Any], Any]
OF_TEXTS: list[Call] = [
    lambda cluster, odd: cluster.create_topic(odd),
    lambda cluster, odd: cluster.add_partitions(odd, 9),
    lambda cluster, odd: cluster.delete_topic(odd),
    lambda cluster, odd: cluster.append(odd, 0, [b"a"]),
    lambda cluster, odd: cluster.committed(odd),
    lambda cluster, odd: cluster.remove_member(odd, "m"),
    lambda cluster, odd: cluster.remove_user(odd),
    lambda cluster, odd: cluster.coordinator_of(odd),
    lambda cluster, odd: cluster.coordinator_epoch(odd),
    lambda cluster, odd: cluster.move_coordinator(odd, 1),
    lambda cluster, odd: cluster.nodes[1].inject(odd, "NOT_COORDINATOR"),
    lambda cluster, odd: cluster.nodes[1].inject("Heartbeat", odd),
]
"""Calls with a text."""
OTHERS: list[Call] = [
    lambda cluster, odd: cluster.create_topic("new", odd),
    lambda cluster, odd: cluster.create_topic("new", replication_factor=odd),
    lambda cluster, odd: cluster.add_partitions("t", odd),
    lambda cluster, odd: cluster.append("t", odd, [b"a"]),
    lambda cluster, odd: cluster.append("t", 0, odd),
    lambda cluster, odd: cluster.append("t", 0, [odd]),
    lambda cluster, odd: cluster.set_session_lifetime(odd),
    lambda cluster, odd: cluster.restart_coordinator(away=odd),
    lambda cluster, odd: cluster.restart_coordinator(loading=odd),
    lambda cluster, odd: cluster.rebalance_leaders(loading=odd),
    lambda cluster, odd: cluster.leader_of(odd),
    lambda cluster, odd: cluster.move_leader(odd, 1),
    lambda cluster, odd: cluster.move_leader(T0, odd),
    lambda cluster, odd: cluster.move_coordinator("g", odd),
    lambda cluster, odd: cluster.move_coordinator("g", 1, away=odd),
    lambda cluster, odd: cluster.move_coordinator("g", 1, loading=odd),
    lambda cluster, odd: cluster.nodes[1].start(loading=odd),
    lambda cluster, odd: cluster.nodes[1].stop(loading=odd),
    lambda cluster, odd: cluster.nodes[1].kill(loading=odd),
    lambda cluster, odd: cluster.nodes[1].inject("Heartbeat", "NOT_COORDINATOR", odd),
    lambda cluster, odd: cluster.nodes[1].inject("Heartbeat", "NOT_COORDINATOR", 1, odd),
    lambda cluster, odd: cluster.nodes[1].slow(odd),
    lambda cluster, odd: cluster.nodes[1].fail_coordinator_writes("NOT_ENOUGH_REPLICAS", odd),
    lambda cluster, odd: NewRecord(odd),
    lambda cluster, odd: NewRecord(b"a", odd),
    lambda cluster, odd: NewRecord(b"a", headers=odd),
    lambda cluster, odd: NewRecord(b"a", timestamp=odd),
]
NO_TEXTS: list[object] = [object(), {"x"}, float("nan"), b"x", None]


@pytest.mark.parametrize(
    ("call", "odd"),
    [
        *((call, odd) for call in OF_TEXTS for odd in NO_TEXTS),
        *((call, odd) for call in OTHERS for odd in (object(), float("nan"), "x")),
    ],
)
async def test_a_wrong_value_is_refused_by_the_call(call: Call, odd: object) -> None:
    """Each method refuses what it cannot use, and the brokers and their topics are as before."""
    async with three_brokers() as cluster:
        with pytest.raises(UsageError):
            await result_of(call(cluster, odd))
        assert all(node.is_up for node in cluster.nodes.values())
        assert await cluster.append("t", 0, [b"a"]) == 0
        with pytest.raises(UsageError, match="no topic 'new'"):
            await cluster.delete_topic("new")


async def result_of(returned: object) -> object:
    """What a method returned, once it was awaited if it is async."""
    return await returned if inspect.isawaitable(returned) else returned


@pytest.mark.parametrize("error", [0, "NONE", True, 2**15, -(2**15) - 1])
async def test_an_injected_error_is_one(error: Any) -> None:
    """NONE, with which a response claims a success, and numbers that no response can have."""
    async with three_brokers() as cluster:
        with pytest.raises(ArgumentError, match="error_code="):
            cluster.nodes[1].inject("Produce", error)
        assert cluster.nodes[1].inject("Produce", 2**15 - 1).error_code == 2**15 - 1


async def test_the_security_of_a_broker_is_of_its_class() -> None:
    """An empty mapping does not pass for a broker without security."""
    wrong: Any
    for wrong in ({}, "SASL_SSL", {"users": {"alice": "secret"}}):
        with pytest.raises(ConfigError, match="security=.*must be a BrokerSecurity"):
            async with in_memory(security=wrong):
                pytest.fail("it runs")


async def test_an_empty_list_of_records_is_refused() -> None:
    """Nothing is written, and the error names the argument."""
    async with three_brokers() as cluster:
        with pytest.raises(ArgumentError, match="records="):
            await cluster.append("t", 0, [])


async def test_a_password_is_a_text() -> None:
    """A user without a password is refused as any password that cannot be used."""
    async with three_brokers() as cluster:
        nothing: Any = None
        with pytest.raises(ConfigError, match="password"):
            cluster.set_user("alice", nothing)


async def test_settings_of_a_topic_are_made_texts() -> None:
    """A number is as good as its text, as for the broker's own settings; None is left out."""
    async with three_brokers() as cluster:
        await cluster.create_topic("new", 1, {"retention.ms": 5000, "retention.bytes": None})
        assert cluster.leader_of(TopicPartition("new", 0)) is not None
        with pytest.raises(UsageError, match="retention.ms"):
            await cluster.create_topic("newer", 1, {"retention.ms": "soon"})


@pytest.mark.parametrize("pair", [(b"key", b"value"), {"key": b"value"}])
def test_a_pair_in_place_of_a_value_is_refused_by_the_name_of_what_has_keys(pair: Any) -> None:
    """The error names NewRecord."""
    with pytest.raises(ArgumentError, match="kgroup.broker.NewRecord"):
        NewRecord(pair)
