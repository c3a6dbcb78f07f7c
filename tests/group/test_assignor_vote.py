"""Members offer several assignors; the coordinator counts votes, and all follow its choice."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.client.coordinator import CoordinatorClient
from kgroup.errors import UsageError
from kgroup.events import Left
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import JoinResult
from tests.group.harness import Harness, harness


async def generations(here: Harness, *offers: list[Any]) -> list[Generation]:
    """The generations of one group whose members offer these assignors."""
    found: dict[int, Generation] = {}
    async with trio.open_nursery() as nursery:

        async def be_a_member(number: int, group: ConsumerGroup) -> None:
            async with group:
                async for generation in group:
                    found[number] = generation
                    await generation.wait_ended()

        groups = [here.group(assignors=offer) for offer in offers]
        for number, group in enumerate(groups):
            nursery.start_soon(be_a_member, number, group)
        await trio.sleep(30)
        taken = [found[number] for number in range(len(offers))]
        for group in groups:
            group.shutdown()
    assert len({generation.generation_id for generation in taken}) == 1
    return taken


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        # Each member votes for its first assignor that all members offer.
        ([["roundrobin", "range"], ["range", "roundrobin"], ["range", "roundrobin"]], "range"),
        # An assignor that some member does not offer cannot win.
        ([["sticky", "range"], ["sticky", "roundrobin", "range"], ["range"]], "range"),
        ([["cooperative-sticky", "sticky"], ["sticky"], ["range", "sticky"]], "sticky"),
    ],
)
async def test_the_group_s_choice_is_used(
    autojump_clock: MockClock, offers: list[list[Any]], chosen: str
) -> None:
    """Every member of the generation uses the chosen assignor, whichever member leads."""
    async with harness(6) as here:
        taken = await generations(here, *offers)
        assert {generation.assignor for generation in taken} == {chosen}
        assert [len(generation.assignment) for generation in taken] == [2, 2, 2]
        assert sum(generation.leader for generation in taken) == 1


async def test_a_leader_refuses_an_assignor_that_it_did_not_offer(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator made a mistake: the leader assigns nothing and leaves with an error."""
    join = CoordinatorClient.join

    async def answer(self: CoordinatorClient, *args: Any) -> JoinResult:
        return attrs.evolve(await join(self, *args), assignor="consistent")

    monkeypatch.setattr(CoordinatorClient, "join", answer)
    async with harness(2) as here:
        with pytest.raises(UsageError, match="'consistent', which this member did not offer"):
            async with here.group() as group:
                await group.next()
        assert [event.notified for event in here.events_of(Left)] == [True]
        assert not here.requests_for("sync_group")
