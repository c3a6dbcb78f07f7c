"""Plans to reset a group's offsets: pure functions, from positions to offsets within the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs

from kgroup.cli.admin_client import NO_OFFSET, Refusal
from kgroup.cli.log_bounds import LogBounds
from kgroup.cli.position_options import Position, PositionKind
from kgroup.types import TopicPartition

__all__ = ["Change", "plan_reset"]


@final
@attrs.frozen(kw_only=True)
class Change:
    """The reset of one partition.

    Attributes:
        partition: the partition.
        committed: the offset that is committed now; None if there is none.
        target: the offset that will be; None if it stays as it is.
        note: why it stays, or why it is another offset than was requested.
    """

    partition: TopicPartition
    committed: int | None
    target: int | None
    note: str = ""

    @property
    def moves(self) -> int | None:
        """By how many offsets it moves; negative if records will be read again."""
        if self.target is None or self.committed is None:
            return None
        return self.target - self.committed

    def as_json(self) -> dict[str, Any]:
        """The change as an object of JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "committed": self.committed,
            "target": self.target,
            "note": self.note or None,
        }


def plan_reset(
    position: Position,
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, LogBounds],
    times: Mapping[TopicPartition, int | Refusal],
) -> list[Change]:
    """Find the new offset of each partition.

    Args:
        position: where to.
        committed: what is committed now.
        bounds: the partitions, with the bounds of their logs.
        times: for a position that is a time, the first offset with it or a later one, or -1.

    Returns:
        a change of each partition, sorted.
    """
    return [
        _change(position, partition, committed.get(partition), found, times.get(partition))
        for partition, found in sorted(bounds.items())
    ]


def _change(
    position: Position,
    partition: TopicPartition,
    committed: int | None,
    bounds: LogBounds,
    at_time: int | Refusal | None,
) -> Change:
    if bounds.start is None or bounds.end is None:
        stays = bounds.fault
    elif isinstance(at_time, Refusal):
        stays = at_time.explained("DESCRIBE", topic=partition.topic)
    elif position.kind is PositionKind.SHIFT and committed is None:
        stays = "nothing is committed to shift from"
    else:
        target, note = _target(
            position,
            committed or 0,
            bounds.start,
            bounds.end,
            NO_OFFSET if at_time is None else at_time,
        )
        return Change(partition=partition, committed=committed, target=target, note=note)
    return Change(partition=partition, committed=committed, target=None, note=f"stays: {stays}")


def _target(
    position: Position, committed: int, start: int, end: int, at_time: int
) -> tuple[int, str]:
    """The new offset, and a note if it is not what was requested."""
    if position.kind is PositionKind.TIME and at_time == NO_OFFSET:
        return end, "no record is so recent: the end"
    wanted = {
        PositionKind.EARLIEST: start,
        PositionKind.LATEST: end,
        PositionKind.OFFSET: position.value,
        PositionKind.SHIFT: committed + position.value,
        PositionKind.TIME: at_time,
    }[position.kind]
    if wanted < start:
        return start, f"{wanted} is not in the log: it begins at {start}"
    if wanted > end:
        return end, f"{wanted} is not in the log: it ends at {end}"
    return wanted, ""
