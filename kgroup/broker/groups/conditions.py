"""The questions that rules ask, each about the event in hand and its group. None changes anything.

Source: Kafka's ``ClassicGroup.validateMember`` and ``supportsProtocols``,
``GroupMetadataManager.acceptJoiningMember``.
"""

from __future__ import annotations

from kgroup.broker.groups.event_context import EventContext
from kgroup.broker.groups.states import PREPARING

_FIRST_WITH_MEMBER_ID_REQUIRED = 4
"""The JoinGroup version from which a new dynamic member is first given an id (KIP-394)."""

# Who asks


def has_no_id(context: EventContext) -> bool:
    """No member id was sent."""
    return not context.event.member_id


def has_instance(context: EventContext) -> bool:
    """An instance id was sent."""
    return context.event.group_instance_id is not None


def instance_is_known(context: EventContext) -> bool:
    """The instance id is a member's."""
    instance = context.event.group_instance_id
    return instance is not None and context.group.member_of_instance(instance) is not None


def instance_is_unknown(context: EventContext) -> bool:
    """An instance id was sent, and is no member's."""
    return has_instance(context) and not instance_is_known(context)


def instance_belongs_to_another_member(context: EventContext) -> bool:
    """The instance id is that of a member with another id than the one sent."""
    instance = context.event.group_instance_id
    owner = None if instance is None else context.group.member_of_instance(instance)
    return owner is not None and owner != context.event.member_id


def is_pending(context: EventContext) -> bool:
    """The id was handed out, and its owner has not joined yet."""
    return context.event.member_id in context.group.pending


def is_not_a_member(context: EventContext) -> bool:
    """The id is no member's."""
    return context.event.member_id not in context.group.members


def is_leader(context: EventContext) -> bool:
    """The id is the leader's."""
    return bool(context.event.member_id == context.group.leader)


def is_anonymous(context: EventContext) -> bool:
    """No generation, member id or instance id was sent."""
    return context.event.generation_id < 0 and has_no_id(context) and not has_instance(context)


def has_no_generation(context: EventContext) -> bool:
    """No generation was sent."""
    return bool(context.event.generation_id < 0)


def generation_differs(context: EventContext) -> bool:
    """The generation is not the group's."""
    return bool(context.event.generation_id != context.group.generation_id)


# Joining


def is_over_size(context: EventContext) -> bool:
    """There is no room for this member (``group.max.size``).

    While joins are parked, those count: the last ones to join again have to go.
    """
    group = context.group
    member = group.members.get(context.event.member_id)
    if group.state is PREPARING:
        is_in, size = member is not None and member.parked_join is not None, group.parked_joins
    else:
        is_in, size = member is not None, len(group.members)
    return not is_in and size >= context.settings.group_max_size


def has_too_many_members(context: EventContext) -> bool:
    """There are more members than ``group.max.size``."""
    return len(context.group.members) > context.settings.group_max_size


def shares_no_protocol(context: EventContext) -> bool:
    """The protocol type is not the group's, or no protocol is known to all members."""
    return not context.group.supports(context.event.protocol_type, context.event.protocols)


def needs_an_id_first(context: EventContext) -> bool:
    """This version of the request can be asked to come again with the id it is given."""
    return bool(context.event.version >= _FIRST_WITH_MEMBER_ID_REQUIRED)


def changes_nothing(context: EventContext) -> bool:
    """The member joins with the protocols that it has, in the same order."""
    return bool(context.group.members[context.event.member_id].protocols == context.event.protocols)


def keeps_the_protocol(context: EventContext) -> bool:
    """With what the known instance sends now, the vote would end as it did."""
    group, request = context.group, context.event
    member = group.instance(request.group_instance_id)
    elected = group.protocol_if(member, request.protocols)
    return elected == (group.protocol_name or "")


# Syncing


def protocol_differs(context: EventContext) -> bool:
    """A protocol type or name was sent that is not the group's."""
    return _differs(context.event.protocol_type, context.group.protocol_type) or _differs(
        context.event.protocol_name, context.group.protocol_name
    )


def _differs(sent: str | None, known: str | None) -> bool:
    return sent is not None and known is not None and sent != known


# Timers


def may_wait_longer(context: EventContext) -> bool:
    """The initial wait brought new members, and there is time left for more."""
    wait = context.group.initial_wait
    return context.group.new_member_added and wait.remaining > 0


def has_satisfied_heartbeat(context: EventContext) -> bool:
    """The member waits for the group, so the end of its session does not count."""
    return context.group.members[context.event.member_id].has_satisfied_heartbeat


# A join that completes


def has_no_members(context: EventContext) -> bool:
    """The group has no members."""
    return not context.group.members


def no_member_has_joined(context: EventContext) -> bool:
    """No member has a parked join; static members may have stayed all the same."""
    return context.group.parked_joins == 0


# The log


def append_fails(context: EventContext) -> bool:
    """The group's record cannot be written."""
    return context.write_faults.fails


# Offsets and administration


def is_no_consumer_group(context: EventContext) -> bool:
    """Members do not use the consumer protocol, so what they subscribe to is unknown."""
    return not context.group.is_of_consumers
