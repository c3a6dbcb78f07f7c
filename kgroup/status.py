"""What a member is doing now: the facts that health checks and metrics read, from any thread.

`StatusRecorder` notes a few times from the events of a group. `GroupStatus` is the value that
``ConsumerGroup.status`` makes of them, and ``kgroup.health`` judges it. Nothing here waits or takes
a lock: each attribute has one writer, the event loop, and a reader gets the value before or after a
change.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.events import (
    CoordinatorFound,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    Joining,
    Left,
    LoginDelayed,
    RequestFailed,
)
from kgroup.types import Cause, TopicPartition


@final
class Phase(enum.Enum):
    """What a member is doing."""

    NOT_ENTERED = "not entered"
    IDLE = "idle"
    """The program does not wait in ``next()``, and holds no generation."""
    UNSUBSCRIBED = "unsubscribed"
    """The program has unsubscribed, and the member has left the group or is about to."""
    JOINING = "joining"
    """From the call of ``next()`` to the response to JoinGroup."""
    STARTING = "starting"
    """From that response to the hand-over of the generation: assignment and start offsets."""
    RUNNING = "running"
    DRAINING = "draining"
    """The generation has ended, and its work has not."""
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"
    """An error closed the group."""
    FORKED = "forked"
    """This process is a fork of the one in which the group is, and cannot see what it does."""


ENDED: Final = frozenset({Phase.CLOSED, Phase.FAILED, Phase.FORKED})
"""The phases in which this process has no generation any more."""


@final
@attrs.frozen(kw_only=True)
class GroupStatus:
    """What a member is doing now; durations are seconds.

    Attributes:
        group_id: the group.
        phase: what it is doing.
        detail: why it closes, is closed or failed; or the last failure since it last had a
            generation, such as brokers that do not answer, and while one runs, the last one since
            the membership was confirmed; or empty.
        without_generation: the time since the last generation began to end, or since the group was
            entered; 0 while a generation runs.
        was_assigned: whether the program has ever received a generation.
        cut_short: whether work of the last generation was still running when its drain ended; False
            again once the member begins to join the next one.
        lost: whether the last generation lost its partitions, so that nothing more could be
            committed; False again at the same time.
        leave_unconfirmed: whether the coordinator has not confirmed that the member has left, as it
            never does for a static member, which stays; False again at the same time.
        loop_blocked: the time since a call into the event loop was made that has not been run; 0 if
            there is none.
        generation_id: the coordinator's id of the generation, or -1.
        epoch: kgroup's number of the generation, or 0.
        age: the time since the program received the generation; 0 without one.
        lease: for how long no other member can own the partitions; 0 without a generation.
        heartbeat_age: the time since the last heartbeat that confirmed the membership was sent; 0
            without a generation.
        batch_age: the longest time for which a handler has had its batch.
        lag: for each partition, how far its reader is behind; None where it is not known. Empty
            once the drain is over or the partitions are lost, although functions may still run.
        buffered_records: the records that were fetched and not handed out.
        buffered_bytes: their bytes.
    """

    group_id: str
    phase: Phase
    detail: str = ""
    without_generation: float = 0.0
    was_assigned: bool = False
    cut_short: bool = False
    lost: bool = False
    leave_unconfirmed: bool = False
    loop_blocked: float = 0.0
    generation_id: int = -1
    epoch: int = 0
    age: float = 0.0
    lease: float = 0.0
    heartbeat_age: float = 0.0
    batch_age: float = 0.0
    lag: Mapping[TopicPartition, int | None] = attrs.field(factory=dict, hash=False)
    buffered_records: int = 0
    buffered_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The status as values of JSON; a partition is written as ``topic-number``."""
        fields = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        lag = {str(partition): behind for partition, behind in self.lag.items()}
        return {**fields, "phase": self.phase.value, "lag": lag}


_FAILURES: Final = (RequestFailed, LoginDelayed)
_ANSWERS: Final = (CoordinatorFound, Joined, GenerationStarted)


@final
class StatusRecorder:
    """Notes times from a group's events; an event handler.

    Args:
        now: the clock, in seconds.

    Attributes:
        failure: the last failure of a request that no answer has followed, or empty.
        failed_at: when that was.
        started_at: when the program received its last generation, or None.
        without_generation_since: since when there has been none, or None while one runs.
        joined: whether the last JoinGroup was answered.
        cut_short: whether work of the last generation was running when its drain ended.
        lost: whether the last generation lost its partitions.
        leave_unconfirmed: whether the coordinator has not confirmed that the member has left.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.failure = ""
        self.failed_at = -math.inf
        self.started_at: float | None = None
        self.without_generation_since: float | None = None
        self.joined = False
        self._given = False
        self.cut_short = False
        self.lost = False
        self.leave_unconfirmed = False

    def entered(self) -> None:
        """The program entered the group."""
        self.without_generation_since = self._now()

    def subscribed_again(self) -> None:
        """The program wants a generation again, from now on."""
        if self.without_generation_since is not None:
            self.without_generation_since = self._now()

    def joins(self) -> None:
        """Nothing of the last generation runs any more, and the member begins to join the next."""
        self._given = self.cut_short = self.lost = self.leave_unconfirmed = False

    def __call__(self, event: Event) -> None:
        """Take an event."""
        match event:
            case GenerationStarted():
                self.started_at = self._now()
                self._given = True
                self.without_generation_since = None
            case GenerationDraining() | GenerationEnded():
                if self.without_generation_since is None:
                    # A generation that was lost has no drain, and its work may have ended late.
                    passed = event.seconds if isinstance(event, GenerationEnded) else 0.0
                    self.without_generation_since = self._now() - passed
                    # What failed while it ran may be long over, and explains nothing from now on.
                    self.failure = ""
            case Joining() | Joined():
                self.joined = isinstance(event, Joined)
                if self.joined:
                    self.leave_unconfirmed = False  # it is a member again, by another id perhaps
            case Left():
                self.leave_unconfirmed = not event.notified
        # Before the hand-over only kgroup's own work can be cut short: there are no functions yet.
        if isinstance(event, GenerationEnded) and self._given:
            self.cut_short = event.cut_short
            self.lost = not event.end.can_commit and event.end.cause is not Cause.CANCELLED
        if isinstance(event, _FAILURES):
            request = f"{event.request}: " if isinstance(event, RequestFailed) else ""
            self.failed_at = self._now()
            self.failure = f"{request}{event.reason}"
        elif isinstance(event, _ANSWERS):
            self.failure = ""
