"""Several monitors of one group on asyncio, the first of which raises."""

from __future__ import annotations

import pytest

from kgroup import aio
from kgroup.monitors import Monitors
from tests.aio.test_group import Here, in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.group.test_monitors import check
from tests.test_monitors import Noting


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_those_behind_it_get_everything(kafka: Kafka) -> None:
    """Every event and every batch of the group reaches the second one too."""
    here, broken, well = Here(kafka, 1, 5), Noting(RuntimeError("full")), Noting()

    async def main() -> None:
        config = here.harness.config()
        async with aio.ConsumerGroup(config, on_event=Monitors(broken, well)) as group:
            records = (await group.next()).records(max_records=3)
            for _ in range(2):
                await anext(records)
            await group.aclose(promptly=True)

    in_asyncio(main)
    check(broken, well)
