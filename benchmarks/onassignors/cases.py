"""The groups of the benchmark, and the files from which both sides read them.

A file contains a leader's input: the topics with their partition counts, and each member's
subscription as bytes, as in the JoinGroup response. Numbers are big-endian, and names are written
as by Java's ``DataOutput.writeUTF``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import attrs

from kgroup.assignors import BUILTIN, user_data_of
from kgroup.types import Claim, MemberSubscription, TopicInfo, TopicPartition
from kgroup.wire.consumer_protocol import decode_subscription, encode_subscription

STICKY: Final = ("sticky", "cooperative-sticky")
ALL: Final = ("range", "roundrobin", *STICKY)
GENERATION: Final = 1
"""The group's generation before a member left it."""

Choose = Callable[[int, int, Sequence[str]], Iterable[str]]
"""Chooses a member's topics from its number, the number of members, and all topics."""


def everything(member: int, members: int, topics: Sequence[str]) -> Iterable[str]:
    """Subscribe to all topics."""
    del member, members
    return topics


def blocks(member: int, members: int, topics: Sequence[str]) -> Iterable[str]:
    """Subscribe each half of the members to one half of the topics."""
    half = len(topics) // 2
    return topics[:half] if member < members // 2 else topics[half:]


def random_half(member: int, members: int, topics: Sequence[str]) -> Iterable[str]:
    """Subscribe each member to a random half, the same in every run."""
    return random.Random(members + member).sample(topics, len(topics) // 2)


@final
@attrs.frozen(kw_only=True)
class Group:
    """A group and its topics.

    Attributes:
        members: the number of members.
        topics: the number of topics.
        partitions: the number of partitions of each topic.
        choose: chooses the topics of each member.
        name: its name in the table.
    """

    members: int
    topics: int
    partitions: int
    choose: Choose = everything
    name: str

    def counts(self) -> dict[str, int]:
        """Partitions by topic."""
        return {f"topic-{number:05}": self.partitions for number in range(self.topics)}

    def subscriptions(self) -> dict[str, tuple[str, ...]]:
        """Topics by member; member ids have the usual length."""
        topics = list(self.counts())
        return {
            f"consumer-{number:05}-5f0c3b1e-7d0a-4c55-9a53-2f8f6f0d0a11": tuple(
                sorted(self.choose(number, self.members, topics))
            )
            for number in range(self.members)
        }


@final
@attrs.frozen(kw_only=True)
class Case:
    """One row: a group, an assignor, and whether a member has just left.

    Attributes:
        group: the group before.
        assignor: the assignor's name.
        leaving: whether the group had an assignment, and its middle member has left.
    """

    group: Group
    assignor: str
    leaving: bool

    @property
    def name(self) -> str:
        """The name in the table."""
        how = "one leaves" if self.leaving else "from scratch"
        return f"{self.group.name}, {self.assignor}, {how}"

    def write(self, path: Path) -> None:
        """Write the leader's input."""
        counts = self.group.counts()
        members = self.group.subscriptions()
        claims: dict[str, Claim | None] = dict.fromkeys(members)
        if self.leaving:
            claims = dict(self._divided(counts, members))
            del members[list(members)[len(members) // 2]]
        with path.open("wb") as file:
            file.write(struct.pack(">i", len(counts)))
            for topic, count in counts.items():
                file.write(_text(topic) + struct.pack(">i", count))
            file.write(struct.pack(">i", len(members)))
            for member, topics in members.items():
                data = self._subscription(topics, claims[member])
                file.write(_text(member) + struct.pack(">i", len(data)) + data)

    def _divided(
        self, counts: Mapping[str, int], members: Mapping[str, tuple[str, ...]]
    ) -> Iterable[tuple[str, Claim]]:
        given = BUILTIN[self.assignor].assign(
            known(counts),
            [MemberSubscription(member_id=name, topics=of) for name, of in members.items()],
        )
        for member, owned in given.items():
            yield member, Claim(tuple(owned), GENERATION)

    def _subscription(self, topics: tuple[str, ...], claim: Claim | None) -> bytes:
        assignor = BUILTIN[self.assignor]
        # Only a cooperative member still owns partitions when it joins.
        keeps = claim is not None and getattr(assignor, "cooperative", False)
        owned: Sequence[TopicPartition] = claim.owned if claim is not None and keeps else ()
        return encode_subscription(
            topics=topics,
            user_data=user_data_of(assignor, claim),
            owned=owned,
            generation_id=GENERATION if keeps else -1,
        )


@final
@attrs.frozen
class Joined:
    """The contents of a file.

    Attributes:
        topics: the topics of the cluster.
        members: member ids, and subscriptions as bytes.
    """

    topics: dict[str, TopicInfo]
    members: list[tuple[str, bytes]]

    @classmethod
    def read(cls, path: Path) -> Joined:
        """Read a file of `Case.write`."""
        with path.open("rb") as file:

            def number(form: str = ">i") -> int:
                return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])

            def text() -> str:
                return file.read(number(">H")).decode()

            counts = {text(): number() for _ in range(number())}
            members = [(text(), file.read(number())) for _ in range(number())]
        return cls(known(counts), members)

    def decode(self) -> list[MemberSubscription]:
        """The subscriptions, as the coordinator's client decodes them."""
        return [decode_subscription(data, member_id=member) for member, data in self.members]


def known(counts: Mapping[str, int]) -> dict[str, TopicInfo]:
    """The topics as the cluster's metadata describes them."""
    return {name: TopicInfo(name=name, partitions=count) for name, count in counts.items()}


def cases(groups: Iterable[Group]) -> list[Case]:
    """All rows: every assignor from scratch, and the sticky ones after a member has left."""
    return [
        Case(group=group, assignor=assignor, leaving=leaving)
        for group in groups
        for leaving, assignors in ((False, ALL), (True, STICKY))
        for assignor in assignors
    ]


def _text(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">H", len(data)) + data


FULL: Final = (
    Group(name="100 x 10 k", members=100, topics=100, partitions=100),
    Group(name="500 x 100 k", members=500, topics=100, partitions=1000),
    Group(name="2,000 x 1 M", members=2000, topics=1000, partitions=1000),
    Group(name="200 x 20 k blocks", members=200, topics=200, partitions=100, choose=blocks),
    Group(name="200 x 20 k halves", members=200, topics=200, partitions=100, choose=random_half),
)
QUICK: Final = (
    Group(name="20 x 1 k", members=20, topics=20, partitions=50),
    Group(name="20 x 400 halves", members=20, topics=20, partitions=20, choose=random_half),
)
