"""All committed offsets of a group, fetched from a broker in memory."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.apis import APIS
from kgroup.cli.admin_client import ClusterError
from kgroup.cli.groups import committed as offsets
from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError, KgroupError
from kgroup.security.settings import Security
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.group.harness import P0, P1, Harness, harness

OFFSET_FETCH = SUPPORTED_REQUESTS["offset_fetch"]


async def committed(
    here: Harness, failed: list[KgroupError] | None = None
) -> dict[TopicPartition, int]:
    """What the group of the harness has committed."""
    failures: list[KgroupError] = [] if failed is None else failed
    runtime = memory_runtime(here.broker, seed=99)
    config = here.config()
    request = offsets.committed(config.group_id)
    return dict(await request.send_from(config, config.group_id, runtime, failures.append))


async def commit(here: Harness) -> None:
    """Let a member commit one of two partitions."""
    await here.append(3)
    async with here.group() as group:
        generation = await group.next()
        async for batch in generation.records(P0):
            await generation.commit({P0: batch.next_offset})
            break


@pytest.mark.parametrize("version", range(OFFSET_FETCH.lowest, OFFSET_FETCH.highest + 1))
async def test_offsets_are_fetched_without_naming_partitions(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The result has the partitions that were committed, in every version of the request."""
    monkeypatch.setitem(APIS, "offset_fetch", attrs.evolve(APIS["offset_fetch"], highest=version))
    async with harness(2) as here:
        assert await committed(here) == {}
        await commit(here)
        assert await committed(here) == {P0: 3}
        assert P1 not in await committed(here)


async def test_a_coordinator_that_moves_is_waited_for(autojump_clock: MockClock) -> None:
    """The request is repeated while the coordinator is away and loads, and reports why."""
    async with harness(1) as here:
        await commit(here)
        failed: list[KgroupError] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(here.broker.restart_coordinator, away=2.0, loading=2.0))
            await trio.sleep(0.1)
            assert await committed(here, failed) == {P0: 3}
        assert any("NOT_COORDINATOR" in str(one) for one in failed)
        assert any("COORDINATOR_LOAD_IN_PROGRESS" in str(one) for one in failed)


async def test_a_refusal_is_no_reason_to_wait(autojump_clock: MockClock) -> None:
    """A user without permission gets an error that names the group."""
    async with harness(1) as here:
        here.broker.inject("offset_fetch", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationError, match="group 'group'"):
            await committed(here)


def test_a_cluster_that_cannot_be_reached() -> None:
    """The error names the group, the time and the reason."""
    with pytest.raises(
        ClusterError, match="the offsets of group 'g' cannot be fetched within 1 s: "
    ):
        offsets.committed("g").send("127.0.0.1:1", "g", Security(), 1.0)
