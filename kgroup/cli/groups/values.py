"""Groups as the commands show them: values without behaviour, made of what a cluster answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.types import TopicPartition

__all__ = ["Group", "GroupMember", "Listing"]

_WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


@final
@attrs.frozen
class Listing:
    """A group as ListGroups reports it.

    Attributes:
        group_id: its name.
        state: Kafka's name of its state; Unknown if librdkafka has none for it.
        protocol: classic, consumer (KIP-848) or unknown.
    """

    group_id: str
    state: str
    protocol: str


@final
@attrs.frozen(kw_only=True)
class GroupMember:
    """A member of a group.

    Attributes:
        member_id: the id that it has from the coordinator.
        client_id: its client's name.
        host: the address that it connects from.
        group_instance_id: the id of a static member.
        partitions: the partitions that it owns, sorted.
        target: of a KIP-848 group, the partitions that it will own; None in a classic group.
        topics: those to which it subscribes, sorted; None if that is not known.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None
    topics: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


@final
@attrs.frozen(kw_only=True)
class Group:
    """A group as DescribeGroups or ConsumerGroupDescribe reports it.

    Attributes:
        group_id: its name.
        state: as in `Listing`.
        protocol: as in `Listing`.
        assignor: the assignor that its members have agreed on; empty without members.
        coordinator: the broker that coordinates it, as ``host:port (id)``.
        members: its members, sorted by client id and member id.
        topics_not_seen: those to which members subscribe, and that do not exist or that the user
            may not describe; each with the nearest name that there is, as part of a sentence, or an
            empty text.
    """

    group_id: str
    state: str
    protocol: str
    assignor: str = ""
    coordinator: str = ""
    members: tuple[GroupMember, ...] = ()
    topics_not_seen: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def live(self) -> bool:
        """Whether it has members, or is about to have some."""
        return bool(self.members) or self.state not in _WITHOUT_MEMBERS

    @property
    def owners(self) -> Mapping[TopicPartition, GroupMember]:
        """The member that owns each assigned partition."""
        return {one: member for member in self.members for one in member.partitions}
