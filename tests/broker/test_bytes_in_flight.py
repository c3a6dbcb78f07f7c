"""Bytes in flight and idle clients: the connection without progress the longest is cut."""

from __future__ import annotations

import trio
import trio.testing

from kgroup.broker.bytes_in_flight import BytesInFlight
from kgroup.broker.idle_connections import IdleClients


class Client:
    """A client that records whether it was cut."""

    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        """Record the cut."""
        self.is_cut = True


def test_the_one_that_moved_last_stays() -> None:
    """Beyond the limit, the clients idle the longest are cut, and their bytes are released."""
    bytes_in_flight, first, second, third = BytesInFlight(10), Client(), Client(), Client()
    bytes_in_flight.hold(first, 4)
    bytes_in_flight.hold(second, 4)
    bytes_in_flight.hold(first, 5)
    bytes_in_flight.hold(third, 4)
    assert (first.is_cut, second.is_cut, third.is_cut) == (False, True, False)
    assert bytes_in_flight.total == 9
    bytes_in_flight.release(first)
    bytes_in_flight.release(third)
    assert bytes_in_flight.total == 0


def test_one_alone_can_be_too_much() -> None:
    """If one client alone exceeds the limit, it is cut."""
    bytes_in_flight, client = BytesInFlight(10), Client()
    bytes_in_flight.hold(client, 11)
    assert client.is_cut
    assert bytes_in_flight.total == 0


async def test_the_idle_are_cut(autojump_clock: trio.testing.MockClock) -> None:
    """Idle clients are cut at their time, one after the other; removed ones are not."""
    del autojump_clock
    idle_clients, clients = IdleClients(10.0), [Client() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(idle_clients.alarm.run)
        for client in clients:
            idle_clients.touch(client)
            await trio.sleep(1)
        idle_clients.forget(clients[1])
        assert idle_clients.longest() is clients[0]
        await trio.sleep(7.5)
        assert [client.is_cut for client in clients] == [True, False, False]
        await trio.sleep(2)
        assert [client.is_cut for client in clients] == [True, False, True]
        nursery.cancel_scope.cancel()
