"""Groups as an administrator sees them: described and listed.

Source: Kafka's ``GroupMetadataManager.describeGroups`` and ``listGroups``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.members import ClassicGroupMember
from kgroup.broker.groups.responses import DescribedGroup, DescribedMember, ListedGroup
from kgroup.broker.groups.states import DEAD, STABLE
from kgroup.error_codes import ErrorCode

TYPE: Final = "classic"
"""What these groups are called beside the groups of KIP-848."""
_FIRST_WITH_NOT_FOUND: Final = 6
"""The DescribeGroups version from which an absent group is an error (KIP-1043)."""


def describe(group_id: str, group: ClassicGroup | None, version: int) -> DescribedGroup:
    """A group's state and members; the protocol and its metadata are settled in Stable only."""
    if group is None:
        return _describe_absent(group_id, version)
    protocol = group.protocol_name if group.state is STABLE else None
    return DescribedGroup(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol or "",
        members=tuple(_member(member, protocol) for member in group.members.values()),
    )


def _describe_absent(group_id: str, version: int) -> DescribedGroup:
    if version < _FIRST_WITH_NOT_FOUND:
        return DescribedGroup(group_id=group_id, state=DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
        state=DEAD.value,
    )


def _member(member: ClassicGroupMember, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=b"" if protocol is None else member.metadata(protocol),
        assignment=member.assignment,
    )


def filtered(
    groups: Iterable[ClassicGroup], states: Collection[str], types: Collection[str]
) -> list[ClassicGroup]:
    """The groups that pass the filters; an empty filter passes all.

    Case does not matter, nor does white space around a state; around a type it does.
    """
    if types and TYPE not in {name.lower() for name in types}:
        return []
    wanted = {name.strip().lower() for name in states}
    return [group for group in groups if not states or group.state.value.lower() in wanted]


def listed(group: ClassicGroup) -> ListedGroup:
    """A group as a list shows it."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        state=group.state.value,
        type=TYPE,
    )
