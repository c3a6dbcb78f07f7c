"""Which member owns which partition before an assignment: claims, and which of them count.

A member of ``sticky`` claims partitions in its user data, together with the generation in which it
owned them (the oldest clients send no generation). A member of ``cooperative-sticky`` claims them
in its subscription and sends only the generation as user data.

A claim without a rival counts, however old it is. Of several claims to one partition the claim of
the highest generation counts. If two claims have that generation, neither counts and the partition
is disputed. (Kafka compares a new claim's generation with a field of the first claimant's
subscription that sticky members need not fill, so that its result can depend on which member it
reads first. Here the claims' own generations are compared.)

INVARIANT: decoding never fails. Bytes that cannot be read mean that the member owned nothing.

Source: Kafka's ``AbstractStickyAssignor.allSubscriptionsEqual``, ``StickyAssignor``
(``STICKY_ASSIGNOR_USER_DATA_V0``, ``V1``) and ``CooperativeStickyAssignor``; KIP-792.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, final

import attrs

from kgroup.assignors.partition_codec import (
    PartitionList,
    TopicSpans,
    decode_indexes,
    encode_partitions,
)
from kgroup.assignors.partition_index import PartitionIndex, mark
from kgroup.types import MemberSubscription, TopicPartition

NO_GENERATION: Final = -1
"""The generation of a member that was in no generation."""

_INT: Final = struct.Struct(">i")


@final
@attrs.frozen
class MemberClaim:
    """The partitions that one member says it owns.

    Attributes:
        indexes: the partitions that exist.
        generation: the generation of the claim, or None if the member does not send it.
    """

    indexes: list[int]
    generation: int | None

    @property
    def weight(self) -> int:
        """The generation as it is compared with that of another claim."""
        return NO_GENERATION if self.generation is None else self.generation


@final
@attrs.frozen
class Ownership:
    """The claims that count.

    Attributes:
        owned: the partitions of each member.
        held: for each index 1 if a member owns it, else 0.
        disputed: partitions of which neither of two equal claims counts.
    """

    owned: list[list[int]]
    held: bytearray
    disputed: frozenset[int]


def indexes_of(
    members: Iterable[MemberSubscription], partition_index: PartitionIndex
) -> Iterator[list[int]]:
    """For each member the indexes of those of its owned partitions that exist."""
    spots = {
        name: (partition_index.starts[place], len(partition_index.span(place)))
        for name, place in partition_index.places.items()
    }
    nowhere = (0, 0)
    for member in members:
        found = []
        owned = member.owned
        if not isinstance(owned, PartitionList):
            owned = PartitionList([one.topic for one in owned], [one.partition for one in owned])
        for topic, number in zip(owned.topics, owned.numbers, strict=True):
            start, count = spots.get(topic, nowhere)
            if 0 <= number < count:
                found.append(start + number)
        yield found


def settle_claims(partition_index: PartitionIndex, claims: Sequence[MemberClaim]) -> Ownership:
    """Decide which claims count."""
    held = bytearray(len(partition_index))
    for claim in claims:
        mark(held, claim.indexes)
    owned = [claim.indexes for claim in claims]
    if held.count(1) == sum(map(len, owned)):
        return Ownership(owned, held, frozenset())
    owned = [list(dict.fromkeys(claimed)) for claimed in owned]
    times = Counter(chain.from_iterable(owned))
    claimants: dict[int, list[int]] = defaultdict(list)
    for member, claimed in enumerate(owned):
        for index in claimed:
            if times[index] > 1:
                claimants[index].append(member)
    winners: dict[int, int | None] = {}
    for index, members in claimants.items():
        weights = [claims[member].weight for member in members]
        highest = max(weights)
        alone = weights.count(highest) == 1
        winners[index] = members[weights.index(highest)] if alone else None
    disputed = frozenset(index for index, winner in winners.items() if winner is None)
    for index in disputed:
        held[index] = 0
    return Ownership(
        [
            [index for index in claimed if winners.get(index, member) == member]
            for member, claimed in enumerate(owned)
        ],
        held,
        disputed,
    )


def encode_sticky(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Encode the user data of ``sticky``: version 1, partitions by topic and the generation."""
    return encode_partitions(owned) + _INT.pack(generation_id)


def decode_sticky(data: bytes | None, known: TopicSpans) -> tuple[list[int], int | None]:
    """Decode the indexes that a member says it owned, and their generation, None if it has none.

    Partitions that do not exist are left out.
    """
    if not data:
        return [], None
    try:
        owned, at = decode_indexes(data, 0, known)
    except (IndexError, struct.error, ValueError):
        return [], NO_GENERATION
    return owned, _INT.unpack_from(data, at)[0] if len(data) - at >= _INT.size else None


def encode_generation(generation_id: int) -> bytes:
    """Encode the user data of ``cooperative-sticky``: the generation."""
    return _INT.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """Decode the generation that a ``cooperative-sticky`` member sent, None if it sent none."""
    if data is None:
        return None
    return int(_INT.unpack_from(data)[0]) if len(data) >= _INT.size else NO_GENERATION
