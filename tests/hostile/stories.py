"""Hostile requests to the broker that only do harm one after the other.

Members of a group, on connections of their own, join with extreme time-outs, sync, leave and come
back in any order. Batches with a right CRC and impossible numbers are appended, and then read in
every way that the broker has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any, Final

import attrs
import trio

from kgroup.broker import EmbeddedBroker, batches
from kgroup.broker.records import NewRecord, _write_record
from tests.broker.wire import Client, joining

SESSIONS: Final = (*(10_000,) * 4, 1_800_000, 50, 0, 2**31 - 1)
REBALANCES: Final = (-(2**31), -1, 0, 1, 50, *(10_000,) * 4, 1_800_000, 2**31 - 1)
"""Milliseconds that members name as time-outs."""
NUMBERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 5, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
PATIENCE: Final = 0.5
"""Virtual seconds to wait for an answer that may never come."""
STEPS: Final = 20
PAUSES: Final = (*(0.0,) * 6, 0.1, 5.0, 70.0)


@attrs.define(eq=False)
class _Member:
    """A member as one connection sees it; the broker may know another one."""

    client: Client
    group_instance_id: str | None
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    others: list[str] = attrs.field(factory=list)
    waits_for: tuple[str, int] | None = None
    """The request that has no answer yet; a connection sends no other one meanwhile."""


async def play_members(broker: EmbeddedBroker, random: Random) -> tuple[str, None]:
    """Let some members do what they like, in any order; returns what they did."""
    members = [
        _Member(await Client.open(broker), random.choice((None, f"i{number % 3}")))
        for number in range(random.randint(1, 4))
    ]
    did: list[str] = []
    try:
        for _ in range(STEPS):
            number = random.randrange(len(members))
            name, step = random.choice(list(_STEPS.items()))
            did.append(f"{number} {name}")
            try:
                did[-1] += await step(members[number], random)
            except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                members[number] = _Member(
                    await Client.open(broker), members[number].group_instance_id
                )
            await trio.sleep(random.choice(PAUSES))
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            for member in members:
                await member.client.stream.aclose()
    return "; ".join(did), None


async def _answer(member: _Member, api: str, version: int, **fields: Any) -> Any:
    """Send a request and wait a moment for its answer, or go on waiting for an earlier one."""
    if member.waits_for is None:
        await member.client.send(api, version, **fields)
        member.waits_for = api, version
    with trio.move_on_after(PATIENCE):
        answer = await member.client.answer(*member.waits_for)
        sent, member.waits_for = member.waits_for, None
        if sent[0] == "join_group":
            _take(member, answer)
        return answer
    # What was read of an answer is lost, so the connection cannot go on. The broker sends whole
    # answers at once, and nothing is read before one comes.
    return None


def _take(member: _Member, answer: Any) -> None:
    if answer.member_id:
        member.member_id = answer.member_id
    if int(answer.error_code) == 0:
        member.generation_id = answer.generation_id
        member.leads = answer.leader == answer.member_id
        member.others = [one.member_id for one in answer.members]


def _membership(member: _Member) -> dict[str, Any]:
    """The fields by which a request names its member and its generation."""
    return {
        "group_id": "group",
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
    }


async def _join(member: _Member, random: Random) -> str:
    session, rebalance = random.choice(SESSIONS), random.choice(REBALANCES)
    fields = joining(
        group_id="group",
        session_timeout=timedelta(milliseconds=session),
        rebalance_timeout=timedelta(milliseconds=rebalance),
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )
    await _answer(member, "join_group", 5, **fields)
    return f" (session {session} ms, rebalance {rebalance} ms)"


async def _sync(member: _Member, random: Random) -> str:
    given = [{"member_id": one, "assignment": b"a"} for one in member.others]
    assignments = given if member.leads or random.random() < 0.1 else []
    await _answer(member, "sync_group", 3, **_membership(member), assignments=assignments)
    return ""


async def _beat(member: _Member, random: Random) -> str:
    del random
    await _answer(member, "heartbeat", 3, **_membership(member))
    return ""


async def _leave(member: _Member, random: Random) -> str:
    by_name = random.random() < 0.5
    who = {
        "member_id": "" if by_name and member.group_instance_id else member.member_id,
        "group_instance_id": member.group_instance_id,
    }
    await _answer(member, "leave_group", 3, group_id="group", members=[who])
    return ""


async def _hang_up(member: _Member, random: Random) -> str:
    del random
    await member.client.stream.aclose()
    raise EOFError


_STEPS: Final[Mapping[str, Callable[[_Member, Random], Awaitable[str]]]] = {
    "joins": _join,
    "joins again": _join,
    "syncs": _sync,
    "syncs again": _sync,
    "beats": _beat,
    "leaves": _leave,
    "hangs up": _hang_up,
}


def odd_batch(random: Random) -> bytes:
    """A batch with a right CRC and form whose numbers may be impossible."""
    count = random.randint(1, 3)
    body = bytearray()
    for number in range(count):
        delta = random.choice((number, number, random.choice(NUMBERS)))
        _write_record(body, NewRecord(b"v"), delta, random.choice(NUMBERS))
    return batches.assemble(
        bytes(body),
        count=count,
        base_timestamp=random.choice(NUMBERS),
        max_timestamp=random.choice(NUMBERS),
    )


async def play_batches(broker: EmbeddedBroker, random: Random) -> tuple[str, str | None]:
    """Append batches, then read them as clients do; returns what was sent, and what went wrong."""
    writer, reader = await Client.open(broker), await Client.open(broker)
    async with writer.stream, reader.stream:
        sent = [odd_batch(random) for _ in range(random.randint(1, 3))]
        for one in sent:
            await writer.request(
                "produce",
                9,
                transactional_id=None,
                acks=1,
                timeout=timedelta(seconds=1),
                topic_data=[{"name": "topic", "partition_data": [{"index": 0, "records": one}]}],
            )
        case = f"batches {', '.join(one.hex() for one in sent)}"
        for api, version, fields in _reads():
            with trio.move_on_after(60):
                try:
                    await reader.request(api, version, **fields)
                except EOFError:
                    break
                continue
            return case, f"{api} v{version} of another client was not answered"
        else:
            return case, None
    return case, f"the connection of another client was closed at {api} v{version}"


def _reads() -> list[tuple[str, int, dict[str, Any]]]:
    """Every request whose response has something of a partition's records."""
    times = [
        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time}
        for time in (*range(-5, 0), 0, 5, 2**62, 2**63 - 1)
    ]
    lists = [
        (
            "list_offsets",
            9,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": "topic", "partitions": [time]}],
            },
        )
        for time in times
    ]
    one = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fetch = {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "topics": [{"topic": "topic", "partitions": [one]}],
    }
    producers = {"topics": [{"name": "topic", "partition_indexes": [0]}]}
    return [*lists, ("fetch", 4, fetch), ("describe_producers", 0, producers)]
