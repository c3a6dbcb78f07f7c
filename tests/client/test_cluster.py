"""The cluster: to which brokers its requests go, their fields by version, and its caches."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, in_memory_cluster
from kgroup.client.cluster import EARLIEST, LATEST, Cluster
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kgroup.security.settings import Security, SecurityProtocol
from kgroup.testing.memory import config_for
from kgroup.types import BrokerAddress, EpochEnd, IsolationLevel, TopicInfo, TopicPartition
from kgroup.wire.codec import RequestFrame
from kgroup.wire.port_hints import login_expected
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.fake_brokers import SILENCE, FakeBroker, FakeBrokers, metadata

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
ALONE = {1: "a:1"}


def versions_of(api: str) -> range:
    """All versions that kgroup supports."""
    return range(SUPPORTED_REQUESTS[api].lowest, SUPPORTED_REQUESTS[api].highest + 1)


async def test_a_forked_process_opens_no_connection(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers to which its parent has none yet get none either: it would act as its parent."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "a:1", 2: "b:1"}))
    nodes.add("b:1", metadata=metadata({1: "a:1", 2: "b:1"}))
    cluster = nodes.cluster()
    await cluster.metadata(None)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)
        with pytest.raises(ConnectionLostError, match="was forked from process"):
            await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["a:1"]
    assert nodes.opened == 1


@pytest.mark.parametrize("version", versions_of("metadata"))
@pytest.mark.parametrize("topics", [None, {"t", "__own"}])
async def test_metadata_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int, topics: set[str] | None
) -> None:
    """All versions return brokers, topics and leaders; auto-creation is off in all of them."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata(ALONE, {"t": [1, 1, -1], "__own": [1]}))
    node.ranges["metadata"] = (0, version)
    result = await nodes.cluster().metadata(topics)
    assert nodes.versions("metadata") == [version]
    (request,) = nodes.requests("metadata")
    assert request.allow_auto_topic_creation is False
    assert (request.topics is None) is (topics is None)
    assert {name: topic.partitions for name, topic in result.topics.items()} == {"t": 3, "__own": 1}
    assert result.leaders == {T0: 1, T1: 1, TopicPartition("__own", 0): 1}
    assert result.internal == {"__own"}
    assert result.missing == frozenset()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_a_missing_topic_empties_no_other(
    nursery: trio.Nursery, autojump_clock: MockClock, code: int
) -> None:
    """The topic is in ``missing``, and the others are in ``topics``."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata(ALONE, {"t": [1], "absent": int(code)}))
    result = await nodes.cluster().metadata({"t", "absent"})
    assert list(result.topics) == ["t"]
    assert result.missing == {"absent"}


async def test_a_topic_without_permission_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The error names the topic and the permissions that the principal needs."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata(ALONE, {"t": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}))
    with pytest.raises(
        AuthorizationError,
        match=r"topic 't' .*grant the user READ \(it implies DESCRIBE\) on the topic, or correct",
    ):
        await nodes.cluster().metadata({"t"})


async def test_racks_are_those_of_the_replicas(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each partition has the racks of its replicas; a broker without a rack adds none."""
    answer: dict[str, Any] = dict(metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2]}))
    answer["brokers"][0]["rack"] = "east"
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=answer)
    result = await nodes.cluster().metadata({"t"})
    assert attrs.evolve(result.topics["t"], topic_id=None) == TopicInfo(
        name="t", partitions=2, racks=(("east",), ())
    )


async def test_the_next_broker_is_tried_if_one_is_unavailable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Bootstrap servers are tried in their order, each once; the error names all of them.

    In a second round, the brokers that responded in the first are tried first.
    """
    nodes = FakeBrokers(nursery)
    nodes.add("b:1", metadata=lambda _: None)
    last = nodes.add("c:1", metadata=metadata(ALONE))
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1,c:1")
    await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["b:1", "c:1"]
    last.up = False
    await cluster.aclose()
    with pytest.raises(ConnectionLostError, match=r"responded: .* c:1.*; .* a:1.*; b:1 closed"):
        await cluster.metadata(None)


async def test_an_error_names_three_brokers_at_most(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The others are counted; a hint that several of them have in common is given once."""
    nodes = FakeBrokers(nursery)
    for address in ("b:1", "c:1"):
        nodes.add(address, metadata=lambda _: None)
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1,c:1,d:1,e:1")
    with pytest.raises(ConnectionLostError) as caught:
        await cluster.metadata(None)
    error = caught.value
    assert error.failure == (
        "no broker responded: no connection to a:1: no broker listens on a:1; b:1 closed the"
        " connection cleanly; c:1 closed the connection cleanly and 2 more"
    )
    assert error.hint == login_expected(SecurityProtocol.PLAINTEXT)


async def test_equal_failures_are_named_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A server that is listed twice, with nothing listening, is one text."""
    cluster = FakeBrokers(nursery).cluster(bootstrap_servers="a:1,a:1,b:1")
    with pytest.raises(ConnectionLostError) as caught:
        await cluster.metadata(None)
    assert str(caught.value).count("no connection to a:1") == 1
    assert "no connection to b:1" in str(caught.value)


async def test_brokers_that_fail_in_different_ways(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The error is of the class of the last one, so that the error policy does what it did."""
    nodes = FakeBrokers(nursery)
    nodes.add("b:1").ranges["metadata"] = (99, 99)
    nodes.add("c:1", metadata=lambda _: None)
    for servers, error_class in (
        ("a:1,b:1", UnsupportedVersionError),
        ("b:1,a:1", ConnectionLostError),
        ("c:1,b:1", UnsupportedVersionError),
    ):
        with pytest.raises(error_class, match="no broker responded: ") as caught:
            await nodes.cluster(bootstrap_servers=servers).metadata(None)
        assert "b:1 " in str(caught.value)
    assert "may belong to a listener that asks for a login" in str(caught.value)


async def test_known_brokers_come_before_the_bootstrap_servers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A broker with an open connection is tried first, and the bootstrap servers last."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "b:1", 2: "c:1"})
    boot = nodes.add("a:1", metadata=topology)
    others = [nodes.add(address, metadata=topology) for address in ("b:1", "c:1")]
    cluster = nodes.cluster()
    await cluster.metadata(None)
    await cluster.metadata(None)
    second = nodes.addresses("metadata")[1]
    assert second in {"b:1", "c:1"}
    await cluster.metadata(None)
    assert nodes.addresses("metadata")[2] == second
    for node in others:
        node.up = False
    await cluster.aclose()
    await cluster.metadata(None)
    assert boot.up
    assert nodes.addresses("metadata")[3] == "a:1"


async def test_the_addresses_that_are_known(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """They are the bootstrap servers, and what the brokers call themselves, in the same form."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "a:1", 2: "b:2", 3: "[::1]:3"}, {"t": [1]}))
    cluster = nodes.cluster()
    assert cluster.known_addresses == {"a:1"}
    await cluster.metadata({"t"})
    assert cluster.known_addresses == {"a:1", "b:2", "[::1]:3"}


async def test_a_coordinator_s_address_is_a_broker_s(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If FindCoordinator names a new address of a broker, requests go there, not to the old one."""
    nodes = FakeBrokers(nursery)
    old = nodes.add("a:1", metadata=metadata({1: "a:1", 3: "c:3"}, {"t": [1]}))
    nodes.add("c:3", find_coordinator=coordinator_of)
    nodes.add("b:9", metadata=metadata({3: "b:9"}), find_coordinator=coordinator_of)
    cluster = nodes.cluster()
    await cluster.metadata({"t"})
    old.up = False
    await cluster.aclose()
    assert await cluster.find_coordinator("g") == BrokerAddress(3, "b", 9)
    assert cluster.known_addresses == {"a:1", "b:9"}
    await cluster.metadata(set())
    assert nodes.addresses("metadata")[1:] == ["b:9"]
    await cluster.aclose()


async def test_the_brokers_are_refreshed_by_one_request_for_all(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Members of a process send one request without topics, and all learn the new addresses."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "b:2"}))
    clusters = [nodes.cluster() for _ in range(5)]
    async with trio.open_nursery() as members:
        for cluster in clusters:
            members.start_soon(cluster.refresh_brokers)
    assert [request.topics for request in nodes.requests("metadata")] == [()]
    assert {cluster.known_addresses for cluster in clusters} == {frozenset({"a:1", "b:2"})}
    for cluster in clusters:
        await cluster.aclose()


async def test_brokers_are_suspected_until_the_next_metadata(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A suspicion lasts until a response lists brokers; before the first one there is one too."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata({}))
    cluster = nodes.cluster()

    async def suspected() -> bool:
        with trio.move_on_after(1):
            await cluster.brokers_suspected()
            return True
        return False

    assert await suspected()
    await cluster.metadata(None)
    assert await suspected()
    node.answers["metadata"] = metadata(ALONE)
    await cluster.metadata(None)
    assert not await suspected()
    cluster.suspect_brokers()
    assert await suspected()
    await cluster.metadata(None)
    assert not await suspected()
    await cluster.aclose()


async def test_a_broker_that_did_not_respond_is_tried_last(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A silent broker costs its timeout only once, until it responds again."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "a:1", 2: "b:1"})
    first = nodes.add("a:1", metadata=SILENCE)
    second = nodes.add("b:1", metadata=topology)
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1", request_timeout=10)
    began = trio.current_time()
    for _ in range(5):
        await cluster.metadata(None)
    assert trio.current_time() - began == 10
    assert nodes.addresses("metadata") == ["a:1", *["b:1"] * 5]
    first.answers["metadata"], second.up = topology, False
    await cluster.aclose()
    await cluster.metadata(None)
    assert nodes.addresses("metadata")[-1] == "a:1"
    await cluster.aclose()


async def test_a_broker_that_owes_an_answer_is_tried_last(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """While one request waits at a frozen broker, the next ones go to the others at once."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "a:1", 2: "b:1", 3: "c:1"})
    brokers = {address: nodes.add(address, metadata=topology) for address in ("a:1", "b:1", "c:1")}
    cluster = nodes.cluster(request_timeout=10)
    await cluster.metadata(None)
    await cluster.metadata(None)
    frozen = nodes.addresses("metadata")[-1]
    brokers[frozen].answers["metadata"] = SILENCE
    nursery.start_soon(cluster.metadata, None)
    await trio.sleep(1)
    assert nodes.addresses("metadata")[-1] == frozen
    began = trio.current_time()
    for _ in range(10):
        await cluster.metadata(None)
    assert trio.current_time() == began
    assert frozen not in nodes.addresses("metadata")[-10:]
    await cluster.aclose()


async def test_brokers_are_not_forgotten_for_an_empty_answer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A starting broker may list no brokers, not even itself."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "b:1"}))
    nodes.add("b:1", metadata=metadata({}))
    cluster = nodes.cluster()
    for _ in range(3):
        await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["a:1", "b:1", "b:1"]


async def test_a_rebootstrap_forgets_all_brokers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """KIP-1102: after it, requests go to the bootstrap servers again."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "b:1"}))
    nodes.add("b:1", metadata=metadata({}, error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED)))
    cluster = nodes.cluster()
    await cluster.metadata(None)
    with pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"):
        await cluster.metadata(None)
    await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["a:1", "b:1", "a:1"]


async def test_a_broker_that_is_too_old_is_passed_over(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Another broker with a common version is tried; if there is none, the error says so."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1").ranges["metadata"] = (0, 3)
    newer = nodes.add("b:1", metadata=metadata(ALONE))
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1")
    await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["b:1"]
    await cluster.aclose()
    newer.ranges["metadata"] = (0, 3)
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1")
    with pytest.raises(UnsupportedVersionError, match=r"b:1 supports v0 to v3: upgrade the broker"):
        await cluster.metadata(None)
    await cluster.aclose()


def coordinator_of(request: RequestFrame) -> dict[str, Any]:
    """A FindCoordinator response in the form of its version."""
    fields = {"error_code": 0, "error_message": None, "node_id": 3, "host": "b", "port": 9}
    if request.version >= 4:
        return {"coordinators": [{"key": "g", **fields}]}
    return fields


@pytest.mark.parametrize("version", versions_of("find_coordinator"))
async def test_the_coordinator_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """By the group's id, or since v4 in a list of one (KIP-699), with the key type of groups."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", find_coordinator=coordinator_of)
    node.ranges["find_coordinator"] = (0, version)
    assert await nodes.cluster().find_coordinator("g") == BrokerAddress(3, "b", 9)
    (request,) = nodes.requests("find_coordinator")
    asked = request.coordinator_keys if version >= 4 else (request.key,)
    assert asked == ("g",)
    assert getattr(request, "key_type", 0) == 0


@pytest.mark.parametrize("version", [0, 6])
async def test_a_coordinator_that_is_not_known(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """The error is read from where the version has it, and it names the group."""
    nodes = FakeBrokers(nursery)

    def refuse(request: RequestFrame) -> dict[str, Any]:
        answer = coordinator_of(request)
        answer.get("coordinators", [answer])[0]["error_code"] = 15
        return answer

    nodes.add("a:1", find_coordinator=refuse).ranges["find_coordinator"] = (0, version)
    with pytest.raises(BrokerError, match=r"group 'g' .*COORDINATOR_NOT_AVAILABLE"):
        await nodes.cluster().find_coordinator("g")


def offsets_of(request: RequestFrame) -> dict[str, Any]:
    """A ListOffsets response: partition n begins at 10 * n and ends at 10 * n + 5."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": 0,
                        "timestamp": -1,
                        "offset": 10 * part.partition_index + (5 if part.timestamp == -1 else 0),
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.entity.topics
        ]
    }


def ends_of(request: RequestFrame) -> dict[str, Any]:
    """An OffsetForLeaderEpoch response: in partition n, epoch e ends at 10 * n + e."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition": part.partition,
                        "leader_epoch": part.leader_epoch,
                        "end_offset": 10 * part.partition + part.leader_epoch,
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.entity.topics
        ]
    }


async def ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], **named: Any
) -> dict[TopicPartition, object]:
    """Where epochs end, and the failures."""
    found: dict[TopicPartition, EpochEnd | None] = {}
    failed = await cluster.epoch_ends(epochs, found, **named)
    return {**found, **failed}


@pytest.mark.parametrize("version", versions_of("offset_for_leader_epoch"))
async def test_ends_of_leader_epochs_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """Each leader is asked about its own partitions, as a consumer, under its present epoch."""
    nodes = FakeBrokers(nursery)
    for address in ("a:1", "b:1"):
        topology = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2, 1]}, leader_epoch=4)
        node = nodes.add(address, metadata=topology, offset_for_leader_epoch=ends_of)
        node.ranges["offset_for_leader_epoch"] = (0, version)
    found = await ends(nodes.cluster(), {T0: 3, T1: 2, T2: 4})
    assert found == {T0: EpochEnd(3, 3), T1: EpochEnd(12, 2)}
    assert sorted(nodes.addresses("offset_for_leader_epoch")) == ["a:1", "b:1"]
    for request in nodes.requests("offset_for_leader_epoch"):
        assert request.replica_id == -1
        for topic in request.topics:
            assert [part.current_leader_epoch for part in topic.partitions] == [4]


@pytest.mark.parametrize(("leader_epoch", "version"), [(3, 13), (-1, 13), (-1, 6)])
async def test_ends_of_leader_epochs_that_are_not_asked_for(
    nursery: trio.Nursery, autojump_clock: MockClock, leader_epoch: int, version: int
) -> None:
    """A partition still has the epoch, or its broker sends none: nothing was cut off for sure."""
    nodes = FakeBrokers(nursery)
    topology = metadata(ALONE, {"t": [1]}, leader_epoch=leader_epoch)
    node = nodes.add("a:1", metadata=topology, offset_for_leader_epoch=ends_of)
    node.ranges["metadata"] = (0, version)
    cluster = nodes.cluster()
    assert await ends(cluster, {T0: 3}) == {}
    with trio.testing.assert_checkpoints():
        assert await ends(cluster, {}) == {}
    assert nodes.requests("offset_for_leader_epoch") == []


async def test_ends_of_leader_epochs_from_cached_leaders(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """No Metadata is requested for known leaders; a partition without a leader has an error."""
    nodes = FakeBrokers(nursery)
    topology = metadata(ALONE, {"t": [1, -1]}, leader_epoch=5)
    nodes.add("a:1", metadata=topology, offset_for_leader_epoch=ends_of)
    cluster = nodes.cluster()
    await cluster.metadata({"t"})
    assert await ends(cluster, {T0: 3}, use_cached=True) == {T0: EpochEnd(3, 3)}
    assert len(nodes.requests("metadata")) == 1
    # Leaders that are known from earlier may have been replaced since.
    asked = len(nodes.requests("offset_for_leader_epoch"))
    assert await ends(cluster, {T0: 5}, use_cached=True) == {}
    assert len(nodes.requests("offset_for_leader_epoch")) == asked + 1
    assert await ends(cluster, {T0: 7}, use_cached=True, up_to_date=["t"]) == {}
    (topic,) = nodes.requests("offset_for_leader_epoch")[-1].topics
    assert topic.partitions[0].current_leader_epoch == 7
    asked += 1
    assert await ends(cluster, {T0: 5}, use_cached=True, up_to_date=["t"]) == {}
    assert len(nodes.requests("offset_for_leader_epoch")) == asked + 1
    found = await ends(cluster, {T0: 3, T1: 3}, use_cached=True)
    assert found[T0] == EpochEnd(3, 3)
    assert isinstance(error := found[T1], BrokerError)
    assert error.code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"leader_epoch": -1}, None),
        ({"end_offset": -1}, None),
        ({"error_code": 74}, "FENCED_LEADER_EPOCH"),
        ({"end_offset": -2}, "gives t-0 the end -2 of leader epoch 3"),
        ({"leader_epoch": -7}, "gives t-0 the end 3 of leader epoch -7"),
        ({"partition": 5}, "leaves out t-0"),
    ],
)
async def test_answers_about_the_end_of_a_leader_epoch(
    nursery: trio.Nursery, autojump_clock: MockClock, fields: dict[str, int], expected: str | None
) -> None:
    """An epoch that the log does not know is None; what cannot be is an error of that leader."""

    def other(request: RequestFrame) -> dict[str, Any]:
        answer = ends_of(request)
        answer["topics"][0]["partitions"][0].update(fields)
        return answer

    nodes = FakeBrokers(nursery)
    topology = metadata(ALONE, {"t": [1]}, leader_epoch=4)
    nodes.add("a:1", metadata=topology, offset_for_leader_epoch=other)
    found = (await ends(nodes.cluster(), {T0: 3}))[T0]
    if expected is None:
        assert found is None
    else:
        assert isinstance(found, BrokerError | ProtocolError)
        assert expected in str(found)


async def test_what_one_leader_answers_is_kept_whatever_the_others_do(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One is silent until the call is given up, one refuses, one does not have the request."""
    nodes = FakeBrokers(nursery)
    topology = metadata(
        {1: "a:1", 2: "b:1", 3: "c:1", 4: "d:1"}, {"t": [1, 2, 3, 4]}, leader_epoch=4
    )
    for address in ("a:1", "b:1", "c:1", "d:1"):
        answer = SILENCE if address == "b:1" else ends_of
        node = nodes.add(address, metadata=topology, offset_for_leader_epoch=answer)
        if address == "c:1":
            node.ranges["offset_for_leader_epoch"] = (0, 2)
    cluster = nodes.cluster()
    found: dict[TopicPartition, EpochEnd | None] = {}
    epochs = {TopicPartition("t", number): 3 for number in range(4)}
    with trio.move_on_after(0.5) as scope:
        await cluster.epoch_ends(epochs, found)
    assert scope.cancelled_caught
    assert found == {T0: EpochEnd(3, 3), TopicPartition("t", 3): EpochEnd(33, 3)}
    asked = len(nodes.requests("metadata"))
    cluster.forget_leaders([T1])
    assert cluster.cached_partitions("t") == 0
    await cluster.epoch_ends({T0: 3}, found, use_cached=True)
    assert len(nodes.requests("metadata")) == asked
    await cluster.epoch_ends({T1: 4}, found, use_cached=True)
    assert len(nodes.requests("metadata")) == asked + 1


@pytest.mark.parametrize("version", versions_of("list_offsets"))
async def test_offsets_in_every_version(
    nursery: trio.Nursery, autojump_clock: MockClock, version: int
) -> None:
    """Each leader gets its own partitions, with the isolation level if the version has it."""
    nodes = FakeBrokers(nursery)
    for address in ("a:1", "b:1"):
        node = nodes.add(
            address,
            metadata=metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2, 1]}),
            list_offsets=offsets_of,
        )
        node.ranges["list_offsets"] = (0, version)
    cluster = nodes.cluster(isolation_level="read_committed")
    assert await cluster.list_offsets({T0, T1, T2}, LATEST) == {T0: 5, T1: 15, T2: 25}
    assert await cluster.list_offsets({T2}, EARLIEST) == {T2: 20}
    assert sorted(nodes.addresses("list_offsets")[:2]) == ["a:1", "b:1"]
    assert nodes.addresses("list_offsets")[2:] == ["a:1"]
    for request in nodes.requests("list_offsets"):
        assert getattr(request, "isolation_level", 1) == 1
        if version >= 10:
            assert request.timeout.total_seconds() == 10


async def test_partitions_without_a_leader_have_an_error_each(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The topic is deleted, has no leader, or has a leader that no broker lists."""
    nodes = FakeBrokers(nursery)
    nodes.add(
        "a:1",
        metadata=metadata(ALONE, {"t": [1, -1, 9], "gone": 3}),
        list_offsets=offsets_of,
    )
    gone = TopicPartition("gone", 0)
    answers = await nodes.cluster().list_offsets({T0, T1, T2, gone}, EARLIEST)
    assert answers[T0] == 0
    assert {
        name: error.name for name, error in answers.items() if isinstance(error, BrokerError)
    } == {
        T1: "LEADER_NOT_AVAILABLE",
        T2: "LEADER_NOT_AVAILABLE",
        gone: "UNKNOWN_TOPIC_OR_PARTITION",
    }


async def test_a_partition_s_error_is_its_own(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The other partitions of the same leader have their offsets."""
    nodes = FakeBrokers(nursery)

    def some(request: RequestFrame) -> dict[str, Any]:
        answer = offsets_of(request)
        answer["topics"][0]["partitions"][1]["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer

    nodes.add("a:1", metadata=metadata(ALONE, {"t": [1, 1]}), list_offsets=some)
    answers = await nodes.cluster().list_offsets({T0, T1}, EARLIEST)
    assert answers[T0] == 0
    error = answers[T1]
    assert isinstance(error, BrokerError)
    assert "t-1 was answered with NOT_LEADER_OR_FOLLOWER" in str(error)


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([], "leaves out t-0, t-1"),
        ([0], "leaves out t-1"),
        ([0, 1, 2], "names t-2, which the request did not"),
        ([0, 1, 0], "names a partition twice"),
    ],
)
async def test_a_response_about_other_partitions_is_an_error(
    nursery: trio.Nursery, autojump_clock: MockClock, parts: list[int], wrong: str
) -> None:
    """A partition that the response left out must not start at 0."""
    nodes = FakeBrokers(nursery)

    def others(_: RequestFrame) -> dict[str, Any]:
        fields = {"error_code": 0, "timestamp": -1, "offset": 7}
        partitions = [{"partition_index": number, **fields} for number in parts]
        return {"topics": [{"name": "t", "partitions": partitions}]}

    nodes.add("a:1", metadata=metadata(ALONE, {"t": [1, 1]}), list_offsets=others)
    answers = await nodes.cluster().list_offsets({T0, T1}, EARLIEST)
    assert answers.keys() == {T0, T1}
    for answer in answers.values():
        assert isinstance(answer, ProtocolError)
        assert str(answer) == f"the response of a:1 to ListOffsets v10 {wrong}"


async def test_a_leader_that_does_not_respond_raises_after_the_deadline(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """No other broker can respond in its place; the deadline is that of the request."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata({1: "a:1", 2: "b:1"}, {"t": [2]}))

    async def silent(host: str, port: int) -> trio.abc.Stream:
        if host == "b":
            await trio.sleep_forever()
        return await nodes.open(host, port)

    cluster = nodes.cluster(request_timeout=4.0)
    cluster._open_stream = silent
    before = trio.current_time()
    answers = await cluster.list_offsets({T0}, EARLIEST)
    assert isinstance(answers[T0], RequestTimeoutError)
    assert "b:1" in str(answers[T0])
    assert trio.current_time() - before == pytest.approx(4)


async def test_cached_leaders_get_one_request_each(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A hundred partitions of two leaders need two requests, and Metadata only the first time."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2] * 50})
    for address in ("a:1", "b:1"):
        nodes.add(address, metadata=topology, list_offsets=offsets_of)
    cluster = nodes.cluster()
    names = [TopicPartition("t", number) for number in range(100)]
    for _ in range(3):
        answers = await cluster.list_offsets(names, LATEST, use_cached=True)
        assert answers == {name: 10 * name.partition + 5 for name in names}
    assert sorted(nodes.addresses("list_offsets")) == ["a:1"] * 3 + ["b:1"] * 3
    assert len(nodes.requests("metadata")) == 1
    await cluster.list_offsets(names, LATEST)
    assert len(nodes.requests("metadata")) == 2
    assert await cluster.list_offsets([], LATEST) == {}
    assert len(nodes.requests("metadata")) == 2


async def test_only_topics_without_cached_leaders_are_looked_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Every Metadata response is cached, and a topic that was requested later is added."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata(ALONE, {"t": [1]}), list_offsets=offsets_of)
    cluster = nodes.cluster()
    await cluster.metadata({"t"})
    node.answers["metadata"] = metadata(ALONE, {"v": 3})
    nodes.received.clear()
    await cluster.list_offsets({T0}, LATEST, use_cached=True)
    assert not nodes.requests("metadata")
    await cluster.list_offsets({T0, TopicPartition("v", 0)}, LATEST, use_cached=True)
    (request,) = nodes.requests("metadata")
    assert [topic.name for topic in request.topics] == ["v"]


async def test_a_leader_that_moved_is_looked_up_for_the_next_request(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The old leader's error causes a lookup; the other partitions keep their leaders."""
    nodes = FakeBrokers(nursery)
    moved = False

    def topology(_: RequestFrame) -> Mapping[str, Any]:
        return metadata({1: "a:1", 2: "b:1"}, {"t": [2 if moved else 1, 1]})

    def old(request: RequestFrame) -> dict[str, Any]:
        answer = offsets_of(request)
        for part in answer["topics"][0]["partitions"]:
            if moved and part["partition_index"] == 0:
                part["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer

    nodes.add("a:1", metadata=topology, list_offsets=old)
    nodes.add("b:1", metadata=topology, list_offsets=offsets_of)
    cluster = nodes.cluster()
    await cluster.list_offsets({T0, T1}, LATEST, use_cached=True)
    moved = True
    answers = await cluster.list_offsets({T0, T1}, LATEST, use_cached=True)
    assert isinstance(answers[T0], BrokerError)
    assert answers[T1] == 15
    assert len(nodes.requests("metadata")) == 1
    assert await cluster.list_offsets({T0, T1}, LATEST, use_cached=True) == {T0: 5, T1: 15}
    assert len(nodes.requests("metadata")) == 2
    assert nodes.addresses("list_offsets").count("b:1") == 1


async def test_an_unavailable_leader_does_not_affect_the_others(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its partitions have the failure, and are looked up for the next request."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2, 2]})
    nodes.add("a:1", metadata=topology, list_offsets=offsets_of)
    away = nodes.add("b:1", metadata=topology, list_offsets=lambda _: None)
    cluster = nodes.cluster()
    await cluster.metadata({"t"})
    answers = await cluster.list_offsets({T0, T1, T2}, LATEST, use_cached=True)
    assert answers[T0] == 5
    assert isinstance(answers[T1], ConnectionLostError)
    assert answers[T2] is answers[T1]
    away.answers["list_offsets"] = offsets_of
    asked = len(nodes.requests("metadata"))
    assert await cluster.list_offsets({T0}, LATEST, use_cached=True) == {T0: 5}
    assert len(nodes.requests("metadata")) == asked
    answers = await cluster.list_offsets({T0, T1, T2}, LATEST, use_cached=True)
    assert answers == {T0: 5, T1: 15, T2: 25}
    assert len(nodes.requests("metadata")) == asked + 1


@pytest.mark.parametrize(
    ("asked", "level"), [(None, 1), ("read_committed", 1), ("read_uncommitted", 0)]
)
async def test_the_isolation_level_is_the_group_s_by_default(
    nursery: trio.Nursery, autojump_clock: MockClock, asked: str | None, level: int
) -> None:
    """The level decides whether the end is the last stable offset."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata(ALONE, {"t": [1]}), list_offsets=offsets_of)
    cluster = nodes.cluster(isolation_level="read_committed")
    given = None if asked is None else IsolationLevel(asked)
    await cluster.list_offsets({T0}, LATEST, isolation_level=given)
    (request,) = nodes.requests("list_offsets")
    assert request.isolation_level == level


async def test_closing_closes_all_and_can_be_cancelled(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All connections are closed, even in a cancelled scope; closing again does nothing."""
    nodes = FakeBrokers(nursery)
    topology = metadata({1: "a:1", 2: "b:1"}, {"t": [1, 2]})
    for address in ("a:1", "b:1"):
        nodes.add(address, metadata=topology, list_offsets=offsets_of)
    cluster = nodes.cluster()
    await cluster.list_offsets({T0, T1}, EARLIEST)
    assert nodes.open_now == 2
    with trio.CancelScope() as scope:
        scope.cancel()
        await cluster.aclose()
    assert scope.cancelled_caught
    await trio.sleep(0.1)
    assert nodes.open_now == 0
    await cluster.aclose()


@pytest.mark.parametrize(
    ("server", "address"),
    [("a:1", ("a", 1)), ("[::1]:9092", ("::1", 9092)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
async def test_addresses_of_every_form(
    nursery: trio.Nursery, autojump_clock: MockClock, server: str, address: tuple[str, int]
) -> None:
    """The brackets belong to the text, not to the host."""
    opened = []

    async def refuse(host: str, port: int) -> trio.abc.Stream:
        opened.append((host, port))
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError("no")

    cluster = FakeBrokers(nursery).cluster(bootstrap_servers=server)
    cluster._open_stream = refuse
    with pytest.raises(ConnectionLostError):
        await cluster.metadata(None)
    assert opened[0] == address


WEB_SERVER = AuthenticationError.in_tls("a:1 does not speak TLS on this port")
NO_MECHANISM = AuthenticationError(33, "UNSUPPORTED_SASL_MECHANISM", "SASL login", "no PLAIN")
WRONG_PASSWORD = AuthenticationError(58, "SASL_AUTHENTICATION_FAILED", "SASL login", "wrong")
NO_TOKEN = AuthenticationError(
    58, "SASL_AUTHENTICATION_FAILED", AuthenticationError.LOOKUP, "Security.token raised"
)
WRONG = "wrong"
EACH = ["a:1", "b:1", "c:1"]


@pytest.mark.parametrize("refusal", [WEB_SERVER, NO_MECHANISM, WRONG_PASSWORD])
async def test_what_one_address_refuses_is_requested_from_another(
    nursery: trio.Nursery, autojump_clock: MockClock, refusal: AuthenticationError
) -> None:
    """It fails like an address that does not respond, and is tried last from then on."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1").refusal = refusal
    nodes.add("b:1", metadata=metadata({1: "a:1", 2: "b:1"}))
    cluster = nodes.cluster(bootstrap_servers="a:1,b:1")
    for _ in range(3):
        await cluster.metadata(None)
    assert nodes.addresses("metadata") == ["b:1"] * 3
    assert nodes.refused == ["a:1"]
    await cluster.aclose()


@pytest.mark.parametrize(
    ("refusal", "refused"),
    [(WEB_SERVER, EACH), (NO_MECHANISM, EACH), (WRONG_PASSWORD, EACH[:2]), (NO_TOKEN, EACH[:1])],
)
async def test_a_refusal_by_all_is_raised(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    refusal: AuthenticationError,
    refused: list[str],
) -> None:
    """A wrong password is sent to one other broker; if there is nothing to log in with, to none."""
    nodes = FakeBrokers(nursery)
    for address in EACH:
        nodes.add(address).refusal = refusal
    with pytest.raises(AuthenticationError, match=re.escape(str(refusal))) as caught:
        await nodes.cluster(bootstrap_servers=",".join(EACH)).metadata(None)
    assert nodes.refused == refused
    assert (caught.value.code, caught.value.request) == (refusal.code, refusal.request)


async def test_brokers_that_are_down_are_none_of_the_others_that_are_asked(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One broker may not know a new user yet, another one may be down: the third one answers."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1").refusal = WRONG_PASSWORD
    nodes.add("b:1").up = False
    nodes.add("c:1", metadata=metadata({1: "c:1"}))
    cluster = nodes.cluster(bootstrap_servers=",".join(EACH))
    await cluster.metadata(None)
    assert nodes.refused == ["a:1"]
    await cluster.aclose()


@pytest.mark.parametrize("worked", [False, True])
@pytest.mark.parametrize("refusal", [WEB_SERVER, WRONG_PASSWORD])
async def test_a_refusal_while_the_other_brokers_are_down(
    nursery: trio.Nursery, autojump_clock: MockClock, refusal: AuthenticationError, *, worked: bool
) -> None:
    """If the settings have worked before, the others may answer later.

    A password that may be wrong must not be sent again and again: it is final.
    """
    nodes = FakeBrokers(nursery)
    other = nodes.add("b:1", metadata=metadata({}))
    nodes.add("a:1").refusal = refusal
    cluster = nodes.cluster(bootstrap_servers="b:1,a:1")
    if worked:
        await cluster.metadata(None)
    other.up = False
    await cluster.aclose()
    lasting = refusal is WEB_SERVER and worked
    with pytest.raises(ConnectionLostError if lasting else AuthenticationError) as caught:
        await cluster.metadata(None)
    assert str(refusal) in str(caught.value)
    assert "no connection to b:1" in str(caught.value)


async def test_a_wrong_password_is_sent_three_times_at_most(autojump_clock: MockClock) -> None:
    """Twice to the first broker, which may not know a new user yet, and once to another one."""
    sent = []

    def note(request: Any) -> bool:
        sent.append(trio.current_time())
        return False

    security = BrokerSecurity(users={"alice": "right"})
    async with in_memory_cluster(3, security=security) as brokers:
        for node in brokers.nodes.values():
            node.slow(0.0, "sasl_authenticate", match=note)
        config = config_for(
            brokers,
            security=Security(
                protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password=WRONG
            ),
        )
        cluster = Cluster(config, brokers.open_stream, random.Random(1))
        began = trio.current_time()
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
            await cluster.metadata(None)
        assert trio.current_time() - began < 2
        await cluster.aclose()
    assert len(sent) == 3


def silent_cluster(nodes: FakeBrokers, brokers: int) -> FakeBroker:
    """A broker ``a:1`` that answers, and lists so many others, which do not; returns the first."""
    listed = {number: f"b{number}:1" for number in range(brokers)}
    for address in listed.values():
        nodes.add(address, metadata=SILENCE)
    return nodes.add("a:1", metadata=metadata(listed, {"t": [1]}))


async def test_a_request_has_one_deadline_however_many_brokers_are_unavailable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A hundred silent brokers cost three request timeouts; a bootstrap server is the second."""
    nodes = FakeBrokers(nursery)
    node = silent_cluster(nodes, 100)
    cluster = nodes.cluster(request_timeout=10.0)
    await cluster.metadata({"t"})
    began = trio.current_time()
    await cluster.metadata({"t"})
    assert trio.current_time() - began == pytest.approx(10.0)
    assert nodes.addresses("metadata")[-1] == "a:1"
    node.answers["metadata"] = SILENCE
    began = trio.current_time()
    with pytest.raises(RequestTimeoutError):
        await cluster.metadata({"t"})
    assert trio.current_time() - began == pytest.approx(30.0)
    await cluster.aclose()


async def test_no_bootstrap_server_waits_for_all_brokers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Bootstrap servers and listed brokers take turns, also after failures of both."""
    nodes = FakeBrokers(nursery)
    first = silent_cluster(nodes, 1000)
    nodes.add("c:1", metadata=SILENCE)
    last = nodes.add("d:1", metadata=SILENCE)
    servers = ["a:1", "c:1", "d:1"]
    cluster = nodes.cluster(bootstrap_servers=servers, request_timeout=10.0)
    await cluster.metadata({"t"})
    first.answers["metadata"] = SILENCE
    before = len(nodes.addresses("metadata"))
    for _ in range(4):
        with pytest.raises(RequestTimeoutError):
            await cluster.metadata({"t"})
    tried = nodes.addresses("metadata")[before:]
    assert [server for server in tried if server in servers] == [*servers, *servers]
    assert len(set(tried) - {*servers}) == 6
    last.answers["metadata"] = metadata(ALONE, {"t": [1]})
    began = trio.current_time()
    for _ in range(2):
        with suppress(RequestTimeoutError):
            await cluster.metadata({"t"})
            break
    assert trio.current_time() - began <= 60.0
    assert nodes.addresses("metadata")[-1] == "d:1"
    await cluster.aclose()


async def test_connections_to_removed_brokers_are_closed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An address that the cluster no longer lists, and that is no bootstrap server, has none."""
    nodes = FakeBrokers(nursery)
    node = nodes.add("a:1", metadata=metadata({1: "b:1"}, {"t": [1]}))
    alone = metadata(ALONE, {"t": [1]})
    nodes.add("b:1", list_offsets=offsets_of, metadata=alone)
    cluster = nodes.cluster()
    assert await cluster.list_offsets({T0}, EARLIEST) == {T0: 0}
    assert nodes.open_now == 2
    node.answers["metadata"] = alone
    await cluster.metadata({"t"})
    await trio.sleep(1)
    assert nodes.open_now <= 1
    await cluster.aclose()


async def test_polls_with_other_logins_are_requests_of_their_own(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What a member may read depends on its login, so only equal logins share a request."""
    nodes = FakeBrokers(nursery)
    nodes.add("a:1", metadata=metadata(ALONE, {"t": [1], "u": [1]}))
    login: dict[str, Any] = {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "PLAIN",
        "username": "alice",
    }
    one, same, other = (
        nodes.cluster(security=Security(**login, password=word))._shared_polls(1.0)
        for word in ("x", "x", "y")
    )
    assert one is same
    assert one is not other
