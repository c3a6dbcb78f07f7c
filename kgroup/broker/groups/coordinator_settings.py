"""The coordinator's settings, and their values from a broker's properties.

Source: Kafka's ``GroupCoordinatorConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import INT32_MAX

MOST_SHARDS: Final = 10_000
"""Partitions of the offsets topic; each is an object in every broker, and moves with its leader."""
_POSITIVE: Final = bounds.whole(1, INT32_MAX)
_MINUTE: Final = 60.0
_DAY: Final = 24 * 60 * _MINUTE


@final
@attrs.frozen(kw_only=True)
class CoordinatorSettings:
    """The settings of a group coordinator. Durations are float seconds.

    Attributes:
        initial_rebalance_delay: how long an empty group's first join waits for more members.
        min_session_timeout: the shortest session time-out that a member may request.
        max_session_timeout: the longest.
        group_max_size: the most members of a group.
        max_groups: the most groups of a coordinator.
        new_member_join_timeout: how long a new member's parked join is kept (fixed in Kafka).
        offset_metadata_max_bytes: the longest metadata of an offset, in UTF-16 units as Kafka
            counts it.
        offsets_retention: how long an unused offset is kept.
        offsets_retention_check_interval: how often the coordinator searches for unused offsets.
        offsets_topic_partitions: how many shards the groups are spread over.
    """

    initial_rebalance_delay: float = attrs.field(default=3.0, validator=bounds.seconds(0))
    min_session_timeout: float = attrs.field(default=6.0, validator=bounds.seconds())
    max_session_timeout: float = attrs.field(default=1800.0, validator=bounds.seconds())
    group_max_size: int = attrs.field(default=INT32_MAX, validator=bounds.whole(1, INT32_MAX))
    max_groups: int = attrs.field(default=10_000, validator=bounds.whole(1, INT32_MAX))
    new_member_join_timeout: float = attrs.field(default=300.0, validator=bounds.seconds())
    offset_metadata_max_bytes: int = attrs.field(default=4096, validator=bounds.whole(0, INT32_MAX))
    offsets_retention: float = attrs.field(
        default=7 * _DAY, validator=bounds.seconds(most=INT32_MAX * _MINUTE)
    )
    offsets_retention_check_interval: float = attrs.field(
        default=10 * _MINUTE, validator=bounds.seconds()
    )
    offsets_topic_partitions: int = attrs.field(default=50, validator=bounds.whole(1, MOST_SHARDS))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CoordinatorSettings:
        """Read the properties in ``GROUP_PROPERTIES``, and ignore all others.

        Raises:
            ConfigError: a value is no whole number, or out of its bounds, which the error names.
        """
        fields: dict[str, float | int] = {}
        for name, (field, unit, bound) in GROUP_PROPERTIES.items():
            if name not in properties:
                continue
            try:
                number = bound.read(properties[name])
            except ValueError as error:
                raise ConfigError(name, properties[name], str(error)) from None
            fields[field] = number if unit is None else number * unit / 1000
        return cls(**fields)  # type: ignore[arg-type] # the table gives counts to counts


#: Kafka's property -> the field it sets, its unit in milliseconds (None: a count), its bounds.
GROUP_PROPERTIES: Final[Mapping[str, tuple[str, int | None, bounds.Bound]]] = {
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay", 1, bounds.whole(0, INT32_MAX)),
    "group.min.session.timeout.ms": ("min_session_timeout", 1, _POSITIVE),
    "group.max.session.timeout.ms": ("max_session_timeout", 1, _POSITIVE),
    "group.max.size": ("group_max_size", None, _POSITIVE),
    "kgroup.max.groups": ("max_groups", None, _POSITIVE),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", None, bounds.whole(0, INT32_MAX)),
    "offsets.retention.minutes": ("offsets_retention", 60_000, _POSITIVE),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval", 1, _POSITIVE),
    "offsets.topic.num.partitions": (
        "offsets_topic_partitions",
        None,
        bounds.whole(1, MOST_SHARDS),
    ),
}
