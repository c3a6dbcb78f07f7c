"""Brokers log why a member joins and leaves; what the program's exceptions say is not for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, in_memory
from kgroup.errors import AuthenticationError, StaleGenerationError, UsageError, without_text
from kgroup.events import Left
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.security.credentials import Credentials
from kgroup.security.settings import Security
from kgroup.testing.memory import config_for, memory_runtime
from tests.group.harness import SETTINGS, Harness, harness

WORD: Final = "kv/prod/kafka of role hunter2"
"""What the exceptions say."""


def fail(*_: object) -> NoReturn:
    """Raise an exception of the program."""
    raise RuntimeError(WORD)


def fail_as_kgroup(*_: object) -> NoReturn:
    """Raise one of kgroup's own kinds."""
    raise UsageError(WORD)


class Failing:
    """An assignor that raises."""

    name = "failing"
    assign = fail


async def in_the_body(_: ConsumerGroup, __: Generation) -> None:
    """The body of the loop raises."""
    fail()


async def in_a_task(_: ConsumerGroup, generation: Generation) -> None:
    """A task raises."""

    async def task() -> None:
        fail()

    generation.start_soon(task)
    await generation.wait_ended()


async def at_the_end(group: ConsumerGroup, generation: Generation) -> None:
    """A task puts the error of its generation into a group of exceptions; the member joins again.

    This counts as a normal end of the task, and is the reason of the next JoinGroup.
    """

    async def task() -> None:
        await generation.ending.wait()
        assert generation.end is not None
        raise ExceptionGroup(WORD, [StaleGenerationError(WORD, generation.end)])

    generation.start_soon(task)
    group.subscribe(["topic", "other"])
    await generation.wait_ended()
    await group.next()


async def nothing(_: ConsumerGroup, __: Generation) -> None:
    """The program raises nothing by itself."""


@pytest.mark.parametrize(
    ("body", "settings", "reason"),
    [
        (in_the_body, {}, "the block was left by RuntimeError"),
        (in_a_task, {}, "a task raised RuntimeError"),
        (at_the_end, {}, "the block was left"),
        (nothing, {"starts": fail}, "the program raised RuntimeError"),
        (nothing, {"starts": fail_as_kgroup}, "the group failed with UsageError"),
        (nothing, {"assignors": [Failing()]}, "the program raised RuntimeError"),
    ],
)
async def test_no_reason_has_the_text_of_an_exception(
    autojump_clock: MockClock,
    body: Callable[[ConsumerGroup, Generation], Awaitable[None]],
    settings: dict[str, Any],
    reason: str,
) -> None:
    """The reasons of JoinGroup and LeaveGroup name its class only, whoever raises it."""
    async with harness() as here:
        with suppress(Exception):
            async with here.group(**settings) as group:
                await body(group, await group.next())
        check(here, reason)


def check(here: Harness, reason: str) -> None:
    """Check that no request has the text, and that the member left for this reason."""
    assert [request for _, _, request in here.requests if WORD in repr(request)] == []
    ((_, leave),) = here.requests_for("leave_group")
    (left,) = here.events_of(Left)
    assert leave.members[0].reason == left.reason == reason
    assert all(request.reason for _, request in here.requests_for("join_group"))


@attrs.define(eq=False)
class Watched(trio.abc.Stream):
    """A stream that knows whether a JoinGroup was sent on it."""

    stream: trio.abc.Stream
    joined: bool = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See trio; the API's number follows the length of the frame."""
        self.joined = self.joined or bytes(data[4:6]) == b"\0\x0b"
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See trio."""
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """See trio."""
        return await self.stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """See trio."""
        await self.stream.aclose()


async def test_a_login_that_becomes_impossible(autojump_clock: MockClock) -> None:
    """What ``Security.credentials`` raised is in the program's error, and not sent to a broker."""
    streams: list[Watched] = []
    broken = False

    def credentials() -> Credentials:
        if broken:
            fail()
        return Credentials("alice", "secret")

    async with in_memory(SETTINGS, security=BrokerSecurity(users={"alice": "secret"})) as broker:

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            streams.append(Watched(await broker.open_stream(host, port)))
            return streams[-1]

        await broker.create_topic("topic", 1)
        here = Harness(broker)
        security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=credentials)
        group = ConsumerGroup(
            config_for(broker, security=security),
            runtime=attrs.evolve(memory_runtime(broker), open_stream=open_stream),
            on_event=here.events.append,
        )
        with pytest.raises(AuthenticationError, match="hunter2") as caught:
            async with group:
                await group.next()
                broken = True
                broker.set_user("alice", "other")
                (membership,) = (stream for stream in streams if stream.joined)
                await membership.aclose()
                await group.next()
        assert "a broker refused what was looked up last" in str(caught.value)
        check(here, "the group failed with AuthenticationError (SASL_AUTHENTICATION_FAILED)")


def test_what_is_said_of_an_error_without_its_text() -> None:
    """Its class, and Kafka's name if it has one."""
    assert without_text(ValueError(WORD)) == "ValueError"
    assert without_text(ExceptionGroup(WORD, [ValueError(WORD)])) == "ExceptionGroup"
    assert without_text(AuthenticationError.in_tls(WORD)) == "AuthenticationError (TLS_REFUSED)"
