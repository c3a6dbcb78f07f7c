"""Every state of a member in which a group can be closed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import trio

from kgroup.error_codes import ErrorCode
from kgroup.events import BackingOff, GenerationDraining, GenerationEnded
from kgroup.generation.generation import Generation
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


def _loses_its_coordinator(harness: Harness, _: Generation) -> None:
    harness.lose_coordinator()


async def _holds(harness: Harness, _: Generation) -> None:
    """Hold the generation and do something else for as long as the group is open."""
    await harness.group.wait_closed()


async def _awaits_work(_: Harness, generation: Generation) -> None:
    with generation.scope():
        await generation.run(trio.sleep_forever)


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
    "looking up positions": State(holds="list_offsets", settings={"auto_offset_reset": "latest"}),
    "committing a position": State(holds="offset_commit", settings={"auto_offset_reset": "latest"}),
    "running, the handler obeys": State(handler=obeys),
    "running, the handler reads": State(handler=reads),
    "running, the handler blocks": State(handler=blocks),
    "running, the handler swallows its cancellation": State(handler=swallows),
    "running, the handler shields itself": State(handler=shields, shielded=SHIELDED),
    "running, a commit under way": State(handler=commits, holds="offset_commit"),
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
    "leaving": State(closes_first=True, holds="leave_group", leaves=False),
    "a static member, draining": State(
        handler=blocks,
        then=_task_returns,
        reached=lambda event: isinstance(event, GenerationDraining),
        settings={"group_instance_id": "one"},
        leaves=False,
    ),
}
