"""Calls of a program with arguments that make no sense: one error, and nothing has happened."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock

from kgroup.dead_letters import DeadLetters
from kgroup.errors import KgroupError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.types import Cause
from tests.group.harness import P0, harness
from tests.group.harness import values as numbers
from tests.hostile.values import VALUES

_PRODUCER: Final[Any] = SimpleNamespace(produce=print)


def _keyed(value: Any) -> Mapping[Any, int]:
    """A mapping with this key, if it can have it."""
    try:
        return {value: 0}
    except Exception:  # noqa: BLE001 # of a value that cannot be hashed
        return cast("Mapping[Any, int]", value)


CALLS: Final[Mapping[str, Callable[[ConsumerGroup, Generation, Any], Any]]] = {
    "seek to": lambda _, generation, value: generation.seek(P0, value),
    "seek in": lambda _, generation, value: generation.seek(value, 0),
    "commit": lambda _, generation, value: generation.commit(value),
    "commit of": lambda _, generation, value: generation.commit(_keyed(value)),
    "commit at": lambda _, generation, value: generation.commit({P0: value}),
    "commit beyond": lambda _, generation, value: generation.commit({P0: 0}, beyond_read=value),
    "transaction": lambda _, generation, value: generation.commit_in_transaction(value, {P0: 0}),
    "records": lambda _, generation, value: generation.records(value).close(),
    "records of": lambda _, generation, value: generation.records([value]).close(),
    "max_records": lambda _, generation, value: generation.records(P0, max_records=value).close(),
    "offsets": lambda _, generation, value: generation.offsets(value).close(),
    "pause": lambda _, generation, value: generation.pause(value),
    "resume": lambda _, generation, value: generation.resume(value),
    "subscribe": lambda group, _, value: group.subscribe(value),
    "subscribe to": lambda group, _, value: group.subscribe([value]),
    "health": lambda group, _, value: group.health(stuck_after=value),
    "dead letters": lambda _, __, value: DeadLetters(value, "dead"),
    "dead letters in": lambda _, __, value: DeadLetters(_PRODUCER, value),
}


@pytest.mark.parametrize("name", CALLS)
async def test_no_argument_harms_more_than_its_call(autojump_clock: MockClock, name: str) -> None:
    """The call succeeds, or raises an error of kgroup's that is no longer than it has to be.

    Afterwards the generation still reads and commits, unless the call had a meaning.
    """
    async with harness() as here, here.group() as group:
        generation = await group.next()
        longest = 0
        for value in VALUES.values():
            try:
                result = CALLS[name](group, generation, value)
                if inspect.isawaitable(result):
                    await result
            except KgroupError as error:
                longest = max(longest, len(str(error)))
        assert longest < 1000
        await trio.sleep(0.1)
        if generation.end is not None:
            assert generation.end.cause is Cause.SUBSCRIPTION_CHANGED
            return
        generation.resume()
        generation.seek(P0, 0)
        await here.append(3)
        with trio.fail_after(60):
            batch = await anext(generation.records())
        assert numbers(batch.messages) == [0, 1, 2]
        await generation.commit({P0: 3})


async def test_only_a_batch_is_processed(autojump_clock: MockClock) -> None:
    """Anything else is refused before the block begins, and hides no exception of the block."""
    async with harness() as here, here.group() as group:
        stream = (await group.next()).records()
        for value in VALUES.values():
            wrong: Any = value
            with (
                pytest.raises(KgroupError, match="must be a kgroup.Batch"),
                stream.processing(wrong),
            ):
                pytest.fail("the block has begun")
