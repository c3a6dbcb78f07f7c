"""Defines a mutation: one line of the shipped code, changed as a programmer might change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs
from attrs import validators

INVARIANTS = range(1, 14)
"""The numbers of all invariants."""
SEEDS = range(200)
"""Within these seeds the simulator finds every mutation."""


@final
@attrs.frozen(kw_only=True)
class Mutation:
    """One changed line.

    Attributes:
        breaks: the invariant that the simulator must find broken.
        description: what the change does, as a sentence.
        module: where the line is.
        old: the line, without the spaces around it.
        new: what stands in its place.
        within: the first line of the block that it stands in, where others have one like it.
        seed: which one to try first, one that has found it; the others follow in their order.
        config: settings of the group that it needs, beside those of every hunt.
        partition_handler: the one that it needs; None for that of each seed's plan.
    """

    breaks: int = attrs.field(validator=validators.in_(INVARIANTS))
    description: str
    module: str
    old: str
    new: str
    within: str | None = None
    seed: int = attrs.field(default=0, validator=validators.in_(SEEDS))
    config: Mapping[str, float] = attrs.field(factory=dict)
    partition_handler: str | None = None

    def __str__(self) -> str:
        return f"{self.breaks}: {self.description}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds, in the order in which they are tried."""
        return (self.seed, *(seed for seed in SEEDS if seed != self.seed))
