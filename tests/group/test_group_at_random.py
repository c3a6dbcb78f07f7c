"""Members of one group whose programs do everything at random, while the broker fails at times.

What a program raises surfaces once, events come in order, a partition has one owner, and every
close has its deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import final

import pytest
import trio

from kgroup import events
from kgroup.errors import GroupClosedError, StaleGenerationError
from kgroup.events import Event
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import memory_runtime
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.types import Cause
from tests.group.harness import Harness, harness
from tests.program_exceptions import OwnError

RUNS = 80
STUBBORN = 2.0
WAITS = (0.0, 0.01, 0.5, 1.0, 5.0)
BEGUN = (events.Joined, events.Assigned, events.GenerationStarted)
AFTER: dict[type[Event], tuple[type[Event] | None, ...]] = {
    events.Joining: (None, events.Joining, events.GenerationEnded),
    events.Joined: (events.Joining,),
    events.Assigned: (events.Joined,),
    events.GenerationStarted: (events.Assigned,),
    events.GenerationDraining: BEGUN,
    events.GenerationEnded: (*BEGUN, events.GenerationDraining),
}
"""Which event of these a member has before each."""


@final
class Program:
    """One member and its program."""

    def __init__(self, here: Harness, random: Random, others: list[Program]) -> None:
        self.here, self.random, self.others = here, random, others
        self.raised: list[BaseException] = []
        self.generation: Generation | None = None
        self.wrong: list[Event] = []  # kgroup does not raise what `on_event` raises
        self.last: type[Event] | None = None
        self.scope = trio.CancelScope()
        settings = {"drain_timeout": 2.0, "close_timeout": 1.0, "session_timeout": 6.0}
        self.config = here.config(topics=["topic", "other"], **settings)
        runtime = memory_runtime(here.broker, seed=random.randrange(99))
        self.group = ConsumerGroup(self.config, runtime=runtime, on_event=self.on_event)

    def failure(self) -> BaseException:
        """An exception that has to surface."""
        self.raised.append(self.random.choice([ValueError, SystemExit, OwnError])())
        return self.raised[-1]

    def on_event(self, event: Event) -> None:
        """Check the order, and close the group at some events."""
        kind = type(event)
        if kind in AFTER:
            self.wrong += [event] if self.last not in AFTER[kind] else []
            self.last = kind
        if isinstance(event, events.GenerationEnded) and not self.scope.cancel_called:
            self.wrong += [event] if event.end.cause is Cause.CANCELLED else []
        if self.random.random() < 0.02:
            self.group.shutdown(promptly=self.random.random() < 0.5)

    async def run(self) -> None:
        """Run the program, and check how it ends."""
        if self.random.random() < 0.3:
            self.scope.deadline = trio.current_time() + 20 * self.random.random()
        error: BaseException | None = None
        closed_at = 0.0
        try:
            with self.scope:
                async with self.group:
                    try:
                        await self.body()
                    finally:
                        closed_at = trio.current_time()
        except BaseException as raised:  # noqa: BLE001 # compared with what it should be
            error = raised
        assert Counter(map(id, leaves(error))) == Counter(map(id, self.raised)), error
        assert trio.current_time() - closed_at < self.config.longest_close + STUBBORN
        assert not self.wrong
        assert self.last in (None, events.Joining, events.GenerationEnded)

    async def body(self) -> None:
        """Loop over the group for some time."""
        end_at = trio.current_time() + self.random.choice([3, 10, 30])
        async for generation in self.group:
            assert self.generation is None or self.generation.state is State.ENDED
            self.generation = generation
            for other in (it.generation for it in self.others if it is not self):
                owned = set() if other is None or not other.lease else set(other.assignment)
                assert not owned & set(generation.assignment)
            for _ in range(self.random.randint(0, 3)):
                generation.start_soon(self.task)
            await trio.sleep(self.random.choice(WAITS) * self.random.random())
            await self.call(generation)
            if trio.current_time() > end_at:
                break

    async def call(self, generation: Generation) -> None:
        """Use the group in the body."""
        do = self.random.randrange(7)
        if do == 0:
            raise self.failure()
        if do == 1:
            self.group.subscribe(self.random.choice([["topic"], ["other"], ["topic", "other"]]))
        elif do == 2:
            await self.group.aclose(promptly=self.random.random() < 0.5)
        elif do == 3:
            with trio.move_on_after(self.random.choice(WAITS)):
                await generation.wait_ended()
        elif do < 6:
            with trio.move_on_after(self.random.choice(WAITS)), generation.scope():
                await generation.run(self.task)

    async def task(self) -> None:
        """Return, raise, or be cancelled and go on for a while, or raise then."""
        do = self.random.randrange(5)
        await trio.sleep(self.random.choice(WAITS) * self.random.random())
        if do == 0:
            raise self.failure()
        try:
            if do == 1:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.start_soon(self.task)
            elif do > 2:
                await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(STUBBORN / 3 * self.random.random())
            if do >= 3:
                raise self.failure()


def leaves(error: BaseException | None) -> Iterator[BaseException]:
    """The exceptions in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    elif error is not None and not isinstance(error, GroupClosedError | StaleGenerationError):
        yield error


async def disturb(here: Harness, random: Random) -> None:
    """Let the broker fail for a moment, now and then."""
    while True:
        await trio.sleep(10 * random.random())
        match random.randrange(4):
            case 0:
                here.broker.cut_connections()
            case 1:
                here.broker.slow(3 * random.random(), times=5)
            case 2:
                here.broker.inject("heartbeat", "ILLEGAL_GENERATION")
            case _:
                here.broker.inject("join_group", "UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize("seed", range(RUNS))
def test_groups_at_random(seed: int) -> None:
    """Every program ends in time, with all that it has raised and nothing else."""

    async def scenario() -> None:
        random = Random(seed)
        async with harness(partitions=3) as here, trio.open_nursery() as beside:
            await here.broker.create_topic("other", 2)
            beside.start_soon(disturb, here, random)
            programs: list[Program] = []
            programs += [Program(here, random, programs) for _ in range(random.randint(1, 3))]
            async with trio.open_nursery() as nursery:
                for program in programs:
                    nursery.start_soon(program.run)
            beside.cancel_scope.cancel()

    run_virtual(seed, scenario)
