"""The suites of ``tests/behaviour`` with groups of ``kgroup.aio``, through one adapter.

A new test there has to be listed here: in `TESTS`, or in `LEFT_OUT` with a reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.aio import adapter
from tests.behaviour import (
    test_damage,
    test_freeze,
    test_generation,
    test_group,
    test_leader_epochs,
    test_own_starts,
    test_records,
    test_static,
    test_subscribe,
    test_transactions,
    test_watchers,
)
from tests.behaviour.worker import ASYNCIO
from tests.brokers import EMBEDDED, Kafka
from tests.conftest import ROOT

Test = Callable[[Kafka], Awaitable[None]]

TESTS: Final[list[Test]] = [
    test_damage.test_a_damaged_batch_is_an_error_and_is_not_skipped,
    test_generation.test_a_returning_task_ends_the_generation,
    test_generation.test_a_raising_task_ends_the_generation_and_surfaces,
    test_generation.test_a_drain_commits_under_the_old_id,
    test_generation.test_the_coordinator_refuses_a_stale_commit,
    test_generation.test_the_lease_stops_what_the_coordinator_cannot_reach,
    test_generation.test_partitions_that_are_not_owned_and_offsets_that_go_back_are_refused,
    test_generation.test_concurrent_commits_each_get_a_response,
    test_generation.test_a_closed_member_gives_its_partitions_at_once,
    test_group.test_hand_over_loses_and_repeats_nothing,
    test_group.test_closing_a_member_whose_join_waits,
    test_group.test_a_next_that_is_given_up_loses_nothing,
    test_group.test_another_task_shuts_down,
    test_group.test_a_raising_task_lets_the_others_finish_and_leaves,
    test_leader_epochs.test_a_commit_has_the_leader_epoch_of_its_last_record,
    test_leader_epochs.test_a_commit_of_a_later_epoch_than_the_leaders_is_accepted,
    test_own_starts.test_the_store_comes_before_commits,
    test_own_starts.test_commits_may_follow_the_store,
    partial(test_own_starts.test_each_generation_asks_again, commit=True),
    test_own_starts.test_an_offset_that_is_not_in_the_log,
    test_own_starts.test_what_the_store_raises_ends_the_group,
    test_own_starts.test_a_slow_store_costs_no_membership,
    test_own_starts.test_a_rebalance_does_not_wait_for_the_store,
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
    partial(test_records.test_transactions_and_isolation, level="read_committed"),
    test_records.test_a_restart_behind_a_transaction_marker_repeats_nothing,
    test_records.test_big_records_come_through_a_small_buffer,
    test_records.test_nothing_is_delivered_after_the_end,
    partial(test_records.test_where_a_new_group_starts, reset="latest"),
    test_static.test_a_restart_causes_no_rebalance,
    test_static.test_a_static_leader_that_comes_back_still_watches,
    test_static.test_partitions_added_while_the_leader_was_away_are_read,
    test_static.test_a_topic_that_a_returning_follower_adds_is_read,
    test_static.test_a_twin_fences_the_member_before,
    test_static.test_a_commit_finds_the_fence_first,
    test_subscribe.test_topics_are_added_and_given_up,
    partial(test_subscribe.test_a_member_that_unsubscribes_and_comes_back, instance="one"),
    test_transactions.test_records_and_offsets_are_committed_together,
    test_transactions.test_a_new_member_waits_for_an_open_transaction,
    test_transactions.test_an_old_generation_is_refused,
    test_watchers.test_added_partitions_are_read,
    test_watchers.test_added_partitions_are_read_from_their_start_with_latest,
    test_watchers.test_a_topic_that_is_created_later_is_read,
    test_watchers.test_a_group_waits_for_its_only_topic,
    test_watchers.test_the_partitions_of_a_deleted_topic_are_given_up,
    test_watchers.test_a_topic_that_is_created_again_is_read_from_its_start,
    test_watchers.test_a_topic_that_is_created_again_unnoticed_is_read_on,
    test_watchers.test_a_pattern_finds_new_topics,
]
"""The tests that are played, each with one value of its parameters."""

PLAYED_APART: Final = ("test_freeze.test_a_frozen_process_stops_by_its_lease",)
"""Played below, because the group is in a process of its own."""

LEFT_OUT: Final = {
    "test_freeze.test_a_batch_in_hand_is_recognized": "it tests a function of the tests",
    "test_freeze.test_without_a_lease_the_coordinator_refuses": (
        "it tests the coordinator: the lease of the member never ends"
    ),
    "test_interop": (
        "it tests what members say to each other, which is the trio group's part, and what other"
        " clients make of it; most of its time is theirs"
    ),
    "test_leader_epochs.test_kafka_knows_where_earlier_epochs_end": "its Kafka is one of its own",
    "test_login_failures": "logins are the trio group's part, and these need a real Kafka",
    "test_logins": (
        "as above; tests/aio/test_group.py plays logins whose functions belong to asyncio"
    ),
    "test_own_starts.test_a_threaded_group_asks_too": "its group is one of threads",
    "test_security": "as for logins",
    "test_transactions.test_what_the_producer_says_of_its_errors": "it has no group",
    "test_transaction_membership": "it has no group: it tests how brokers answer a producer",
}
"""What is not played, a whole module or one test, and why."""


def name_of(test: Test) -> str:
    """The name of a test."""
    return str(getattr(test, "func", test).__name__)


def full_name(test: Callable[..., object]) -> str:
    """Its name with that of its module, as the lists have it."""
    return f"{test.__module__.rpartition('.')[2]}.{test.__name__}"


def test_every_behaviour_is_played_or_left_out_for_a_reason() -> None:
    """A test of ``tests/behaviour`` is in exactly one list, and the lists have nothing else."""
    written = set[str]()
    for path in sorted((ROOT / "tests" / "behaviour").glob("test_*.py")):
        module = import_module(f"tests.behaviour.{path.stem}")
        written |= {
            full_name(found)
            for name, found in vars(module).items()
            if name.startswith("test_") and found.__module__ == module.__name__
        }
    listed = [full_name(getattr(test, "func", test)) for test in TESTS] + list(PLAYED_APART)
    for name in LEFT_OUT:
        found = [one for one in written if name in (one, one.partition(".")[0])]
        assert found, f"LEFT_OUT names {name}, which does not exist"
        listed += found
    missing = sorted(written.difference(listed))
    assert not missing, f"add each to TESTS, or to LEFT_OUT with the reason: {missing}"
    assert sorted(listed) == sorted(written)


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
@pytest.mark.parametrize("test", TESTS, ids=name_of)
async def test_as_on_trio(test: Test, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test says of trio's groups holds for those of asyncio."""
    monkeypatch.setattr("tests.behaviour.harness.ConsumerGroup", adapter.ConsumerGroup)
    monkeypatch.setattr("tests.behaviour.test_own_starts.serve", adapter.serve)
    await test(kafka)


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
async def test_a_frozen_process_stops_by_its_lease(kafka: Kafka, tmp_path: Path) -> None:
    """After the freeze each handler processes at most the one record that it had taken."""
    await test_freeze.test_a_frozen_process_stops_by_its_lease(kafka, tmp_path, ASYNCIO, 3)
