"""docs/security.md states the client's limits as the code has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgroup.assignors.general import LEAST_STEPS, MOST_STEPS
from kgroup.assignors.partition_codec import _MAX_CACHED_NAMES
from kgroup.client.cluster import PATIENCE
from kgroup.client.coordinator import JOIN_GRACE
from kgroup.generation.leader_assignment import MANY_TOPICS
from kgroup.member import JOINS_AT_ONCE, JOINS_PER_SECOND
from kgroup.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS
from kgroup.watchers.heartbeat import MAX_THROTTLE_PART
from kgroup.wire.connection import LARGE_RESPONSE
from kgroup.wire.consumer_protocol import MAX_ASSIGNMENT_BYTES
from kgroup.wire.versions import SUPPORTED_REQUESTS, kafka_name

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "security.md"
MIB = 1024 * 1024


def rows() -> list[str]:
    """The rows of all tables of the page."""
    return [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]


@pytest.mark.parametrize(
    "api", sorted(api for api in SUPPORTED_REQUESTS if not api.startswith("sasl"))
)
def test_the_page_has_the_longest_answer_of_each_request(api: str) -> None:
    """Exactly one row names the request, and it has the code's number."""
    (row,) = [row for row in rows() if "an answer to" in row and kafka_name(api) in row]
    size = SUPPORTED_REQUESTS[api].max_response
    assert f"{size // MIB} MiB" in row if size >= MIB else f"{size // 1024} KiB" in row


@pytest.mark.parametrize(
    "words",
    [
        f"`rebalance_timeout` + {JOIN_GRACE:g} s",
        f"| {PATIENCE} x `request_timeout`",
        f"{JOINS_AT_ONCE} in a row, then {JOINS_PER_SECOND:g} in a second",
        f"assignment {MAX_ASSIGNMENT_BYTES // MIB} MiB",
        f"from {LARGE_RESPONSE // 1024} KiB on",
        f"| {_MAX_CACHED_NAMES:,}, none longer",
        f"| {MANY_TOPICS:,}; beyond",
        f"(SCRAM) | {LEAST_ITERATIONS:,} to {MOST_ITERATIONS:,} |",
        f"| {LEAST_STEPS:,} to {MOST_STEPS:,} steps",
    ],
)
def test_a_limit_is_that_of_the_code(words: str) -> None:
    """Each number of the table is the code's constant."""
    assert any(words in row for row in rows())


def test_throttling_lasts_a_third_of_the_session_at_most() -> None:
    """The page says it in words."""
    assert pytest.approx(1 / 3) == MAX_THROTTLE_PART
