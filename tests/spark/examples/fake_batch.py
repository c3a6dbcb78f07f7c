"""An object with the attributes of a batch, for examples without a group."""

from __future__ import annotations

from typing import Self, final

import attrs

from kgroup.spark.offset_ranges import OffsetRange


@final
@attrs.frozen
class FakeBatch:
    """The attributes of a batch that the examples use."""

    ranges: tuple[OffsetRange, ...]
    group_id: str = "group"
    id: str = "a-batch"
    number: int = 1

    @classmethod
    def of(cls, partition: int, start: int, end: int) -> Self:
        """One range of a partition of ``lines``."""
        return cls((OffsetRange("lines", partition, start, end),))
