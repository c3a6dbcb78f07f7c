"""The table of versions, and the choice of one with a broker."""

from __future__ import annotations

import pytest

from kgroup.errors import UnsupportedVersionError
from kgroup.wire.versions import (
    API_KEYS,
    SUPPORTED_REQUESTS,
    choose_version,
    kafka_name,
)
from tests.wire.entities import known_versions

BROKER = "broker 1 at b:9092"


def test_kio_has_every_supported_version() -> None:
    """A range of the table is within kio's, and no wider than its own ends."""
    for api, supported in SUPPORTED_REQUESTS.items():
        lowest, highest = known_versions(api)
        assert lowest <= supported.lowest <= supported.highest <= highest, api


@pytest.mark.parametrize("api", ["offset_commit", "offset_fetch"])
def test_offsets_are_requested_by_topic_name(api: str) -> None:
    """Version 10 has topic ids only, so the client stops at 9."""
    assert SUPPORTED_REQUESTS[api].highest == 9
    assert choose_version(api, {API_KEYS[api]: (0, 10)}, BROKER) == 9


@pytest.mark.parametrize(
    ("offered", "max_version", "chosen"),
    [((0, 4), None, 4), ((0, 99), None, 4), ((2, 3), None, 3), ((0, 4), 1, 1), ((0, 4), 9, 4)],
)
def test_the_highest_common_version_is_chosen(
    offered: tuple[int, int], max_version: int | None, chosen: int
) -> None:
    """The highest version that both support is chosen, up to the caller's limit."""
    assert choose_version("heartbeat", {12: offered}, BROKER, max_version) == chosen


@pytest.mark.parametrize(
    ("api", "offered", "max_version", "text"),
    [
        (
            "join_group",
            {11: (0, 1)},
            None,
            r"JoinGroup v2 to v9 \(v2 brought: .*\); broker 1 .* supports v0 to v1: upgrade",
        ),
        ("join_group", {11: (10, 12)}, None, "supports v10 to v12: upgrade kgroup"),
        ("join_group", {11: (5, 9)}, 4, "supports JoinGroup v2 to v4; .* supports v5 to v9"),
        ("join_group", {}, None, "v2 to v9; broker 1 at b:9092 does not support it"),
    ],
)
def test_without_a_common_version_the_error_names_both_ranges(
    api: str, offered: dict[int, tuple[int, int]], max_version: int | None, text: str
) -> None:
    """The error names both ranges, the broker, and the side to upgrade."""
    with pytest.raises(UnsupportedVersionError, match=text):
        choose_version(api, offered, BROKER, max_version)


def test_names_are_spelled_as_kafka_does() -> None:
    """Errors name an API as Kafka's documentation does."""
    assert [kafka_name("api_versions"), kafka_name("join_group")] == ["ApiVersions", "JoinGroup"]
