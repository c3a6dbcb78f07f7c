"""Every state of a member in which a group can be closed."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final, cast

import trio

from kgroup.broker import EmbeddedBroker
from kgroup.error_codes import ErrorCode
from kgroup.events import (
    BackingOff,
    GenerationDraining,
    GenerationEnded,
    Left,
    OwnStartsDelayed,
    RequestFailed,
)
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.security.credentials import Token
from kgroup.security.settings import Security
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import TopicPartition
from tests.broker.wire import Client, commit
from tests.closing.harness import (
    SHIELDED,
    Harness,
    State,
    blocks,
    commits,
    obeys,
    reads,
    returns,
    shields,
    swallows,
)


def _task_returns(_: Harness, generation: Generation) -> None:
    """Let a second task return, so that the first one drains."""
    generation.start_soon(returns, generation)


def _rebalances(harness: Harness, _: Generation) -> None:
    """Start a rebalance: the next heartbeat reports it, and the JoinGroup is parked."""
    harness.broker.inject("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
    harness.hold()


def _leaves(harness: Harness, _: Generation) -> None:
    """Leave the group, whose LeaveGroup is not answered."""
    harness.hold()
    harness.group.unsubscribe()


def _unsubscribes(harness: Harness, _: Generation) -> None:
    harness.group.unsubscribe()


async def _no_start_is_known(_: object) -> Mapping[TopicPartition, int]:
    """A function of the program whose store does not answer."""
    await trio.sleep_forever()
    raise AssertionError


async def _no_token_is_known() -> Token:
    """A function of the program whose identity provider does not answer."""
    await trio.sleep_forever()
    raise AssertionError


async def _a_commit_of_another_epoch(broker: EmbeddedBroker) -> None:
    """Commit an offset with a leader epoch that the partition does not have."""
    client = await Client.open(broker)
    async with client.stream:
        for number in range(2):
            await broker.append("topic", number, [b"record"] * 8)
            code = await commit(
                client, topics=["topic"], partition=number, epoch=3, group_id="group"
            )
            assert code == ErrorCode.NONE


async def _a_static_member_that_led(broker: EmbeddedBroker) -> None:
    """Let a static member become leader and stop, so that its restart finds its assignment."""
    config = config_for(broker, group_instance_id="one")
    async with ConsumerGroup(config, runtime=memory_runtime(broker, seed=3)) as group:
        await group.next()


async def _commits_in_a_transaction(generation: Generation) -> None:
    """Commit by a producer that does not answer."""
    over = threading.Event()

    class Producer:
        """Its call blocks its thread."""

        def send_offsets_to_transaction(self, *_: object) -> None:
            over.wait(60)

    try:
        offsets = dict.fromkeys(generation.assignment, 0)
        await generation.commit_in_transaction(cast("Any", Producer()), offsets)
    finally:
        over.set()


def _loses_its_coordinator(harness: Harness, _: Generation) -> None:
    harness.lose_coordinator()


async def _holds(harness: Harness, _: Generation) -> None:
    """Hold the generation and do something else for as long as the group is open."""
    await harness.group.wait_closed()


async def _awaits_work(_: Harness, generation: Generation) -> None:
    with generation.scope():
        await generation.run(trio.sleep_forever)


LOGIN: Final = Security(
    protocol="SASL_PLAINTEXT",
    mechanism="SCRAM-SHA-512",
    username="a",
    password="b",  # noqa: S106
)
STATES: Final[Mapping[str, State]] = {
    "not entered": State(entered=False),
    "entering its source of records": State(source_never_begins=True),
    "entered, and next() not called": State(calls_next=False),
    "finding the coordinator": State(holds="find_coordinator"),
    "looking up what its patterns match": State(
        holds="metadata", settings={"topics": [re.compile("top.*")]}
    ),
    "joining": State(holds="join_group"),
    "leading": State(holds="metadata"),
    "leading, the assignor takes long": State(assignor_never_ends=True),
    "syncing": State(holds="sync_group"),
    "fetching offsets": State(holds="offset_fetch"),
    "verifying commits": State(holds="offset_for_leader_epoch", before=_a_commit_of_another_epoch),
    "waiting for the program's own offsets": State(
        settings={"starts": _no_start_is_known},
        reached=lambda event: isinstance(event, OwnStartsDelayed),
    ),
    "a static member that led, finding out what its assignment covers": State(
        holds="describe_groups",
        before=_a_static_member_that_led,
        settings={"group_instance_id": "one"},
        leaves=False,
    ),
    "waiting for a token": State(
        settings={
            "security": Security(
                protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=_no_token_is_known
            )
        },
        reached=lambda event: isinstance(event, RequestFailed),
    ),
    "in a login": State(holds="sasl_authenticate", logs_in=True, settings={"security": LOGIN}),
    "choosing the mechanism of a login": State(
        holds="sasl_handshake", logs_in=True, settings={"security": LOGIN}
    ),
    "in a handshake of TLS": State(silent=True, settings={"security": Security(protocol="SSL")}),
    "looking up positions": State(holds="list_offsets", settings={"auto_offset_reset": "latest"}),
    "committing a position": State(holds="offset_commit", settings={"auto_offset_reset": "latest"}),
    "running, the handler obeys": State(handler=obeys),
    "running, the handler reads": State(handler=reads),
    "running, the handler blocks": State(handler=blocks),
    "running, the handler swallows its cancellation": State(handler=swallows),
    "running, the handler shields itself": State(handler=shields, shielded=SHIELDED),
    "running, a commit under way": State(handler=commits, holds="offset_commit"),
    "running, a commit in a transaction under way": State(handler=_commits_in_a_transaction),
    "running, a heartbeat under way": State(handler=obeys, holds="heartbeat"),
    "running, watchers fetch topics": State(
        handler=obeys, holds="metadata", settings={"topics": [re.compile("top.*")]}
    ),
    "running, the body holds it": State(body=_holds),
    "running, the body awaits work of it": State(body=_awaits_work),
    "draining, the handler blocks": State(
        handler=blocks,
        then=_task_returns,
        reached=lambda event: isinstance(event, GenerationDraining),
    ),
    "draining, the handler swallows its cancellation": State(
        handler=swallows,
        then=_task_returns,
        reached=lambda event: isinstance(event, GenerationDraining),
    ),
    "draining, the handler shields itself": State(
        handler=shields,
        then=_task_returns,
        reached=lambda event: isinstance(event, GenerationDraining),
        shielded=SHIELDED,
    ),
    "joining again": State(handler=obeys, holds="join_group", then=_rebalances),
    "joining again, cooperatively": State(
        handler=obeys,
        holds="join_group",
        then=_rebalances,
        settings={"assignors": ["cooperative-sticky"]},
    ),
    "recovering from a coordinator that was lost": State(
        handler=obeys,
        then=_loses_its_coordinator,
        leaves=False,
        reached=lambda event: isinstance(event, GenerationEnded),
    ),
    "backing off after a task that returned": State(
        handler=returns,
        settings={"rejoin_backoff": 60.0, "rejoin_backoff_max": 60.0},
        reached=lambda event: isinstance(event, BackingOff),
    ),
    "not subscribed": State(
        handler=obeys, then=_unsubscribes, reached=lambda event: isinstance(event, Left)
    ),
    "leaving, because it subscribes to nothing": State(
        handler=obeys, then=_leaves, holds="leave_group", leaves=False
    ),
    "leaving": State(closes_first=True, holds="leave_group", leaves=False),
    "a static member, draining": State(
        handler=blocks,
        then=_task_returns,
        reached=lambda event: isinstance(event, GenerationDraining),
        settings={"group_instance_id": "one"},
        leaves=False,
    ),
}
