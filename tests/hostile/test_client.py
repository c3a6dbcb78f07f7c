"""Hostile brokers and members can cause kgroup's client only errors of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, final

import attrs
import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup.client.cluster import Cluster
from kgroup.client.coordinator import CoordinatorClient
from kgroup.client.error_policy import REACTIONS, Request
from kgroup.config import GroupConfig
from kgroup.error_codes import ErrorCode
from kgroup.errors import BrokerError, CommitUnknownError, MemberIdRequiredError, UsageError
from kgroup.events import AssignmentRefused, Event, TopicsRefused
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch, JoinResult
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.testing.memory import memory_runtime
from kgroup.types import EpochEnd, Membership, TopicPartition
from kgroup.wire.codec import decode_request
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.group.harness import P0, Harness, harness
from tests.hostile.client import CALLS, play
from tests.hostile.group import ATTACKED
from tests.recovery.observed_member import APIS

SEED = 20261122
CASES, PORTIONS = 10_000, 8
PER_SECOND = 12.0
"""The most requests in a virtual second, whatever the responses."""
UNKNOWN = 12_345
SECONDS = 40.0


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_no_answer_and_no_member_surprises_the_client(portion: int) -> None:
    """Any hostile field or connection causes only KgroupErrors, in time, and loses no record."""
    size = CASES // PORTIONS
    assert list(play(SEED, range(portion * size, (portion + 1) * size))) == []


def test_every_request_of_the_client_is_attacked() -> None:
    """Every request that the client can send has a call, and a place in the group's cases."""
    assert CALLS.keys() == SUPPORTED_REQUESTS.keys()
    alone = {"describe_groups", "sasl_handshake", "sasl_authenticate"}
    assert set(ATTACKED) == SUPPORTED_REQUESTS.keys() - alone
    assert set(APIS.values()) <= SUPPORTED_REQUESTS.keys()


def failures() -> list[tuple[Request, int]]:
    """Every error that the error policy names for a request, and an unknown one; for commits all.

    A program may repeat a commit by itself, because of any of them.
    """
    named = [
        (request, int(code))
        for request, reactions in REACTIONS.items()
        for code in reactions
        if isinstance(code, ErrorCode) and request in APIS
    ]
    unknown = [(request, UNKNOWN) for request in REACTIONS if request in APIS]
    commits = [(Request.COMMIT, int(code)) for code in ErrorCode if code]
    return sorted({*named, *unknown, *commits}, key=lambda one: (one[0].value, one[1]))


async def until_over(group: ConsumerGroup) -> None:
    """A program that reads and commits, and continues whatever its commits raise."""
    async with group:
        async for generation in group:
            generation.start_soon(read, generation)


async def read(generation: object) -> None:
    """A handler that reads."""
    async for batch in generation.records():  # type: ignore[attr-defined]
        try:
            await generation.commit({batch.partition: batch.next_offset})  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001, S112 # the outcome is not tested here
            continue


async def serve(group: ConsumerGroup) -> None:
    """A worker, which commits again if the coordinator was not reached."""

    async def handle(generation: object, batch: Batch) -> None:
        await trio.lowlevel.checkpoint()

    async with group:
        await kgroup.serve(group, handle)


Program = Callable[[ConsumerGroup], Awaitable[None]]


async def count(here: Harness, group: ConsumerGroup, program: Program = until_over) -> float:
    """The requests a second of a program that runs for this long."""
    with trio.move_on_after(SECONDS):
        try:
            await program(group)
        except Exception:  # noqa: BLE001 # a fatal refusal may end it
            return 0.0
    return len(here.requests) / SECONDS


@pytest.mark.parametrize("program", [until_over, serve])
@pytest.mark.parametrize(("request_", "code"), failures(), ids=str)
async def test_no_lasting_error_causes_a_storm_of_requests(
    autojump_clock: MockClock, request_: Request, code: int, program: Program
) -> None:
    """A request that always fails with the same error is not repeated too often."""
    async with harness() as here:
        await here.append(3)
        here.broker.inject(APIS[request_], code, times=1_000_000)
        assert await count(here, here.group(request_timeout=3.0), program) < PER_SECOND


class _HalfAnswers(trio.abc.Stream):
    """A connection that ends in the middle of the answer to an OffsetCommit."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self._inner = inner
        self._commits = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._commits = decode_request(bytes(data), 4).api == "offset_commit"
        await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        received = await self._inner.receive_some(max_bytes)
        if self._commits:
            await self._inner.aclose()
            return received[: len(received) // 2]
        return received

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, None])
async def test_commits_that_are_never_answered_cause_no_storm(
    autojump_clock: MockClock, code: int | None
) -> None:
    """A worker repeats them with pauses, and ends if the coordinator may not be looked up."""
    async with harness() as here:
        await here.append(3)
        group = here.group(request_timeout=3.0)
        opener = here.broker.open_stream

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            return _HalfAnswers(await opener(host, port))

        group._runtime = attrs.evolve(group._runtime, open_stream=open_stream)

        async def refuse_later() -> None:
            await trio.sleep(1)
            await here.append(1)
            if code is not None:
                here.broker.inject("find_coordinator", code, times=None)

        raised: list[BaseException] = []

        async def program(group: ConsumerGroup) -> None:
            try:
                await serve(group)
            except BaseExceptionGroup as error:
                raised.extend(error.exceptions)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse_later)
            assert await count(here, group, program) < PER_SECOND
        sent = len(here.requests_for("offset_commit"))
    if code is None:
        assert sent > 5
        assert not [one for one in raised if not isinstance(one, trio.Cancelled)]
    else:
        assert [type(one) for one in raised] == [CommitUnknownError]


async def read_by_tasks(group: ConsumerGroup) -> None:
    """A program with a task for each partition."""
    async with group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(read_one, generation, partition)


async def read_one(generation: Any, partition: TopicPartition) -> None:
    """A handler of one partition that reads."""
    async for _ in generation.records(partition):
        pass


@pytest.mark.parametrize("program", [until_over, read_by_tasks])
async def test_ends_that_the_logs_do_not_have_cause_no_storm(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    """However many partitions' leaders name them, in one stream or in many."""
    lies = 0

    async def name_wrong_ends(
        _: Cluster, wanted: Collection[TopicPartition], *_args: object, **_options: object
    ) -> Mapping[TopicPartition, EpochEnd]:
        nonlocal lies
        lies += 1
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(wanted, EpochEnd(1_000_000, -1))

    monkeypatch.setattr(Cluster, "list_offsets_with_epochs", name_wrong_ends)
    async with harness(40) as here:
        await here.append(1)
        group = here.group(auto_offset_reset="latest")
        assert await count(here, group, program) + lies / SECONDS < PER_SECOND / 2
        assert lies > 8


@final
class Peer:
    """Another member that subscribes and assigns as a test wants."""

    def __init__(
        self, here: Harness, topics: Sequence[str], given: Sequence[TopicPartition]
    ) -> None:
        self._config = here.config(topics=["topic"])
        self._cluster = Cluster(self._config, here.broker.open_stream, Random(1))
        self._coordinator = CoordinatorClient(self._cluster, self._config)
        self._topics = topics
        self._given = given
        self.in_group = trio.Event()

    async def run(self) -> None:
        """Be a member until the test ends; as a leader assign everything to the others."""
        await self._coordinator.find()
        member_id = ""
        while True:
            try:
                joined = await self._coordinator.join(member_id, self._topics, "")
                member_id = joined.member_id
                await self._stay(joined)
            except MemberIdRequiredError as error:
                member_id = error.member_id
            except BrokerError:
                continue  # a rebalance

    async def _stay(self, joined: JoinResult) -> None:
        membership = Membership(
            group_id=self._config.group_id,
            member_id=joined.member_id,
            group_instance_id=None,
            generation_id=joined.generation_id,
            epoch=1,
            assignor=joined.assignor,
            leader=joined.leader,
        )
        others = [one.member_id for one in joined.members if one.member_id != joined.member_id]
        assignments = {joined.member_id: (), **dict.fromkeys(others, self._given)}
        await self._coordinator.sync(membership, assignments if joined.leader else {})
        self.in_group.set()
        while True:
            await self._coordinator.heartbeat(membership)
            await trio.sleep(0.2)


IMPOSSIBLE = [
    TopicPartition(topic, 0)
    for topic in ("", ".", "a" * 250, "a" * 512, "a" * 513, "a" * 32_767, "my topic", "ü", "a\0b")
]


async def test_a_leader_that_assigns_the_impossible_hurts_nothing(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Partitions that cannot be read are left out and reported; the others are read."""
    async with harness() as here:
        await here.append(3)
        given = [*IMPOSSIBLE, P0, P0, TopicPartition("secret", 0)]
        leader = Peer(here, ["topic"], given)
        nursery.start_soon(leader.run)
        await leader.in_group.wait()
        async with here.group() as group:
            generation = await group.next()
            assert list(generation.assignment) == [P0]
            assert len((await anext(generation.records())).messages) == 3
        (refused,) = here.events_of(AssignmentRefused)
        assert {"''-0", "'my topic'-0", "'secret'-0"} <= refused.entries.keys()
        assert "'topic'-0" not in refused.entries
        nursery.cancel_scope.cancel()


async def test_what_another_member_subscribes_to_ends_no_leader(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Impossible topic names are left out and reported, and the leader continues."""
    async with harness() as here:
        await here.append(3)
        names = ["my topic", "", "a" * 600, *(f"t{number}" for number in range(3000))]
        async with here.group() as group:
            await group.next()
            nursery.start_soon(Peer(here, ["topic", *names], []).run)
            while True:
                generation = await group.next()
                if here.events_of(TopicsRefused):
                    break
                await generation.ending.wait()
            assert generation.state.name in ("RUNNING", "DRAINING")
        refused = here.events_of(TopicsRefused)[-1]
        assert sorted(refused.topics) == sorted(["my topic", "", "a" * 600])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", IMPOSSIBLE, ids=lambda name: f"{name.topic!r:.20}")
async def test_no_impossible_name_reaches_librdkafka(name: TopicPartition) -> None:
    """The record source refuses a name that would end the process in librdkafka."""
    config = GroupConfig(group_id="g", bootstrap_servers="127.0.0.1:1", topics=["topic"])
    source = LibrdkafkaSource(config, lambda *_: None)
    with pytest.raises(UsageError, match="cannot be read, the topic's name"):
        source.assign(1, {name: 0})


async def test_a_handler_of_events_that_raises_ends_nothing(autojump_clock: MockClock) -> None:
    """An event handler that raises at every event stops neither reading nor committing."""

    def broken(event: Event) -> None:
        raise RuntimeError(str(event))

    async with harness() as here:
        await here.append(3)
        runtime = memory_runtime(here.broker)
        async with ConsumerGroup(here.config(), runtime=runtime, on_event=broken) as group:
            generation = await group.next()
            batch = await anext(generation.records())
            await generation.commit({P0: batch.next_offset})
        assert await here.committed() == {P0: 3}
