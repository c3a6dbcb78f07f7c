"""The optional methods of a record source: when a member calls them, and with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast, final
from uuid import UUID

import attrs
import pytest
from trio.testing import MockClock

from kgroup.config import GroupConfig
from kgroup.errors import UsageError
from kgroup.events import Joining
from kgroup.group import ConsumerGroup
from kgroup.interfaces import RecordSource
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import Harness, harness


@final
class Preparing:
    """A source with optional methods that a test gives it; all else is another source's."""

    def __init__(self, source: RecordSource, methods: Mapping[str, Any]) -> None:
        self._source = source
        vars(self).update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def __aenter__(self) -> Preparing:
        await self._source.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._source.__aexit__(*details)


def group_with(
    here: Harness, prepare: Any = lambda topics: None, *, methods: Any = None, **settings: object
) -> ConsumerGroup:
    """A group whose source has this ``prepare``, and further methods by their names."""
    given = {"prepare": prepare, **(methods or {})}
    runtime = memory_runtime(here.broker)

    def source(
        config: GroupConfig, on_fault: Callable[[TopicPartition | None, str], None]
    ) -> RecordSource:
        return cast("RecordSource", Preparing(runtime.record_source(config, on_fault), given))

    return ConsumerGroup(
        here.config(**settings),
        runtime=attrs.evolve(runtime, record_source=source),
        on_event=here.events.append,
    )


async def test_a_member_prepares_its_source_once_before_it_joins(autojump_clock: MockClock) -> None:
    """The source gets the topics before JoinGroup, once, although JoinGroup is sent twice."""
    async with harness() as here:
        prepared: list[tuple[Collection[str], int]] = []

        def prepare(topics: Collection[str]) -> None:
            prepared.append((topics, len(here.requests_for("join_group"))))

        async with group_with(here, prepare, topics=["topic", "other"]) as group:
            await group.next()
            assert len(here.requests_for("join_group")) == 2
            assert len(here.events_of(Joining)) == 2
            assert prepared == [({"topic", "other"}, 0)]
            await here.broker.add_partitions("topic", 2)
            await group.next()
        assert prepared == [({"topic", "other"}, 0), ({"topic", "other"}, 2)]


async def test_a_pattern_s_new_topic_is_prepared(autojump_clock: MockClock) -> None:
    """If a new topic begins to match, the source gets it before the member joins again."""
    async with harness() as here:
        prepared: list[Collection[str]] = []
        async with group_with(here, prepared.append, topics=[re.compile("topic.*")]) as group:
            await group.next()
            await here.broker.create_topic("foreign", 1)
            await here.broker.create_topic("topic-2", 1)
            await group.next()
        assert prepared == [{"topic"}, {"topic", "topic-2"}]


async def test_a_prepare_that_raises_ends_the_group(autojump_clock: MockClock) -> None:
    """What ``prepare`` raises surfaces from the group, as it would from any other method."""

    def prepare(_: Collection[str]) -> None:
        raise RuntimeError("as scripted")

    async with harness() as here:
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="as scripted")):
            async with group_with(here, prepare) as group:
                await group.next()
        assert here.requests_for("join_group") == []


@pytest.mark.parametrize("name", ["prepare", "use_addresses", "use_topic_ids"])
async def test_a_prepare_that_is_no_method_is_refused(name: str, autojump_clock: MockClock) -> None:
    """An optional method that cannot be called ends the group before it joins, with a reason."""
    async with harness() as here:
        wrong = pytest.RaisesExc(UsageError, match=f"its {name}, if it has one, must be a method")
        with pytest.RaisesGroup(wrong):
            async with group_with(here, methods={name: 5}) as group:
                await group.next()
        assert here.requests_for("join_group") == []


async def test_a_source_learns_the_addresses_that_its_member_knows(
    autojump_clock: MockClock,
) -> None:
    """What it is given, once, always returns the brokers that the member knows by then."""
    async with harness() as here:
        given: list[Callable[[], Collection[str]]] = []
        async with group_with(here, methods={"use_addresses": given.append}) as group:
            await group.next()
            (known,) = given
            first = here.broker.bootstrap_servers
            assert set(known()) == {first}
            here.broker.cluster.brokers[1].set_address("moved", 9093)
            await here.broker.add_partitions("topic", 2)
            await group.next()
            assert set(known()) == {first, "moved:9093"}


async def test_a_source_learns_the_ids_of_topics(autojump_clock: MockClock) -> None:
    """A topic that was created again has another one when its partitions are assigned."""
    async with harness() as here:
        given: list[Callable[[], Mapping[str, UUID]]] = []
        async with group_with(here, methods={"use_topic_ids": given.append}) as group:
            await group.next()
            (known,) = given
            first = dict(known())
            assert first.keys() == {"topic"}
            await here.broker.delete_topic("topic")
            await here.broker.create_topic("topic", 1)
            await group.next()
            assert known().keys() == {"topic"}
            assert known() != first
