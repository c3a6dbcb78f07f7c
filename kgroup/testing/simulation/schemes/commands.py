"""What a coordinator of scheme 2 and a member say to each other, one message a chunk of bytes."""

from __future__ import annotations

import pickle
from typing import Final, TypeAlias, final

import attrs
import trio

from kgroup.broker.server import MEMORY_HOST
from kgroup.types import TopicPartition

PORT: Final = 9990
"""The port of the first broker's coordinator; the others have the next ones."""


@final
@attrs.frozen
class Hello:
    """A member has connected."""

    member_id: str


@final
@attrs.frozen
class StopReading:
    """Read nothing more, store the offsets, and answer."""

    number: int


@final
@attrs.frozen
class Stopped:
    """The answer to `StopReading`."""

    number: int


@final
@attrs.frozen
class Start:
    """Read these partitions."""

    partitions: tuple[TopicPartition, ...]


Command: TypeAlias = Hello | StopReading | Stopped | Start


def coordinator_address(number: int) -> tuple[str, int]:
    """The host and port of a broker's coordinator; the first broker has number 0."""
    return MEMORY_HOST, PORT + number


async def send(stream: trio.abc.Stream, command: Command) -> None:
    """Send a message.

    Raises:
        BrokenResourceError: the connection is lost.
        ClosedResourceError: the connection was closed.
    """
    await stream.send_all(pickle.dumps(command))


async def receive(stream: trio.abc.Stream) -> Command | None:
    """Receive a message; None at the end of the connection, however it ends."""
    try:
        data = await stream.receive_some()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return None
    if not data:
        return None
    command: Command = pickle.loads(data)  # noqa: S301 # made in this process by `send`
    return command
