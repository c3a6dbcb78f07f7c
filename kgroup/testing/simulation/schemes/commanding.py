"""Scheme 2's coordinator: one of the brokers, elected through ZooKeeper, assigns and commands.

Every broker tries to create one ephemeral znode; the one that succeeds coordinates. It watches the
registrations and the numbers of partitions. At a change it commands every member to stop, waits for
their answers, cuts ranges, and sends each member its partitions. A member that does not answer in
time is left out; the coordinator cannot know whether it still reads.

A coordinator that is cut off from ZooKeeper does not know that another has been elected, until it
hears that its session has expired.

Source: as in ``commanded``.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Final, final

import attrs
import trio

from kgroup.notifier import Notifier
from kgroup.testing.simulation import history
from kgroup.testing.simulation.network import Network, SimulatedStream
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.schemes.commands import (
    Command,
    Hello,
    Start,
    Stopped,
    StopReading,
    coordinator_address,
    receive,
    send,
)
from kgroup.testing.simulation.schemes.member import COORDINATOR, IDS, TOPICS, cut_ranges
from kgroup.testing.simulation.zookeeper.client import ZooKeeperClient, ZooKeeperRefusedError
from kgroup.testing.simulation.zookeeper.servers import address_of

SESSION_TIMEOUT: Final = 6.0
"""Kafka 0.8's ``zookeeper.session.timeout.ms``, in seconds, for the brokers."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds that a coordinator waits for members to connect, and to answer."""


@final
@attrs.define(eq=False)
class _Link:
    """A connection from a member.

    Attributes:
        stopped: the number of the last `StopReading` that it answered.
        known: whether a rebalance has begun since it connected.
        lost: whether the connection has ended.
    """

    process: str
    member_id: str
    stream: SimulatedStream
    stopped: int = -1
    known: bool = False
    lost: bool = False


@final
class BrokerCoordinator:
    """The coordinator of one broker, whether or not it is the elected one.

    Args:
        number: which broker, from 0.
        name: the broker's name on the network.
        servers: how many ZooKeeper servers there are.
        network: the network.
        recorder: records commands and answers.
        random: every random choice.
        topics: what the group reads.
    """

    def __init__(
        self,
        number: int,
        name: str,
        servers: int,
        network: Network,
        recorder: Recorder,
        random: Random,
        topics: tuple[str, ...],
    ) -> None:
        self.name: Final = name
        self.leads = False
        """Whether it believes that it is the elected one."""
        self._number = number
        self._network = network
        self._recorder = recorder
        self._random = random
        self._topics = topics
        self._addresses = [address_of(one) for one in range(servers)]
        self._nursery: trio.Nursery | None = None
        self._zookeeper: ZooKeeperClient | None = None
        self._links: dict[str, _Link] = {}
        self._changed = Notifier()
        self._due = False
        self._fired: dict[str, None] = {}
        self._starts = 0
        self._commands = 0
        network.listen(*coordinator_address(number), name, self._accept)

    @property
    def session(self) -> int:
        """Its session; 0 for none."""
        return 0 if self._zookeeper is None else self._zookeeper.session

    async def run(self) -> None:
        """Be a candidate, and coordinate when elected, until stopped."""
        self._starts += 1
        plug = self._network.plug_in(self.name)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._zookeeper = zookeeper = ZooKeeperClient(
                    plug.open_stream,
                    self._addresses,
                    SESSION_TIMEOUT,
                    self._random,
                    self._watch_fired,
                    self._deposed,
                )
                nursery.start_soon(zookeeper.run)
                while True:
                    await self._stand(zookeeper)
                    await self._lead(zookeeper)
        finally:
            self._nursery = self._zookeeper = None
            self._resign()
            self._network.cut_all(self.name)

    def stop(self) -> None:
        """The broker stops."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # The election.

    async def _stand(self, zookeeper: ZooKeeperClient) -> None:
        """Wait to be elected."""
        own = f"{self._number} {self._starts}"
        while True:
            try:
                await zookeeper.create(COORDINATOR, own, ephemeral=True)
            except ZooKeeperRefusedError:
                found = await zookeeper.get(COORDINATOR, watch=True)
                if found is not None and found != own:
                    while COORDINATOR not in self._fired:
                        await self._changed.wait()
                    del self._fired[COORDINATOR]
                if found != own:
                    continue
            self.leads = self._due = True
            return

    def _deposed(self) -> None:
        """Its session has expired: another may have been elected."""
        self._resign()
        self._fired[COORDINATOR] = None  # the watch was lost with the session
        self._changed.notify()

    def _resign(self) -> None:
        self.leads = False
        for link in self._links.values():
            link.stream.close_now()
        self._links.clear()
        self._changed.notify()

    def _watch_fired(self, path: str) -> None:
        self._fired[path] = None
        self._due = self._due or path != COORDINATOR
        self._changed.notify()

    # The coordinator.

    async def _lead(self, zookeeper: ZooKeeperClient) -> None:
        while self.leads:
            if self._due or not all(link.known for link in self._links.values()):
                self._due = False
                await self._rebalance(zookeeper)
            else:
                await self._changed.wait()

    async def _rebalance(self, zookeeper: ZooKeeperClient) -> None:
        members = await zookeeper.children(IDS, watch=True)
        await zookeeper.get_many([f"{IDS}/{one}" for one in members])
        partitions = {
            topic: int(await zookeeper.get(f"{TOPICS}/{topic}", watch=True) or 0)
            for topic in self._topics
        }
        with trio.move_on_after(ANSWER_TIMEOUT):
            while self.leads and not self._links.keys() >= set(members):
                await self._changed.wait()
        for link in self._links.values():
            link.known = True
        commanded = [self._links[one] for one in members if one in self._links]
        self._commands += 1
        number = self._commands
        for link in commanded:
            await self._command(link, StopReading(number))
        with trio.move_on_after(ANSWER_TIMEOUT):
            while self.leads and any(link.stopped < number and not link.lost for link in commanded):
                await self._changed.wait()
        answered = {link.member_id: link for link in commanded if link.stopped == number}
        if not self.leads or not answered:
            return
        for member_id, share in cut_ranges(list(answered), partitions).items():
            await self._command(answered[member_id], Start(tuple(share)))

    async def _command(self, link: _Link, command: Command) -> None:
        self._record(link.process, "notification", type(command).__name__.lower())
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await send(link.stream, command)

    def _record(self, process: str, what: str, about: str) -> None:
        self._recorder.record(
            history.CoordinationMessages, process=process, what=what, count=1, about=about
        )

    # Members.

    def _accept(self, stream: SimulatedStream, process: str) -> None:
        if self._nursery is None or not self.leads:
            raise ConnectionRefusedError(f"{self.name} does not coordinate the group")
        self._nursery.start_soon(self._serve, stream, process)

    async def _serve(self, stream: SimulatedStream, process: str) -> None:
        try:
            hello = await receive(stream)
            if isinstance(hello, Hello):
                await self._listen(_Link(process, hello.member_id, stream))
        finally:
            stream.close_now()

    async def _listen(self, link: _Link) -> None:
        """Take in a member's answers, until its connection ends."""
        self._links[link.member_id] = link
        self._changed.notify()
        while (answer := await receive(link.stream)) is not None:
            if isinstance(answer, Stopped):
                self._record(link.process, "answer", "stopped")
                link.stopped = answer.number
                # An answer that comes too late is of a member that was left out.
                self._due = self._due or answer.number < self._commands
                self._changed.notify()
        link.lost = True
        if self._links.get(link.member_id) is link:
            del self._links[link.member_id]
        self._changed.notify()
