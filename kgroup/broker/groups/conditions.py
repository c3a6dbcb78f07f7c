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


def has_no_id(turn: EventContext) -> bool:
    """No member id was sent."""
    return not turn.event.member_id


def has_instance(turn: EventContext) -> bool:
    """An instance id was sent."""
    return turn.event.group_instance_id is not None


def instance_is_known(turn: EventContext) -> bool:
    """The instance id is a member's."""
    instance = turn.event.group_instance_id
    return instance is not None and turn.group.member_of_instance(instance) is not None


def instance_is_unknown(turn: EventContext) -> bool:
    """An instance id was sent, and is no member's."""
    return has_instance(turn) and not instance_is_known(turn)


def instance_is_anothers(turn: EventContext) -> bool:
    """The instance id is that of a member with another id than the one sent."""
    instance = turn.event.group_instance_id
    owner = None if instance is None else turn.group.member_of_instance(instance)
    return owner is not None and owner != turn.event.member_id


def is_pending(turn: EventContext) -> bool:
    """The id was handed out, and its owner has not joined yet."""
    return turn.event.member_id in turn.group.pending


def is_no_member(turn: EventContext) -> bool:
    """The id is no member's."""
    return turn.event.member_id not in turn.group.members


def is_leader(turn: EventContext) -> bool:
    """The id is the leader's."""
    return bool(turn.event.member_id == turn.group.leader)


def is_anonymous(turn: EventContext) -> bool:
    """No generation, member id or instance id was sent."""
    return turn.event.generation_id < 0 and has_no_id(turn) and not has_instance(turn)


def has_no_generation(turn: EventContext) -> bool:
    """No generation was sent."""
    return bool(turn.event.generation_id < 0)


def generation_differs(turn: EventContext) -> bool:
    """The generation is not the group's."""
    return bool(turn.event.generation_id != turn.group.generation_id)


# Joining


def is_over_size(turn: EventContext) -> bool:
    """There is no room for this member (``group.max.size``).

    While joins are parked, those count: the last ones to join again have to go.
    """
    group = turn.group
    member = group.members.get(turn.event.member_id)
    if group.state is PREPARING:
        is_in, size = member is not None and member.parked_join is not None, group.joined
    else:
        is_in, size = member is not None, len(group.members)
    return not is_in and size >= turn.settings.group_max_size


def has_too_many(turn: EventContext) -> bool:
    """There are more members than ``group.max.size``."""
    return len(turn.group.members) > turn.settings.group_max_size


def shares_no_protocol(turn: EventContext) -> bool:
    """The protocol type is not the group's, or no protocol is known to all members."""
    return not turn.group.supports(turn.event.protocol_type, turn.event.protocols)


def needs_an_id_first(turn: EventContext) -> bool:
    """This version of the request can be asked to come again with the id it is given."""
    return bool(turn.event.version >= _FIRST_WITH_MEMBER_ID_REQUIRED)


def changes_nothing(turn: EventContext) -> bool:
    """The member joins with the protocols that it has, in the same order."""
    return bool(turn.group.members[turn.event.member_id].protocols == turn.event.protocols)


def keeps_the_protocol(turn: EventContext) -> bool:
    """With what the known instance sends now, the vote would end as it did."""
    group, request = turn.group, turn.event
    member = group.instance(request.group_instance_id)
    elected = group.protocol_if(member, request.protocols)
    return elected == (group.protocol_name or "")


# Syncing


def protocol_differs(turn: EventContext) -> bool:
    """A protocol type or name was sent that is not the group's."""
    return _differs(turn.event.protocol_type, turn.group.protocol_type) or _differs(
        turn.event.protocol_name, turn.group.protocol_name
    )


def _differs(sent: str | None, known: str | None) -> bool:
    return sent is not None and known is not None and sent != known


# Timers


def may_wait_longer(turn: EventContext) -> bool:
    """The initial wait brought new members, and there is time left for more."""
    wait = turn.group.initial_wait
    return turn.group.newcomers and wait.remaining > 0


def is_spared(turn: EventContext) -> bool:
    """The member waits for the group, so the end of its session does not count."""
    return turn.group.members[turn.event.member_id].is_spared


# A join that completes


def has_no_members(turn: EventContext) -> bool:
    """The group has no members."""
    return not turn.group.members


def nobody_has_joined(turn: EventContext) -> bool:
    """No member has a parked join; static members may have stayed all the same."""
    return turn.group.joined == 0


# The log


def append_fails(turn: EventContext) -> bool:
    """The group's record cannot be written."""
    return turn.journal.fails


# Offsets and administration


def speaks_another_protocol(turn: EventContext) -> bool:
    """Members do not use the consumer protocol, so what they subscribe to is unknown."""
    return not turn.group.is_of_consumers
