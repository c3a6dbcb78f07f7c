"""What can go wrong in a simulation, as values: what happens, to whom, when, for how long.

A schedule of faults is drawn from the seed before anything runs, so that a part of it can be run
again with all else as it was. Times are virtual seconds since the beginning.
"""

from __future__ import annotations

from typing import final

import attrs

EVERYBODY = "*"
"""Stands for every broker, or every member, in a fault of the network."""


@final
@attrs.frozen(kw_only=True)
class Moment:
    """A state of the group in which a fault is to strike; see ``states`` for the names.

    Attributes:
        member: the state of the member that the fault is about, or of any member.
        coordinator: the state of the group at its coordinator.
    """

    member: str
    coordinator: str

    def __str__(self) -> str:
        return f"when a member is {self.member} and the coordinator is {self.coordinator}"


@attrs.frozen(kw_only=True)
class Fault:
    """The root of all faults.

    Attributes:
        at: when it happens; with ``when``, from when on the moment is waited for.
        when: the state of the group that it waits for. If that never comes in time, the fault
            does not happen.
    """

    at: float
    when: Moment | None = None

    def words(self) -> str:
        """What happens, in words."""
        raise NotImplementedError

    def __str__(self) -> str:
        moment = "" if self.when is None else f", {self.when}"
        return f"{self.at:8.2f} s  {self.words()}{moment}"


@attrs.frozen(kw_only=True)
class LastingFault(Fault):
    """A fault that is over after so many seconds."""

    seconds: float


# Members.


@final
@attrs.frozen(kw_only=True)
class Freeze(LastingFault):
    """A member stands still and goes on afterwards, as if nothing had been."""

    process: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.process} is frozen for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Crash(LastingFault):
    """A member is gone without a word, and is started again."""

    process: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.process} crashes, and starts again after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Stop(LastingFault):
    """A member is asked to end, and is started again (a rolling restart)."""

    process: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.process} is stopped, and starts again after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Twin(LastingFault):
    """A second program with the same instance id runs for a while beside a static member."""

    process: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.process} has a twin for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class SlowWork(LastingFault):
    """A member takes so many times as long for each record."""

    process: str
    times: float

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.process} works {self.times:.0f} times slower for {self.seconds:.2f} s"


# The network.


@final
@attrs.frozen(kw_only=True)
class Split(LastingFault):
    """Nothing passes between a member and a broker (or all)."""

    process: str
    broker: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"no byte passes between {self.process} and {self.broker} for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class Stall(LastingFault):
    """Half of the connections that a member has to a broker (or all) stand still, others do not.

    What was sent in one of them arrives late, when its sender has long gone on in another.
    """

    process: str
    broker: str

    def words(self) -> str:
        """See ``Fault``."""
        return (
            f"half of the connections between {self.process} and {self.broker} stand still"
            f" for {self.seconds:.2f} s"
        )


@final
@attrs.frozen(kw_only=True)
class Cut(Fault):
    """The connections between a member and a broker (or all) are reset."""

    process: str
    broker: str

    def words(self) -> str:
        """See ``Fault``."""
        return f"the connections between {self.process} and {self.broker} are cut"


@final
@attrs.frozen(kw_only=True)
class SlowNetwork(LastingFault):
    """Bytes between a member and a broker (or all) are under way for up to so much longer."""

    process: str
    broker: str
    delay: float

    def words(self) -> str:
        """See ``Fault``."""
        return (
            f"bytes between {self.process} and {self.broker} take up to {self.delay:.2f} s more"
            f" for {self.seconds:.2f} s"
        )


# Brokers.


@final
@attrs.frozen(kw_only=True)
class BrokerStops(LastingFault):
    """A broker is shut down, and started again; what it led moves.

    Attributes:
        broker: which.
        loading: seconds for which the coordinators that move are loaded.
    """

    broker: str
    loading: float = 0.0

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is stopped for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class BrokerDies(LastingFault):
    """A broker is killed, and started again; who waits there is never answered.

    Attributes:
        broker: which.
        loading: seconds for which the coordinators that move are loaded.
    """

    broker: str
    loading: float = 0.0

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is killed, and back after {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class SlowBroker(LastingFault):
    """A broker serves every request late."""

    broker: str
    delay: float

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.broker} is {self.delay:.2f} s slow for {self.seconds:.2f} s"


@final
@attrs.frozen(kw_only=True)
class CoordinatorMoves(Fault):
    """The group's coordinator moves to the next broker.

    Attributes:
        away: seconds in which nobody coordinates it.
        loading: seconds after that in which it is loaded.
    """

    away: float
    loading: float

    def words(self) -> str:
        """See ``Fault``."""
        return (
            f"the coordinator moves: away for {self.away:.2f} s, loading for {self.loading:.2f} s"
        )


@final
@attrs.frozen(kw_only=True)
class LeaderMoves(Fault):
    """A partition gets another leader."""

    topic: str
    partition: int

    def words(self) -> str:
        """See ``Fault``."""
        return f"the leader of {self.topic}-{self.partition} moves"


# Topics.


@final
@attrs.frozen(kw_only=True)
class MorePartitions(Fault):
    """A topic gets more partitions."""

    topic: str
    by: int

    def words(self) -> str:
        """See ``Fault``."""
        return f"{self.topic} gets {self.by} partitions more"


@final
@attrs.frozen(kw_only=True)
class TopicDeleted(LastingFault):
    """A topic is deleted with all of its records, and created again.

    Attributes:
        topic: which.
        partitions: how many it has when it is created again.
    """

    topic: str
    partitions: int

    def words(self) -> str:
        """See ``Fault``."""
        return (
            f"{self.topic} is deleted, and created again with {self.partitions} partitions"
            f" after {self.seconds:.2f} s"
        )
