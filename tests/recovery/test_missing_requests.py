"""A broker, or a proxy before it, that supports none of kgroup's versions of one request."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.apis import APIS
from kgroup.client.error_policy import REACTIONS, Action, Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import UnsupportedVersionError
from kgroup.events import GenerationEnded, RequestFailed
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import Cause
from kgroup.wire.versions import SUPPORTED_REQUESTS, kafka_name
from tests.group.harness import Harness, harness

MOMENTS: Final = ("at the beginning", "in a generation", "in a drain", "at the end of a drain")
REQUESTS: Final = [
    api for api in SUPPORTED_REQUESTS if kafka_name(api) in {r.value for r in Request}
]
FATAL: Final = {
    api
    for api in REQUESTS
    if REACTIONS[Request(kafka_name(api))][ErrorCode.UNSUPPORTED_VERSION].action is Action.FAIL
}
NEEDED: Final = {
    "at the beginning": FATAL,
    "in a generation": {"heartbeat", "offset_commit"},
    "in a drain": {"heartbeat", "offset_commit"},
    "at the end of a drain": {"offset_commit"},
}
"""By moment the requests without which a member cannot go on from then."""


async def _lose(here: Harness, monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    """Remove the request from the broker, and make all clients connect again."""
    monkeypatch.delitem(APIS, api)
    here.broker.cut_connections()
    await trio.lowlevel.checkpoint()


async def _process(generation: Generation, seconds: float) -> None:
    async for batch in generation.records():
        await trio.sleep(seconds)
        await generation.commit({batch.partition: batch.next_offset})


async def _run(group: ConsumerGroup, seconds: float) -> Exception | None:
    """Run a member until its group closes, and return what the program gets."""
    try:
        async with group:
            async for generation in group:
                generation.start_soon(_process, generation, seconds)
    except Exception as error:  # noqa: BLE001 # looked at by the test
        return error
    return None


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("api", REQUESTS)
async def test_a_request_that_the_broker_lacks(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, api: str, moment: str
) -> None:
    """The error policy decides: the group closes with that very error, or does without it."""
    async with harness() as here:
        lose = partial(_lose, here, monkeypatch, api)
        if moment == "at the beginning":
            await lose()
        await here.append(3)
        group = here.group(auto_offset_reset="latest")

        async def disturb() -> None:
            await trio.sleep(5)
            if moment == "in a generation":
                await lose()
                await trio.sleep(1)
            await here.append(2)
            await trio.sleep(3)
            if "drain" in moment:  # the handler has a batch until 10
                group.shutdown()
                await trio.sleep(0.1 if moment == "in a drain" else 1.99)
                await lose()
            await trio.sleep(60)
            group.shutdown()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturb)
            error = await _run(group, 5.0)
            nursery.cancel_scope.cancel()
        if api in NEEDED[moment]:
            assert isinstance(error, UnsupportedVersionError), error
            assert error.request == kafka_name(api)
            assert f"{kafka_name(api)} v" in str(error)
            assert kafka_name(api) in {event.request for event in here.events_of(RequestFailed)}
        else:
            assert error is None
            assert (await here.committed()).popitem()[1] == 5
        ends = {event.end.cause for event in here.events_of(GenerationEnded)}
        assert ends <= {Cause.CLOSED, Cause.MEMBERSHIP_LOST}
