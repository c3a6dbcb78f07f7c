"""A whole group beside a broker whose responses are changed for a while."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final, final

import attrs
import trio

from kgroup.broker import EmbeddedBroker, in_memory
from kgroup.errors import FatalGroupError, KgroupError
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import TopicPartition
from kgroup.wire.codec import RequestFrame, decode_request, decode_response
from kgroup.wire.versions import SUPPORTED_REQUESTS
from tests.hostile.extremes import choose, message

SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
ATTACKED: Final = sorted(
    SUPPORTED_REQUESTS.keys() - {"sasl_handshake", "sasl_authenticate", "describe_groups"}
)
RECORDS: Final = 6
HOSTILE: Final = 30.0
"""Virtual seconds of hostility."""
AFTER: Final = 200.0
"""Virtual seconds within which everything is read when the hostility is over."""
MOST: Final = 30.0
"""The most requests in a virtual second, on average over the hostility."""
#: Fields whose false values the client cannot detect: positions, and bytes of other members.
BELIEVED: Final = {
    ("offset_fetch", "committed_offset"),
    ("list_offsets", "offset"),
    ("join_group", "metadata"),
    ("sync_group", "assignment"),
}


class Wire:
    """Opens streams to a broker, and changes the responses to one kind of request."""

    ends_groups: ClassVar[bool] = True
    """Whether what it does may end a group with an error."""

    def __init__(self, broker: EmbeddedBroker, api: str, random: Random, rate: float) -> None:
        self._broker = broker
        self._api = api
        self._random = random
        self._rate = rate
        self.hostile = False
        self.requests = 0
        self.changes: list[str] = []
        self.lied = False
        self.reused = ""
        """What happened to a connection that was used afterwards, and must not have been."""

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``; an address that no broker has is unknown."""
        try:
            stream = await self._broker.open_stream(host, port)
        except ValueError as error:
            raise OSError(str(error)) from error
        return self.connection(stream)

    def connection(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The client's end of a connection."""
        return _Connection(stream, self)

    def changed(self, frame: RequestFrame, answer: bytes) -> bytes:
        """The bytes that arrive in place of a response."""
        if not self.hostile or frame.api != self._api or self._random.random() > self._rate:
            return answer
        _, entity = decode_response(frame.api, frame.version, answer)
        change = choose(self._random, entity)
        self.changes.append(str(change))
        names = [part for part in change.path if isinstance(part, str)]
        self.lied |= bool(names) and (frame.api, names[-1]) in BELIEVED
        return message(entity, change, correlation_id=frame.correlation_id)


@final
class _Connection(trio.abc.Stream):
    """One connection that carries whole frames, one request at a time."""

    def __init__(self, inner: trio.abc.Stream, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire
        self._frame: RequestFrame | None = None
        self._received = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._frame = decode_request(bytes(data), 4)
        self._wire.requests += 1
        await self._inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._frame is None:
            return await self._inner.receive_some(max_bytes)
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(
            self._received[:4], "big"
        ):
            more = await self._inner.receive_some()
            if not more:
                return more
            self._received += bytes(more)
        answer = self._wire.changed(self._frame, self._received[4:])
        self._frame, self._received = None, b""
        return len(answer).to_bytes(4, "big") + answer

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@final
@attrs.define
class Seen:
    """The records that the programs of one case have read, and how the first program ended."""

    offsets: set[tuple[TopicPartition, int]] = attrs.field(factory=set)
    raised: BaseException | None = None
    over: trio.Event = attrs.field(factory=trio.Event)

    def batch_read(self, batch: Batch) -> None:
        """A batch was read; all of them may have been."""
        self.offsets.update((batch.partition, message.offset()) for message in batch.messages)
        if len(self.offsets) == 2 * RECORDS:
            self.over.set()


async def play_group(
    random: Random, kind: Callable[[EmbeddedBroker, str, Random, float], Wire] = Wire
) -> tuple[str, str | None]:
    """Play a group with one kind of request changed; return the case and what was wrong.

    Args:
        random: chooses the case.
        kind: makes what changes the responses.
    """
    api = random.choice(ATTACKED)
    rate = random.choice((0.2, 0.6, 1.0))
    async with in_memory(SETTINGS) as broker:
        await broker.create_topic("topic", 2)
        wire = kind(broker, api, random, rate)
        seen = Seen()
        case = f"{api} at {rate:g}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, broker, wire, seen, random.getrandbits(32))
            wire.hostile = True
            await trio.sleep(1)
            for partition in range(2):
                await broker.append("topic", partition, [b"x"] * RECORDS)
            await trio.sleep(HOSTILE)
            wire.hostile = False
            often = wire.requests / HOSTILE
            case = f"{case}: {'; '.join(wire.changes[:6])}"
            with trio.move_on_after(AFTER):
                await seen.over.wait()
            nursery.cancel_scope.cancel()
        if often > MOST:
            return case, f"{often:.0f} requests a second"
        if wire.reused:
            return case, f"a connection was used again after {wire.reused}"
        if seen.raised is not None and not isinstance(seen.raised, KgroupError):
            return case, f"{type(seen.raised).__name__}: {seen.raised}"
        if seen.raised is not None and not wire.ends_groups:
            return case, f"the group ended: {seen.raised!r}"
        if seen.raised is not None and not wire.lied:
            await _again(broker, wire, seen)
        if len(seen.offsets) < 2 * RECORDS and not wire.lied:
            return case, f"{sorted(seen.offsets)} of {2 * RECORDS} were read; {seen.raised!r}"
        return case, None


async def _again(broker: EmbeddedBroker, wire: Wire, seen: Seen) -> None:
    """Start another member after one that ended."""
    async with trio.open_nursery() as nursery:
        again = Seen(seen.offsets)
        nursery.start_soon(_read, broker, wire, again, 1)
        with trio.move_on_after(AFTER):
            await again.over.wait()
        nursery.cancel_scope.cancel()


async def _read(broker: EmbeddedBroker, wire: Wire, seen: Seen, seed: int) -> None:
    """A program that reads and commits everything until its group ends."""
    runtime = attrs.evolve(memory_runtime(broker, seed=seed), open_stream=wire.open)
    config = config_for(broker, session_timeout=10.0, request_timeout=3.0, rebalance_timeout=10.0)
    try:
        async with ConsumerGroup(config, runtime=runtime) as group:
            async for generation in group:
                generation.start_soon(_handle, generation, seen)
    except Exception as error:  # noqa: BLE001 # the case checks it
        seen.raised = _first(error)
        seen.over.set()


async def _handle(generation: Any, seen: Seen) -> None:
    async for batch in generation.records():
        seen.batch_read(batch)
        try:
            await generation.commit({batch.partition: batch.next_offset})
        except FatalGroupError:
            raise
        except KgroupError:
            continue  # records without a commit are read again


def _first(error: BaseException) -> BaseException:
    """The first exception in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
