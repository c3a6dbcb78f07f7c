"""The coordinator's settings."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES, CoordinatorSettings
from kgroup.errors import ConfigError


def test_defaults_are_kafkas() -> None:
    """The defaults are those of Kafka's GroupCoordinatorConfig and kgroup's own limits."""
    settings = CoordinatorSettings.from_properties({})
    assert settings == CoordinatorSettings(
        initial_rebalance_delay=3,
        min_session_timeout=6,
        max_session_timeout=1800,
        group_max_size=2**31 - 1,
        max_groups=10_000,
        new_member_join_timeout=300,
        offset_metadata_max_bytes=4096,
        offsets_retention=7 * 24 * 3600,
        offsets_retention_check_interval=600,
        offsets_topic_partitions=50,
    )


def test_every_property_sets_its_field() -> None:
    """Milliseconds and minutes become seconds; counts stay; unknown properties are ignored."""
    properties = dict.fromkeys(GROUP_PROPERTIES, "300") | {"log.dirs": "/tmp"}  # noqa: S108 # never used
    assert CoordinatorSettings.from_properties(properties) == CoordinatorSettings(
        initial_rebalance_delay=0.3,
        min_session_timeout=0.3,
        max_session_timeout=0.3,
        group_max_size=300,
        max_groups=300,
        offset_metadata_max_bytes=300,
        offsets_retention=18000,
        offsets_retention_check_interval=0.3,
        offsets_topic_partitions=300,
    )


@pytest.mark.parametrize("value", ["soon", "-1", "1.5"])
def test_bad_value_is_refused(value: str) -> None:
    """A value that is no whole number, or out of range, is refused."""
    with pytest.raises(ConfigError):
        CoordinatorSettings.from_properties({"group.initial.rebalance.delay.ms": value})
