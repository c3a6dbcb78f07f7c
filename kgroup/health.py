"""Whether a member is well: a judgement of its status, for the probes of an orchestrator.

*Live* means that a restart would not help: the event loop makes progress, and no error has closed
the group. *Ready* means that the member does its part of the group's work: it has a generation,
which the coordinator confirms, and its handlers finish their batches. A member that has no
partitions, because there are more members than partitions, is ready.

What kgroup recovers from by itself makes a member not ready, and never not live: brokers that are
away, a rebalance that hangs, a lease that is over. The same holds for a handler that is slow or
hangs: only the program knows whether it may be killed, and ``GroupConfig.max_processing_time`` is
there for it. But one that still runs long after its generation has ended keeps the member out of
the group, and nothing can end it but a restart. A rebalance that takes its normal time changes
nothing, because otherwise every roll-out would make all members of the group not ready at once.

`judge` decides without I/O, by the tables below, which are read from the top to the bottom.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, final

import attrs

from kgroup import arguments
from kgroup.config import GroupConfig
from kgroup.status import GroupStatus, Phase

BLOCKED_AFTER: Final = 10.0
"""Seconds after which a blocked event loop is not live, by default."""
STUCK_AFTER: Final = 300.0
"""Seconds after which a handler's batch is reported, by default: Kafka's own limit for the time
between two polls (``max.poll.interval.ms``)."""


@final
@attrs.frozen(kw_only=True)
class Health:
    """The health of a member.

    Attributes:
        live: False if only a restart of the program helps.
        ready: whether the member does its part of the group's work; never without ``live``.
        reasons: why it is not live or not ready, each as a sentence; empty if it is ready.
        status: what was judged.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...]
    status: GroupStatus

    def as_dict(self) -> dict[str, Any]:
        """The health as values of JSON."""
        return {
            "live": self.live,
            "ready": self.ready,
            "reasons": list(self.reasons),
            "status": self.status.as_dict(),
        }


@final
@attrs.frozen(kw_only=True)
class HealthLimits:
    """The bounds of a judgement, in seconds.

    Attributes:
        blocked: an event loop that has not run for longer is not live.
        hanging: a member that has been without a generation for longer is not ready.
        unconfirmed: nor is one of which no heartbeat has been confirmed for longer.
        stuck: nor is one with a handler that has had its batch for longer. If it runs on for longer
            than this, if it is not infinite, and than ``hanging`` after its generation, the member
            is not live.
    """

    blocked: float
    hanging: float
    unconfirmed: float
    stuck: float


def limits_of(
    config: GroupConfig,
    *,
    blocked_after: float | None,
    hanging_after: float | None,
    unconfirmed_after: float | None,
    stuck_after: float | None,
) -> HealthLimits:
    """The limits for the arguments of `ConsumerGroup.health`, which says what they mean.

    Raises:
        ArgumentError: an argument is not a number of seconds.
    """

    def given(name: str, value: float | None, otherwise: float) -> float:
        seconds = arguments.seconds(name, value)
        return otherwise if seconds is None else seconds

    # A heartbeat comes up to one and a half intervals after the last one (`kgroup.client.beat`).
    unconfirmed = max(config.session_timeout / 3, 2 * config.heartbeat_interval)
    return HealthLimits(
        blocked=given("blocked_after", blocked_after, math.inf),
        hanging=given("hanging_after", hanging_after, config.rebalance_timeout),
        unconfirmed=given("unconfirmed_after", unconfirmed_after, unconfirmed),
        stuck=given("stuck_after", stuck_after, math.inf),
    )


Check = Callable[[GroupStatus, HealthLimits], str | None]
"""Returns what is wrong, or None."""


def judge(status: GroupStatus, limits: HealthLimits) -> Health:
    """Judge a status."""
    dead = [reason for check in NOT_LIVE if (reason := check(status, limits))]
    unready = [reason for check in NOT_READY if (reason := check(status, limits))]
    reasons = (*dead, *unready)
    return Health(live=not dead, ready=not reasons, reasons=reasons, status=status)


def _blocked(status: GroupStatus, limits: HealthLimits) -> str | None:
    if status.loop_blocked <= limits.blocked:
        return None
    return f"the event loop has not run for {status.loop_blocked:.1f} s; something blocks it"


def _failed(status: GroupStatus, _: HealthLimits) -> str | None:
    return f"an error closed the group: {status.detail}" if status.phase is Phase.FAILED else None


def _forked(status: GroupStatus, _: HealthLimits) -> str | None:
    return (
        f"the group is not in this process: {status.detail}"
        if status.phase is Phase.FORKED
        else None
    )


def _outlasted(status: GroupStatus, limits: HealthLimits) -> str | None:
    # Where no time is too long for a batch, it is still too long for one that cannot be committed.
    stuck = 0.0 if limits.stuck == math.inf else limits.stuck
    longest = max(limits.hanging, stuck)
    if status.phase is not Phase.DRAINING or status.without_generation <= longest:
        return None
    return (
        f"functions still run {status.without_generation:.1f} s after their generation began to"
        f" end, and the member joins no other one before they return{_because(status)}"
    )


def _away(status: GroupStatus, _: HealthLimits) -> str | None:
    if status.phase not in (Phase.NOT_ENTERED, Phase.CLOSING, Phase.CLOSED):
        return None
    return f"the group is {status.phase.value}{_because(status)}"


def _first(status: GroupStatus, _: HealthLimits) -> str | None:
    if status.was_assigned or status.phase not in _BETWEEN:
        return None
    return (
        f"the member has had no generation yet: {_BETWEEN[status.phase]}, for"
        f" {status.without_generation:.1f} s{_because(status)}"
    )


def _hanging(status: GroupStatus, limits: HealthLimits) -> str | None:
    unseen = not status.was_assigned or status.phase not in _BETWEEN
    if unseen or status.without_generation <= limits.hanging:
        return None
    return (
        f"the member has had no generation for {status.without_generation:.1f} s:"
        f" {_BETWEEN[status.phase]}{_because(status)}"
    )


def _lease_over(status: GroupStatus, _: HealthLimits) -> str | None:
    if status.phase is not Phase.RUNNING or status.lease > 0:
        return None
    return (
        "the lease is over: no heartbeat has been confirmed for"
        f" {status.heartbeat_age:.1f} s, so that no record is handed out and nothing is committed"
        f"{_because(status)}"
    )


def _unconfirmed(status: GroupStatus, limits: HealthLimits) -> str | None:
    quiet = status.phase is not Phase.RUNNING or status.lease <= 0
    if quiet or status.heartbeat_age <= limits.unconfirmed:
        return None
    return (
        f"the coordinator has confirmed no heartbeat for {status.heartbeat_age:.1f} s"
        f"{_because(status)}"
    )


def _stuck(status: GroupStatus, limits: HealthLimits) -> str | None:
    if status.batch_age <= limits.stuck:
        return None
    return f"a handler has had its batch for {status.batch_age:.1f} s; it is not interrupted"


def _because(status: GroupStatus) -> str:
    return f" ({status.detail})" if status.detail else ""


_BETWEEN: Final = {
    Phase.IDLE: "the program does not wait in next()",
    Phase.JOINING: "it is joining the group",
    Phase.STARTING: "it has joined, and waits for its assignment and its start offsets",
    Phase.DRAINING: "the work of its last one has not ended",
}
"""What a member without a running generation waits for."""
NOT_LIVE: Final[tuple[Check, ...]] = (_blocked, _failed, _forked, _outlasted)
NOT_READY: Final[tuple[Check, ...]] = (
    _away,
    _first,
    _hanging,
    _lease_over,
    _unconfirmed,
    _stuck,
)
