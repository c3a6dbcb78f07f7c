"""Scheme 2's members: they register, and follow the coordinator's commands.

A member keeps a connection to the broker that ZooKeeper names as coordinator. It follows every
command on that connection: commands carry nothing that distinguishes a former coordinator from the
present one. A member without a coordinator goes on reading what it has.

Source: Kafka's wiki, "Central Consumer Coordination" and "Kafka Detailed Consumer Coordinator
Design" (KAFKA-167, KAFKA-364), which was never released in this form.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, final

import trio

from kgroup.testing.simulation.process import Process
from kgroup.testing.simulation.schemes.commands import (
    Hello,
    Start,
    Stopped,
    StopReading,
    coordinator_address,
    receive,
    send,
)
from kgroup.testing.simulation.schemes.member import COORDINATOR, RegisteredMember

_RECONNECT: Final = 0.5
"""Seconds until a member tries to find the coordinator again."""


async def commanded_member(process: Process) -> None:
    """The program of a member of scheme 2."""
    async with trio.open_nursery() as nursery, trio.open_nursery() as background:
        await CommandedMember(process, nursery, background).serve()


@final
class CommandedMember(RegisteredMember):
    """A member of scheme 2."""

    def __init__(self, process: Process, nursery: trio.Nursery, background: trio.Nursery) -> None:
        super().__init__(process, nursery, background)
        self._obeying: trio.CancelScope | None = None

    def watch_fired(self, path: str) -> None:
        """See ``RegisteredMember``: the coordinator has changed, so the connection is given up."""
        del path
        self._let_go()

    async def session_replaced(self) -> None:
        """See ``RegisteredMember``: the coordinator sees the new registration."""
        await self.register()
        self._let_go()  # the watch was lost with the session

    def close(self) -> None:
        """See ``RegisteredMember``."""
        super().close()
        self._let_go()

    async def run(self) -> None:
        """See ``RegisteredMember``."""
        while not self.closing:
            with trio.CancelScope() as self._obeying:
                await self._find_and_obey()
            self._obeying = None

    def _let_go(self) -> None:
        if self._obeying is not None:
            self._obeying.cancel()

    async def _find_and_obey(self) -> None:
        found = await self.zookeeper.get(COORDINATOR, watch=True)
        while found is None:
            await trio.sleep_forever()  # until the watch fires, which cancels this
        number = int(found.split()[0])
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            stream = await self.process.open_stream(*coordinator_address(number))
            try:
                await self._obey(stream)
            finally:
                await trio.aclose_forcefully(stream)
        await trio.sleep(_RECONNECT)

    async def _obey(self, stream: trio.abc.Stream) -> None:
        """Do what comes, until the connection ends."""
        await send(stream, Hello(self.member_id))
        while (command := await receive(stream)) is not None:
            match command:
                case StopReading(number):
                    self.streams.stop()
                    await self.store_offsets()
                    self.streams.give_up()
                    await send(stream, Stopped(number))
                case Start(partitions):
                    self.streams.start(await self.fetch_offsets(partitions))
                case _:
                    pass
