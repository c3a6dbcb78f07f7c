"""The faults of a simulation, as values: what happens, what it affects, when and for how long.

The whole schedule of faults is generated from the seed before anything runs, so that a part of it
can be run again with everything else unchanged. Times are virtual seconds since the beginning.
"""

from __future__ import annotations

from typing import final

import attrs

ALL = "*"
"""Stands for all brokers, or all members, in a network fault."""


@final
@attrs.frozen(kw_only=True)
class Moment:
    """The states in which a fault is injected; see ``states`` for their names.

    Attributes:
        member: the state of the member that the fault affects, or of any member.
        coordinator: the state of the group at its coordinator.
    """

    member: str
    coordinator: str

    def __str__(self) -> str:
        return f"when a member is {self.member} and the coordinator is {self.coordinator}"


@attrs.frozen(kw_only=True)
class Fault:
    """The base class of all faults.

    Attributes:
        at: when the fault is injected; with ``when``, the earliest time.
        when: the states that the fault waits for. If they do not come in time, the fault is not
            injected.
    """

    at: float
    when: Moment | None = None

    def message(self) -> str:
        """What happens, as text."""
        raise NotImplementedError

    def __str__(self) -> str:
        moment = "" if self.when is None else f", {self.when}"
        return f"{self.at:8.2f} s  {self.message()}{moment}"


@attrs.frozen(kw_only=True)
class LastingFault(Fault):
    """A fault that ends after ``seconds``."""

    seconds: float


# Members.


@final
@attrs.frozen(kw_only=True)
class Freeze(LastingFault):
    """A member is frozen and continues afterwards, as after SIGSTOP and SIGCONT.

    ``freezing`` has the mechanism.
    """

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} is frozen for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Crash(LastingFault):
    """A member is killed, as by SIGKILL, and started again."""

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} crashes, and starts again after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Stop(LastingFault):
    """A member is asked to end and started again, as in a rolling restart."""

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} is stopped, and starts again after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class SecondProgram(LastingFault):
    """A second program with the same instance id runs beside a static member."""

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} has a second program for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class SlowWork(LastingFault):
    """A member takes ``times`` as long for each record."""

    process: str
    times: float

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} works {self.times:.0f} times slower for {self.seconds:.2f} s"


# The network.


@final
@attrs.frozen(kw_only=True)
class Split(LastingFault):
    """No byte passes between a member and a broker, or all of them."""

    process: str
    broker: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"no byte passes between {self.process} and {self.broker} for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Stall(LastingFault):
    """Half of a member's connections to a broker, or to all, stall; the others do not.

    What was sent on a stalled connection arrives late, when its sender has long continued on
    another one.
    """

    process: str
    broker: str

    def message(self) -> str:
        """See ``Fault``."""
        return (
            f"half of the connections between {self.process} and {self.broker} are stalled"
            f" for {self.seconds:.2f} s"
        )


@final
@attrs.frozen(kw_only=True)
class Cut(Fault):
    """The connections between a member and a broker, or all of them, are reset."""

    process: str
    broker: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"the connections between {self.process} and {self.broker} are cut"


@final
@attrs.frozen(kw_only=True)
class SlowNetwork(LastingFault):
    """Bytes between a member and a broker, or all, take up to ``delay`` seconds longer."""

    process: str
    broker: str
    delay: float

    def message(self) -> str:
        """See ``Fault``."""
        return (
            f"bytes between {self.process} and {self.broker} take up to {self.delay:.2f} s more"
            f" for {self.seconds:.2f} s"
        )


# Brokers.


@final
@attrs.frozen(kw_only=True)
class BrokerStops(LastingFault):
    """A broker is shut down cleanly and started again; its leaders and coordinators move.

    Attributes:
        broker: the broker.
        loading: seconds that the moved coordinators take to load.
    """

    broker: str
    loading: float = 0.0

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is stopped for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class BrokerDies(LastingFault):
    """A broker is killed and started again; requests parked there are never answered.

    Attributes:
        broker: the broker.
        loading: seconds that the moved coordinators take to load.
    """

    broker: str
    loading: float = 0.0

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is killed, and back after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class SlowBroker(LastingFault):
    """A broker answers every request ``delay`` seconds late."""

    broker: str
    delay: float

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is {self.delay:.2f} s slow for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class CoordinatorMoves(Fault):
    """The group's coordinator moves to the next broker.

    Attributes:
        away: seconds without any coordinator.
        loading: seconds after that in which the new coordinator loads the group.
    """

    away: float
    loading: float

    def message(self) -> str:
        """See ``Fault``."""
        return (
            f"the coordinator moves: away for {self.away:.2f} s, loading for {self.loading:.2f} s"
        )


@final
@attrs.frozen(kw_only=True)
class LeaderMoves(Fault):
    """Another broker becomes the leader of a partition."""

    topic: str
    partition: int

    def message(self) -> str:
        """See ``Fault``."""
        return f"the leader of {self.topic}-{self.partition} moves"


# Logins. They have no effect in a plan without logins.


@final
@attrs.frozen(kw_only=True)
class SessionsEnd(Fault):
    """The brokers close all connections on which a member has logged in."""

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"the sessions of {self.process} end"


@final
@attrs.frozen(kw_only=True)
class UserRevoked(LastingFault):
    """The user of a member is removed, its sessions end, and no login succeeds."""

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"the user of {self.process} is removed for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class PasswordChanges(LastingFault):
    """The password of a member's user changes; the member learns of it when the fault ends.

    Until then its sessions continue, and logins fail.
    """

    process: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"the password of {self.process} changes, which it learns after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class RightRevoked(LastingFault):
    """The user of a member may not read the group, or the topics.

    Attributes:
        process: the member.
        resource_type: "group" or "topic"; without the right to read a topic, commits are refused.
    """

    process: str
    resource_type: str

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.process} may not read any {self.resource_type} for {self.seconds:.2f} s"


# Topics.


@final
@attrs.frozen(kw_only=True)
class MorePartitions(Fault):
    """A topic gets more partitions."""

    topic: str
    by: int

    def message(self) -> str:
        """See ``Fault``."""
        return f"{self.topic} gets {self.by} more partitions"


@final
@attrs.frozen(kw_only=True)
class TopicDeleted(LastingFault):
    """A topic is deleted with all of its records, and created again.

    Attributes:
        topic: the topic.
        partitions: its number of partitions when it is created again.
    """

    topic: str
    partitions: int

    def message(self) -> str:
        """See ``Fault``."""
        return (
            f"{self.topic} is deleted, and created again with {self.partitions} partitions"
            f" after {self.seconds:.2f} s"
        )
