"""Hostile brokers and members against kgroup's client: cases generated from a seed.

There are three kinds of cases, by what is attacked:

- a *call*: one request of the client, answered with one field at an extreme, in any version; those
  of a login too;
- a *member*: bytes of another member (subscription, user data, assignment), as a leader and as a
  follower reads them;
- a *group*: a whole `ConsumerGroup` beside an embedded broker whose responses are changed for a
  while, or whose connections are (``tests.hostile.sockets``). The records that the group has read
  afterwards are compared with those in the log.

Each case checks that only a `KgroupError` is raised, within the time-outs in virtual time. In
some its memory is measured.
"""

from __future__ import annotations

import logging
import struct
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

import attrs
import trio
import trio.testing
from kio.index import load_entity_schema, load_response_schema
from kio.static.constants import EntityType

from kgroup.assignors import resolve
from kgroup.assignors.validation import check_assignments
from kgroup.broker.security.mechanisms import RefusedError, ScramServer
from kgroup.broker.security.users import Users
from kgroup.client.cluster import LATEST, PATIENCE, Cluster
from kgroup.client.coordinator import JOIN_GRACE, CoordinatorClient
from kgroup.config import BUILTIN_ASSIGNORS, GroupConfig
from kgroup.errors import KgroupError, ProtocolError
from kgroup.generation.received_assignment import check_entries
from kgroup.logs import LOGGER
from kgroup.security.credentials import Token
from kgroup.security.settings import SaslMechanism, Security
from kgroup.types import (
    EpochEnd,
    Membership,
    MemberSubscription,
    OffsetAndMetadata,
    TopicInfo,
    TopicPartition,
)
from kgroup.wire.codec import RequestFrame
from kgroup.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kgroup.wire.login import SHORTEST_SESSION
from kgroup.wire.versions import API_KEYS, SUPPORTED_REQUESTS
from tests.hostile.extremes import Change, body, choose, message, sample
from tests.hostile.group import play_group
from tests.hostile.sockets import Sockets
from tests.hostile.wire import AnsweringStream, negotiated

T0 = TopicPartition("topic", 0)
CONFIG: Final = GroupConfig(group_id="group", bootstrap_servers="a:9092", topics=["topic"])
LOGINS: Final = (
    Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="user", password="password"),  # noqa: S106
    Security(
        protocol="SASL_PLAINTEXT",
        mechanism="SCRAM-SHA-256",
        username="user",
        password="password",  # noqa: S106
    ),
    Security(
        protocol="SASL_PLAINTEXT",
        mechanism="OAUTHBEARER",
        token=lambda: Token("a.b.c", expires_at=9e10, principal="user"),
    ),
)
MEMBERSHIP: Final = Membership(
    group_id="group",
    member_id="m-1",
    group_instance_id=None,
    generation_id=3,
    epoch=1,
    assignor="range",
    leader=False,
)
SUBSCRIPTION: Final = encode_subscription(topics=["topic"])
#: Values of honest responses, by kio's names of the fields.
KNOWN: Final[Mapping[str, Any]] = {
    "assignment": encode_assignment([T0]),
    "committed_leader_epoch": -1,
    "committed_offset": 5,
    "error_message": None,
    "generation_id": 3,
    "group_id": "group",
    "group_instance_id": None,
    "group_state": "Stable",
    "host": "a",
    "key": "group",
    "leader": "m-1",
    "mechanisms": tuple(str(one.mechanism.value) for one in LOGINS if one.mechanism),
    "member_assignment": encode_assignment([T0]),
    "member_id": "m-1",
    "member_metadata": SUBSCRIPTION,
    "metadata": SUBSCRIPTION,
    "offset": 5,
    "port": 9092,
    "protocol_name": "range",
    "protocol_type": "consumer",
    "rack": None,
    "skip_assignment": False,
}
SCRAM_FIELDS: Final = (
    *(f"i={number}" for number in (-1, 0, 1, 4095, 2**31, 2**63, "", "x", "9" * 5000)),
    *["s=", "s=%%%", "r=", "r=x", "v=", "v=AAAA", "v=%", "e=other-error", "e=", "m=ext", "=,="],
    "\ud7ff",
)
"""Fields of SCRAM messages that no honest broker sends."""
HONEST: Final = 0.6
BEFORE_ALL: Final = ("api_versions", "find_coordinator", "sasl_handshake", "sasl_authenticate")
"""Requests that the client sends before it can find the coordinator."""
MEASURED: Final = 20
"""The memory of one call in so many is measured, because that takes time."""
MEMORY: Final = 16 << 20
"""The most bytes that a call may take."""
ONE_IN: Final = 40
"""One in this many cases is of a whole group with changed responses, and one with disturbed
connections."""
LONGEST: Final = PATIENCE * CONFIG.request_timeout + CONFIG.rebalance_timeout + JOIN_GRACE + 1.0
"""Virtual seconds that any call may take, with a search for the coordinator."""


async def epoch_ends(cluster: Cluster) -> Mapping[TopicPartition, object]:
    """Where an early leader epoch ends, or the failure."""
    found: dict[TopicPartition, EpochEnd | None] = {}
    failed = await cluster.epoch_ends({T0: 0}, found)
    return {**found, **failed}


async def log_in(cluster: Cluster) -> object:
    """Log in, and again if the session that the broker has granted is short."""
    await cluster.metadata({"topic"})
    await trio.sleep(SHORTEST_SESSION)
    return await cluster.metadata({"topic"})


Call = Callable[[Cluster, CoordinatorClient], Awaitable[object]]
CALLS: Final[Mapping[str, Call]] = {
    "api_versions": lambda cluster, _: cluster.metadata({"topic"}),
    "metadata": lambda cluster, _: cluster.metadata({"topic"}),
    "find_coordinator": lambda cluster, _: cluster.find_coordinator("group"),
    "join_group": lambda _, at: at.join("m-1", ["topic"], "why"),
    "sync_group": lambda _, at: at.sync(MEMBERSHIP, {}),
    "heartbeat": lambda _, at: at.heartbeat(MEMBERSHIP),
    "leave_group": lambda _, at: at.leave("m-1", None, "why"),
    "offset_commit": lambda _, at: at.commit(
        MEMBERSHIP, {T0: OffsetAndMetadata(5)}, lambda: None, lambda: None
    ),
    "offset_fetch": lambda _, at: at.fetch_offsets(MEMBERSHIP, [T0]),
    "list_offsets": lambda cluster, _: cluster.list_offsets([T0], LATEST),
    "offset_for_leader_epoch": lambda cluster, _: epoch_ends(cluster),
    "describe_groups": lambda _, at: at.describe(),
    "sasl_handshake": lambda cluster, _: log_in(cluster),
    "sasl_authenticate": lambda cluster, _: log_in(cluster),
}
"""Each request that the client sends, by a call that sends it."""


def play(seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Play the cases of a seed; yields those that ended in a way that is not allowed."""
    # Each failure that a hostile broker causes is logged.
    level = LOGGER.level
    LOGGER.setLevel(logging.CRITICAL)
    try:
        yield from _played(seed, numbers)
    finally:
        LOGGER.setLevel(level)


def _played(seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    for number in numbers:
        random = Random(f"{seed} {number}")
        case, what = "", None
        try:
            if number % ONE_IN == 0:
                case, what = trio.run(play_group, random, clock=_clock())
            elif number % ONE_IN == ONE_IN // 2:
                case, what = trio.run(play_group, random, Sockets, clock=_clock())
            elif number % 4 == 1:
                case, what = play_member(random)
            elif number % MEASURED == 2:
                case, what = _measured(lambda: trio.run(play_call, random, clock=_clock()))  # noqa: B023
            else:
                case, what = trio.run(play_call, random, clock=_clock())
        except Exception as error:  # noqa: BLE001 # any error is a failed case
            what = f"{type(error).__name__}: {error}"
        if what is not None:
            yield number, f"{case}: {what}"


def _measured(play_one: Callable[[], tuple[str, str | None]]) -> tuple[str, str | None]:
    """Play a case whose responses are small; its memory must be, too."""
    tracemalloc.start()
    try:
        case, what = play_one()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return case, f"it took {most >> 20} MB" if what is None and most > MEMORY else what


async def play_call(random: Random) -> tuple[str, str | None]:
    """Change one response; returns the case and what was wrong with how it ended."""
    api = random.choice(list(CALLS))
    lowest = SUPPORTED_REQUESTS[api].lowest
    version = random.randint(lowest, SUPPORTED_REQUESTS[api].highest)
    kind: Any = load_response_schema(API_KEYS[api], version)
    known = {**KNOWN, "metadata": ""} if api == "offset_fetch" else KNOWN
    change = choose(random, sample(kind, known))
    case = f"{api} v{version}, {change}"
    brokers = _Brokers(api, version, change, random)
    config = CONFIG
    if api.startswith("sasl"):
        config = attrs.evolve(CONFIG, security=random.choice(LOGINS))
        case = f"{case}, {config.security.mechanism}"
    cluster = Cluster(config, brokers.open, random)
    coordinator = CoordinatorClient(cluster, config)
    began = trio.current_time()
    what: str | None = None
    try:
        if api not in BEFORE_ALL:
            await coordinator.find()
        brokers.hostile = True
        given = await CALLS[api](cluster, coordinator)
        what = _wrong(api, given)
    except KgroupError as error:
        if isinstance(error, ProtocolError) and not str(error):
            what = "an error without words"
    except Exception as error:  # noqa: BLE001
        what = f"{type(error).__name__}: {error}"
    finally:
        await coordinator.aclose()
        await cluster.aclose()
    if trio.current_time() - began > LONGEST:
        what = f"it took {trio.current_time() - began:.0f} s"
    return case, what


class _Brokers:
    """Brokers at any address that answer honestly, except for one kind of request."""

    def __init__(self, api: str, version: int, change: Change, random: Random) -> None:
        self._api = api
        self._version = version
        self._change = change
        self._scram = _ScramServer(random)
        self.hostile = False

    async def open(self, host: str, port: int) -> trio.abc.Stream:
        """A ``StreamOpener``."""
        del host, port
        await trio.lowlevel.checkpoint()
        return AnsweringStream(self._answer)

    def _answer(self, frame: RequestFrame) -> bytes:
        if frame.api == "api_versions" and not (self.hostile and self._api == "api_versions"):
            return negotiated(frame, self._api, self._version)
        kind: Any = load_response_schema(API_KEYS[frame.api], frame.version)
        known = {**KNOWN, "metadata": ""} if frame.api == "offset_fetch" else KNOWN
        honest = sample(kind, known)
        change = None
        if frame.api == "sasl_authenticate":
            honest = replace(honest, auth_bytes=self._scram.answer(frame.entity))
        if self.hostile and frame.api == self._api:
            # ApiVersions is sent before any version is negotiated.
            same = frame.version == self._version
            change = self._change if same else choose(Random(frame.version), honest)
        return message(honest, change, correlation_id=frame.correlation_id)


class _ScramServer:
    """Logins by SCRAM: honest ones, and ones whose messages have a changed field."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._users = Users(random)
        self._login: ScramServer | None = None

    def answer(self, request: Any) -> bytes:
        """The message that answers a client's; empty if it is none of SCRAM."""
        given = bytes(request.auth_bytes)
        if given.startswith(b"n,,n="):
            self._users.put("user", "password")
            self._login = ScramServer(SaslMechanism.SCRAM_SHA_256, self._users, "nonce")
        elif not given.startswith(b"c="):
            return b""
        assert self._login is not None
        try:
            honest = self._login.answer(given).data.decode()
        except RefusedError:  # the client has accepted a nonce that is not the server's
            honest = "e=invalid-proof"
        if self._random.random() < HONEST:
            return honest.encode()
        fields = honest.split(",")
        at = self._random.randrange(len(fields))
        fields[at] = self._random.choice((*SCRAM_FIELDS, f"{fields[at]}x", fields[at][:-1], ""))
        return ",".join(fields).encode()


def _wrong(api: str, given: Any) -> str | None:
    """The values that a call must never return, whatever the response was."""
    may = _RETURNED.get(api)
    return None if may is None or may(given) else f"it returned {given}"


#: The result of a case whose response was accepted.
_RETURNED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "metadata": lambda given: given.topics.keys() <= {"topic"},
    "find_coordinator": lambda given: bool(given.host) and 0 < given.port < 2**16,
    "join_group": lambda given: bool(given.member_id) and given.generation_id >= 0,
    "heartbeat": lambda given: given >= 0,
    "offset_commit": lambda given: given.keys() == {T0},
    "offset_fetch": lambda given: (
        given.keys() == {T0} and all(at is None or at.offset >= 0 for at in given.values())
    ),
    "list_offsets": lambda given: (
        given.keys() == {T0} and all(not isinstance(at, int) or at >= 0 for at in given.values())
    ),
    "offset_for_leader_epoch": lambda given: (
        given.keys() <= {T0}
        and all(
            at.offset >= 0 and at.leader_epoch >= 0
            for at in given.values()
            if isinstance(at, EpochEnd)
        )
    ),
}


def play_member(random: Random) -> tuple[str, str | None]:
    """Read changed bytes of another member, as a leader and as a follower."""
    what = random.choice(("subscription", "assignment", "user data"))
    version = random.randint(0, 3)
    if what == "user data":
        data = random.randbytes(random.randint(0, 40))
        theirs = encode_subscription(topics=["topic"], user_data=data, version=version)
        case = f"user data {data.hex()}"
    else:
        kind: Any = load_entity_schema(f"consumer_protocol_{what}", version, EntityType.data)
        known = {"topics": ("topic", "other"), "topic": "topic", "user_data": None}
        honest = sample(kind, known)
        change = choose(random, honest)
        theirs = struct.pack(">h", version) + body(honest, change)
        case = f"{what} v{version}, {change}"
    if what == "assignment":
        return case, _follow(theirs)
    return case, _lead(theirs)


def _follow(theirs: bytes) -> str | None:
    try:
        assigned = decode_assignment(theirs)
    except ProtocolError:
        return None
    admitted = check_entries(assigned, {"topic"})
    strange = [name for name in admitted.partitions if name.topic != "topic" or name.partition < 0]
    if strange or len(set(admitted.partitions)) != len(admitted.partitions):
        return f"admitted {strange}"
    return None


def _lead(theirs: bytes) -> str | None:
    try:
        other = decode_subscription(theirs, member_id="m-2")
    except ProtocolError:
        return None
    topics = {"topic": TopicInfo(name="topic", partitions=3)}
    members = [MemberSubscription(member_id="m-1", topics=("topic",)), other]
    for name in BUILTIN_ASSIGNORS:
        (assignor,) = resolve([name]).values()
        given = assignor.assign(topics, members)
        checked = check_assignments(name, topics, members, given)
        waiting = set(other.owned)
        if lost := [one for one in checked.unassigned if one not in waiting]:
            return f"{name} leaves {lost} unassigned"
    return None


def _clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)
