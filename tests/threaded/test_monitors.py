"""Several monitors of one group with threads, the first of which raises."""

from __future__ import annotations

import pytest

from kgroup.monitors import Monitors
from tests.brokers import EMBEDDED, Kafka
from tests.group.test_monitors import check
from tests.test_monitors import Noting
from tests.threaded.harness import Harness


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_those_behind_it_get_everything(kafka: Kafka) -> None:
    """Every event and every batch of the group reaches the second one too."""
    here, broken, well = Harness(kafka), Noting(RuntimeError("full")), Noting()
    here.create(1, 5)
    with here.group(Monitors(broken, well)) as group:
        records = next(group).records(max_records=3)
        for _ in range(2):
            next(records)
        group.shutdown(promptly=True)
    check(broken, well)
