"""A member of a classic group, as the coordinator keeps it.

Source: Kafka's ``ClassicGroupMember``.
"""

from __future__ import annotations

from typing import final

import attrs

from kgroup.broker.groups.requests import Protocol, Ticket


@final
@attrs.frozen
class Parked:
    """A request that waits for its response."""

    ticket: Ticket


@final
@attrs.define(eq=False, kw_only=True)
class ClassicGroupMember:
    """One member. Durations are float seconds.

    Attributes:
        protocols: by preference.
        assignment: its last assignment from the leader; empty for none.
        parked_join: its join, while it waits for the other members.
        parked_sync: its sync, while it waits for the leader's.
        is_new: whether it has not taken part in a completed join yet.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: float
    session_timeout: float
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    parked_join: Parked | None = None
    parked_sync: Parked | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether its session cannot expire, because a request of it is parked.

        A new member's session can: its client may be gone, and would never send a heartbeat.
        """
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Its metadata for a protocol that it knows."""
        return next(known.metadata for known in self.protocols if known.name == protocol_name)
