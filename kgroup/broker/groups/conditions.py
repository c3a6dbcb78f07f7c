"""The conditions of rules, each about one event and its group. None changes anything.

Source: Kafka's ``ClassicGroup.validateMember`` and ``supportsProtocols``,
``GroupMetadataManager.acceptJoiningMember``.
"""

from __future__ import annotations

from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.states import PREPARING

_FIRST_WITH_MEMBER_ID_REQUIRED = 4
"""The JoinGroup version from which a new dynamic member is first given an id (KIP-394)."""

# The sender


def has_no_id(context: EventContext) -> bool:
    """The request has no member id."""
    return not context.event.member_id


def has_instance(context: EventContext) -> bool:
    """The request has an instance id."""
    return context.event.group_instance_id is not None


def instance_is_known(context: EventContext) -> bool:
    """The instance id belongs to a member."""
    instance = context.event.group_instance_id
    return instance is not None and context.group.member_of_instance(instance) is not None


def instance_is_unknown(context: EventContext) -> bool:
    """The request has an instance id that belongs to no member."""
    return has_instance(context) and not instance_is_known(context)


def instance_belongs_to_another_member(context: EventContext) -> bool:
    """The instance id belongs to a member with another member id."""
    instance = context.event.group_instance_id
    owner = None if instance is None else context.group.member_of_instance(instance)
    return owner is not None and owner != context.event.member_id


def is_pending(context: EventContext) -> bool:
    """The member id is pending: it was given out, and no JoinGroup has come with it yet."""
    return context.event.member_id in context.group.pending


def is_not_a_member(context: EventContext) -> bool:
    """The member id belongs to no member."""
    return context.event.member_id not in context.group.members


def is_leader(context: EventContext) -> bool:
    """The member id is the leader's."""
    return bool(context.event.member_id == context.group.leader)


def is_anonymous(context: EventContext) -> bool:
    """The request has no generation, member id or instance id."""
    return context.event.generation_id < 0 and has_no_id(context) and not has_instance(context)


def has_no_generation(context: EventContext) -> bool:
    """The request has no generation."""
    return bool(context.event.generation_id < 0)


def generation_differs(context: EventContext) -> bool:
    """The generation is not the group's current one."""
    return bool(context.event.generation_id != context.group.generation_id)


# Joining


def is_over_size(context: EventContext) -> bool:
    """The group has no room for this member (``group.max.size``).

    In PreparingRebalance only members with a waiting join count: the last ones to join are
    rejected.
    """
    group = context.group
    member = group.members.get(context.event.member_id)
    if group.state is PREPARING:
        is_in, size = member is not None and member.parked_join is not None, group.parked_joins
    else:
        is_in, size = member is not None, len(group.members)
    return not is_in and size >= context.settings.group_max_size


def has_too_many_members(context: EventContext) -> bool:
    """The group has more members than ``group.max.size``."""
    return len(context.group.members) > context.settings.group_max_size


def shares_no_protocol(context: EventContext) -> bool:
    """The protocol type is not the group's, or no protocol is supported by all members.

    A protocol that a member names twice does not count.
    """
    return not context.group.supports(context.event.protocol_type, context.event.protocols)


def needs_an_id_first(context: EventContext) -> bool:
    """In this version a new member must first be given a member id (MEMBER_ID_REQUIRED)."""
    return bool(context.event.version >= _FIRST_WITH_MEMBER_ID_REQUIRED)


def changes_nothing(context: EventContext) -> bool:
    """The member joins with the same protocols as before, in the same order."""
    return bool(context.group.members[context.event.member_id].protocols == context.event.protocols)


def keeps_the_protocol(context: EventContext) -> bool:
    """With the protocols that the static member sends now, the same protocol would be elected."""
    group, request = context.group, context.event
    member = group.instance(request.group_instance_id)
    elected = group.protocol_if(member, request.protocols)
    return elected == (group.protocol_name or "")


# Syncing


def protocol_differs(context: EventContext) -> bool:
    """The request has a protocol type or name that is not the group's."""
    return _differs(context.event.protocol_type, context.group.protocol_type) or _differs(
        context.event.protocol_name, context.group.protocol_name
    )


def _differs(sent: str | None, known: str | None) -> bool:
    return sent is not None and known is not None and sent != known


# Timers


def may_wait_longer(context: EventContext) -> bool:
    """New members joined during the initial wait, and there is time left to wait for more."""
    wait = context.group.initial_wait
    return context.group.new_member_added and wait.remaining > 0


def has_satisfied_heartbeat(context: EventContext) -> bool:
    """The member has a waiting join or sync and is not new, so its session cannot expire."""
    return context.group.members[context.event.member_id].has_satisfied_heartbeat


# A join that completes


def has_no_members(context: EventContext) -> bool:
    """The group has no members."""
    return not context.group.members


def no_member_has_joined(context: EventContext) -> bool:
    """No member has a waiting join; those that remain are static."""
    return context.group.parked_joins == 0


# The log


def append_fails(context: EventContext) -> bool:
    """The write of the group's record fails."""
    return context.write_faults.fails


def append_of_assignments_fails(context: EventContext) -> bool:
    """The write of the group's record fails, or it is too large with these assignments."""
    return context.write_faults.refuses(context.group.batch_with(context.event.assignments))


def append_of_replacement_fails(context: EventContext) -> bool:
    """The write of the group's record fails, or it is too large with the new metadata."""
    return context.write_faults.refuses(context.group.batch_with_replaced(context.event))


# Offsets and administration


def is_no_consumer_group(context: EventContext) -> bool:
    """The members do not use the consumer protocol, so their topics are unknown."""
    return not context.group.is_of_consumers
