"""Ranges of offsets: what a batch reads, as values.

Imported by executors: nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs
from attrs import validators

from kgroup.model import INT32_MAX, INT64_MAX, topic_fault


def _topic(_: object, attribute: attrs.Attribute[str], value: object) -> None:
    if fault := topic_fault(value):
        raise ValueError(f"{attribute.name}={value!r:.100} is refused: it {fault}")


_Check = Callable[[object, "attrs.Attribute[int]", int], None]


def _whole(most: int) -> _Check:
    return validators.and_(validators.instance_of(int), validators.ge(0), validators.le(most))


@final
@attrs.frozen(order=True)
class OffsetRange:
    """Offsets of one partition, from `start` to just before `end`; sorts by partition, then start.

    Raises:
        TypeError | ValueError: a value that no partition could have; it names the field.
    """

    topic: str = attrs.field(validator=_topic)
    partition: int = attrs.field(validator=_whole(INT32_MAX))
    start: int = attrs.field(validator=_whole(INT64_MAX))
    end: int = attrs.field(validator=_whole(INT64_MAX))

    def __attrs_post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"end={self.end} is refused: the range starts at {self.start}")
