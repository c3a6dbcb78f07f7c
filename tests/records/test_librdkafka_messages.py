"""The action for each of librdkafka's errors, and the split of messages into runs."""

from __future__ import annotations

from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from kgroup.records.librdkafka_messages import (
    ERROR_ACTIONS,
    ErrorAction,
    Truncation,
    action_for,
    count_rising,
    describe_error,
    has_errors,
    partition_in_text,
    run_end,
    runs,
    truncation_in,
)
from kgroup.types import TopicPartition
from tests.records.scripted import failure, record, truncation


@pytest.mark.parametrize(("code", "expected"), ERROR_ACTIONS.items())
def test_the_table_is_followed(code: int, expected: ErrorAction) -> None:
    """Every code of the table has its action."""
    assert action_for(KafkaError(code)) is expected


def test_an_unknown_code_is_waited_out() -> None:
    """An error code of a newer broker does not end a group."""
    assert action_for(KafkaError(31_999)) is ErrorAction.WAIT


def test_a_fatal_error_fails_whatever_its_code() -> None:
    """An error that librdkafka calls fatal is never retried."""
    assert action_for(KafkaError(KafkaError._TRANSPORT, fatal=True)) is ErrorAction.FAIL


def test_the_partition_is_read_from_the_text() -> None:
    """Only the text of the error callback names the partition."""
    named = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "my.topic-1 [12]: topic does not exist")
    assert partition_in_text(named) == TopicPartition("my.topic-1", 12)
    assert (
        partition_in_text(KafkaError(KafkaError._TRANSPORT, "localhost:1/bootstrap: refused"))
        is None
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (truncation(TopicPartition("t", 0), 100, 50).error(), Truncation(100, 50)),
        (truncation(TopicPartition("t", 0), 100, -1).error(), Truncation(100, None)),
        (KafkaError(KafkaError._LOG_TRUNCATION), Truncation()),
        (KafkaError(KafkaError._AUTO_OFFSET_RESET, "fetch failed due to requested offset"), None),
        (KafkaError(KafkaError.OFFSET_OUT_OF_RANGE), None),
    ],
)
def test_a_truncation_is_read_from_the_text(error: KafkaError, expected: Truncation | None) -> None:
    """Only the text tells a log that was cut from an offset out of range, and where it was cut."""
    assert truncation_in(error) == expected


@pytest.mark.parametrize(
    ("position", "end", "concerns"),
    [
        (100, 50, True),
        (100, 80, False),  # nothing that arrived is cut off
        (59, 50, False),  # of an earlier fetch
        (60, None, True),
        (None, None, True),
    ],
)
def test_a_truncation_concerns_the_fetch_that_lost_records(
    position: int | None, end: int | None, *, concerns: bool
) -> None:
    """It does if the fetch began no later than the position, and records from it are cut off."""
    assert Truncation(position, end).concerns(60, 80) is concerns


@pytest.mark.parametrize("end", [50, None])
def test_a_truncation_and_a_fetch_that_has_brought_nothing(end: int | None) -> None:
    """It concerns the fetch only if that began at its position: a seek back is not undone."""
    assert Truncation(60, end).concerns(60, 60)
    assert not Truncation(100, end).concerns(60, 60)


@pytest.mark.parametrize(
    ("offsets", "count"),
    [([5, 6, 9], 3), ([4, 5, 6], 0), ([5, 6, 6, 7], 2), ([7, 9, 8, 10], 2), ([], 0)],
)
def test_records_are_counted_as_long_as_their_offsets_rise(offsets: list[int], count: int) -> None:
    """The count ends before the first record below 5, or not past all before it."""
    assert count_rising([record(TopicPartition("t", 0), at) for at in offsets], 5) == count


names = st.tuples(st.sampled_from("ab"), st.integers(0, 2))
Stretches = list[tuple[tuple[str, int], int]]
stretches = st.lists(st.tuples(names, st.integers(1, 40)), max_size=12)


@given(stretches)
def test_runs_are_those_that_a_scan_of_every_record_finds(
    given_stretches: Stretches,
) -> None:
    """Galloping finds exactly the runs that a scan finds, whatever the gaps."""
    keys = [key for key, count in given_stretches for _ in range(count)]
    chunk = [record(TopicPartition(*key), at) for at, key in enumerate(keys)]
    topics = len({topic for topic, _ in keys})
    lengths = [len(list(same)) for _, same in groupby(keys)]
    found = list(runs(chunk, topics=topics))
    assert [end - start for start, end in found] == lengths
    assert [start for start, _ in found] == [sum(lengths[:turn]) for turn in range(len(lengths))]


@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 20))
def test_a_run_ends_at_its_stop(same: int, before: int, after: int) -> None:
    """A run ends at the latest where the search stops."""
    keys = [9] * before + [1] * same + [2] * after
    assert run_end(keys, before, len(keys)) == before + same
    assert run_end(keys, before, before + 1) == before + 1


def test_a_gap_as_long_as_another_partition_hides_nothing() -> None:
    """A marker's gap that is as long as another partition's records does not join two runs."""
    first, other = TopicPartition("t", 0), TopicPartition("t", 1)
    chunk = [record(first, at) for at in range(6)]
    chunk += [record(other, 0)]
    chunk += [record(first, at) for at in range(7, 20)]  # offset 6 is a marker
    assert list(runs(chunk, topics=1)) == [(0, 6), (6, 7), (7, 20)]


def test_errors_are_found_among_records() -> None:
    """One error among records is found."""
    partition = TopicPartition("t", 0)
    records = [record(partition, at) for at in range(5)]
    assert not has_errors(records)
    assert has_errors([*records, failure(partition, 1, 5), record(partition, 6)])


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (KafkaError._SSL, "; check Security.ca, certificate and key"),
        (KafkaError._AUTHENTICATION, "; check the login in Security"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "; grant the user READ on topic 't'"),
        (KafkaError._TRANSPORT, "refused"),
    ],
)
def test_what_librdkafka_says_of_a_refusal_is_completed(code: int, remedy: str) -> None:
    """Errors of TLS, logins and permissions say what to do; others are passed on as they are."""
    text = describe_error(KafkaError(code, "refused"), "t")
    assert text.startswith(f"{KafkaError(code).name()}: refused")
    assert remedy in text


def test_a_text_that_quotes_bytes_is_readable() -> None:
    """A broker's text need not be UTF-8, and confluent-kafka raises where it is read then."""

    def unreadable() -> str:
        return b"t [7]: it said \xff".decode()

    error: Any = SimpleNamespace(
        code=lambda: KafkaError._TRANSPORT, name=lambda: "_TRANSPORT", str=unreadable
    )
    assert describe_error(error) == "_TRANSPORT: t [7]: it said \\xff"
    assert partition_in_text(error) == TopicPartition("t", 7)
    assert truncation_in(error) is None


def test_what_librdkafka_says_wrongly_is_not_passed_on() -> None:
    """A web server's answer is no large response."""
    said = "h:1/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000):"
    error = KafkaError(KafkaError._TRANSPORT, f"{said} increase receive.message.max.bytes")
    assert "The answer is HTTP" in describe_error(error)
    assert "receive.message.max.bytes" not in describe_error(error)
