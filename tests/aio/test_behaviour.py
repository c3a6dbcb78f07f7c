"""The suites of ``tests/behaviour`` with groups of ``kgroup.aio``, through one adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.aio import adapter
from tests.behaviour import (
    test_freeze,
    test_generation,
    test_group,
    test_records,
    test_static,
    test_subscribe,
    test_watchers,
)
from tests.behaviour.worker import ASYNCIO
from tests.brokers import EMBEDDED, Kafka

Test = Callable[[Kafka], Awaitable[None]]

TESTS: Final[list[Test]] = [
    test_generation.test_a_returning_task_ends_the_generation,
    test_generation.test_a_raising_task_ends_the_generation_and_surfaces,
    test_generation.test_a_drain_commits_under_the_old_id,
    test_generation.test_partitions_that_are_not_owned_and_offsets_that_go_back_are_refused,
    test_generation.test_concurrent_commits_each_get_a_response,
    test_generation.test_a_closed_member_gives_its_partitions_at_once,
    test_group.test_hand_over_loses_and_repeats_nothing,
    test_group.test_closing_a_member_whose_join_waits,
    test_group.test_a_next_that_is_given_up_loses_nothing,
    test_group.test_another_task_shuts_down,
    test_group.test_a_raising_task_lets_the_others_finish_and_leaves,
    test_records.test_batches_continue_each_other,
    test_records.test_streams_share_no_partition,
    test_records.test_a_slow_handler_stops_the_fetching,
    test_records.test_a_thread_that_died_is_replaced_with_the_next_generation,
    test_records.test_pause_and_resume,
    test_records.test_seek_goes_back_and_forward,
    test_records.test_a_half_read_queue_survives_a_rebalance,
    partial(test_records.test_a_committed_offset_that_is_gone, reset="latest", first=100),
    test_records.test_an_offset_that_is_gone_is_an_error_with_error,
    test_records.test_the_log_is_cut_under_a_reader,
    test_records.test_nothing_is_delivered_after_the_end,
    test_subscribe.test_topics_are_added_and_given_up,
    partial(test_subscribe.test_a_member_that_unsubscribes_and_comes_back, instance="one"),
    test_watchers.test_added_partitions_are_read,
    test_static.test_a_twin_fences_the_member_before,
    test_static.test_a_commit_finds_the_fence_first,
]


def name_of(test: Test) -> str:
    """The name of a test."""
    return str(getattr(test, "func", test).__name__)


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
@pytest.mark.parametrize("test", TESTS, ids=name_of)
async def test_as_on_trio(test: Test, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test says of trio's groups holds for those of asyncio."""
    monkeypatch.setattr("tests.behaviour.harness.ConsumerGroup", adapter.ConsumerGroup)
    await test(kafka)


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
async def test_a_frozen_process_stops_by_its_lease(kafka: Kafka, tmp_path: Path) -> None:
    """After the freeze each handler processes at most the one record that it had taken."""
    await test_freeze.test_a_frozen_process_stops_by_its_lease(kafka, tmp_path, ASYNCIO, 3)
