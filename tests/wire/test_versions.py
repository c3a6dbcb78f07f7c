"""The table of versions, and the choice with a broker."""

from __future__ import annotations

import pytest

from kgroup.errors import UnsupportedVersionError
from kgroup.wire.versions import (
    API_KEYS,
    MAX_RESPONSE_BYTES,
    SUPPORTED_VERSIONS,
    choose_version,
    kafka_name,
)
from tests.wire.entities import known_versions

BROKER = "broker 1 at b:9092"


def test_kio_has_every_version_that_is_spoken() -> None:
    """A range of the table is within kio's, and no wider than its own ends."""
    for api, spoken in SUPPORTED_VERSIONS.items():
        lowest, highest = known_versions(api)
        assert lowest <= spoken.lowest <= spoken.highest <= highest, api


def test_every_answer_has_a_longest() -> None:
    """What is spoken is bounded, and what is bounded is spoken."""
    assert MAX_RESPONSE_BYTES.keys() == SUPPORTED_VERSIONS.keys()


@pytest.mark.parametrize("api", ["offset_commit", "offset_fetch"])
def test_offsets_are_asked_for_by_the_topics_name(api: str) -> None:
    """Version 10 has topic ids only, so the client stops at 9."""
    assert SUPPORTED_VERSIONS[api].highest == 9
    assert choose_version(api, {API_KEYS[api]: (0, 10)}, BROKER) == 9


@pytest.mark.parametrize(
    ("offered", "max_version", "chosen"),
    [((0, 4), None, 4), ((0, 99), None, 4), ((2, 3), None, 3), ((0, 4), 1, 1), ((0, 4), 9, 4)],
)
def test_the_highest_common_version_is_chosen(
    offered: tuple[int, int], max_version: int | None, chosen: int
) -> None:
    """Of the versions that both know the highest is used, up to the caller's bound."""
    assert choose_version("heartbeat", {12: offered}, BROKER, max_version) == chosen


@pytest.mark.parametrize(
    ("api", "offered", "max_version", "text"),
    [
        (
            "join_group",
            {11: (0, 1)},
            None,
            r"speaks JoinGroup v2 to v9 \(v2 brought: .*\); broker 1 .* offers v0 to v1: upgrade",
        ),
        ("join_group", {11: (10, 12)}, None, "offers v10 to v12: a newer kgroup is needed"),
        ("join_group", {11: (5, 9)}, 4, "speaks JoinGroup v2 to v4; .* offers v5 to v9"),
        ("join_group", {}, None, "v2 to v9; broker 1 at b:9092 does not offer it at all"),
    ],
)
def test_without_a_common_version_the_error_names_both_ranges(
    api: str, offered: dict[int, tuple[int, int]], max_version: int | None, text: str
) -> None:
    """The error says what each side speaks, who the broker is, and which side is behind."""
    with pytest.raises(UnsupportedVersionError, match=text):
        choose_version(api, offered, BROKER, max_version)


def test_names_are_spelled_as_kafka_does() -> None:
    """Errors name an API as Kafka's documentation does."""
    assert [kafka_name("api_versions"), kafka_name("join_group")] == ["ApiVersions", "JoinGroup"]
