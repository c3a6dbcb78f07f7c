"""Members that change their subscription at random break no invariant, whatever fails."""

from __future__ import annotations

import trio

from kgroup import ConsumerGroup, serve
from kgroup.interfaces import Batch
from kgroup.testing.simulation import Process, Scenario, check

UNTIL = 240.0
"""When the members stop changing their minds, so that everything is read in the end."""
SCENARIO = Scenario(
    duration=300.0, faults_per_hour=200.0, deletes_topics=False, topics={"a": 3, "b": 2}
)


async def restless(process: Process) -> None:
    """A worker that subscribes to all topics, to one, or to none, for some seconds each."""
    topics = process.config().topics

    async def handle(_: object, batch: Batch) -> None:
        for message in batch:
            await process.process(message)

    async def change(group: ConsumerGroup) -> None:
        random = process.random
        while trio.current_time() < UNTIL:
            await trio.sleep(random.uniform(0.0, 20.0))
            if random.random() < 0.3:
                group.unsubscribe()
            else:
                group.subscribe(random.sample(topics, random.randint(1, len(topics))))
        group.subscribe(topics)

    async with ConsumerGroup(process.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(change, group)
        await serve(group, handle)
        nursery.cancel_scope.cancel()


def test_restless_members_break_no_invariant() -> None:
    """Every record is processed, commits pass nothing, and the group settles."""
    summary = check(SCENARIO, range(5), restless, processes=1)
    assert summary.generations > 100
    assert summary.processed > 1000
