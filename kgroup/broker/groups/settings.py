"""The coordinator's settings, and how they are read from a broker's properties.

Source: Kafka's ``GroupCoordinatorConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs
from attrs import validators

from kgroup.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
_MINUTE: Final = 60.0
_DAY: Final = 24 * 60 * _MINUTE


@final
@attrs.frozen(kw_only=True)
class CoordinatorSettings:
    """How a coordinator treats its groups. Durations are float seconds.

    Attributes:
        initial_rebalance_delay: how long an empty group's first join waits for more members.
        min_session_timeout: the shortest session time-out that a member may ask for.
        max_session_timeout: the longest.
        group_max_size: the most members of a group.
        new_member_join_timeout: how long a new member's parked join is kept (fixed in Kafka).
        offset_metadata_max_bytes: the longest metadata of an offset, in UTF-16 units as Kafka
            counts it.
        offsets_retention: how long an unused offset is kept.
        offsets_retention_check_interval: how often that is looked at.
        offsets_topic_partitions: how many shards the groups are spread over.
    """

    initial_rebalance_delay: float = attrs.field(default=3.0, validator=validators.ge(0))
    min_session_timeout: float = attrs.field(default=6.0, validator=validators.gt(0))
    max_session_timeout: float = attrs.field(default=1800.0, validator=validators.gt(0))
    group_max_size: int = attrs.field(default=INT32_MAX, validator=validators.ge(1))
    new_member_join_timeout: float = attrs.field(default=300.0, validator=validators.gt(0))
    offset_metadata_max_bytes: int = attrs.field(default=4096, validator=validators.ge(0))
    offsets_retention: float = attrs.field(default=7 * _DAY, validator=validators.gt(0))
    offsets_retention_check_interval: float = attrs.field(
        default=10 * _MINUTE, validator=validators.gt(0)
    )
    offsets_topic_partitions: int = attrs.field(default=50, validator=validators.ge(1))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CoordinatorSettings:
        """Read the properties in ``PROPERTIES``; others are other modules' business.

        Raises:
            ConfigError: a value is no whole number, or out of range.
        """
        fields: dict[str, float | int] = {}
        for name, (field, unit) in PROPERTIES.items():
            if name not in properties:
                continue
            try:
                number = int(properties[name])
            except ValueError as error:
                raise ConfigError(name, properties[name], "a whole number") from error
            fields[field] = number if unit is None else number * unit / 1000
        try:
            return cls(**fields)  # type: ignore[arg-type] # the table gives counts to counts
        except ValueError as error:
            raise ConfigError("broker properties", dict(properties), str(error)) from error


#: Kafka's property -> the field it sets, and its unit in milliseconds (None: a count).
PROPERTIES: Final[Mapping[str, tuple[str, int | None]]] = {
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay", 1),
    "group.min.session.timeout.ms": ("min_session_timeout", 1),
    "group.max.session.timeout.ms": ("max_session_timeout", 1),
    "group.max.size": ("group_max_size", None),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", None),
    "offsets.retention.minutes": ("offsets_retention", 60_000),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval", 1),
    "offsets.topic.num.partitions": ("offsets_topic_partitions", None),
}
