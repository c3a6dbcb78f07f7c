"""Several monitors of one group on trio, the first of which raises."""

from __future__ import annotations

from trio.testing import MockClock

from kgroup.events import GenerationEnded, GenerationStarted
from kgroup.group import ConsumerGroup
from kgroup.monitors import Monitors
from kgroup.testing.memory import memory_runtime
from tests.group.harness import harness
from tests.test_monitors import Noting


def check(broken: Noting, well: Noting) -> None:
    """Both have got all of a generation that read five records in batches of three at most."""
    assert well.noted == broken.noted
    assert {(GenerationStarted,), (GenerationEnded,)} <= {
        one for one in well.noted if len(one) == 1
    }
    assert [one[2] for one in well.noted if len(one) == 3] == [3, 2]
    assert [one[2] for one in well.noted if len(one) == 5] == [3]


async def test_those_behind_it_get_everything(autojump_clock: MockClock) -> None:
    """Every event and every batch of the group reaches the second one too."""
    broken, well = Noting(RuntimeError("full")), Noting()
    async with harness() as here:
        await here.append(5)
        config, runtime = here.config(), memory_runtime(here.broker)
        async with ConsumerGroup(config, runtime=runtime, on_event=Monitors(broken, well)) as group:
            generation = await group.next()
            records = generation.records(max_records=3)
            for _ in range(2):
                await anext(records)
    check(broken, well)
