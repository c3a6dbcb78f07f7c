"""What scenarios act with: group members, groups as administrators see them, and producers.

Durations are float seconds.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from tests.conformance.calls import PATIENCE, Call, ScenarioError, ScenarioRun, Text
from tests.conformance.transcript import Names, encode_subscription, show_answer, show_error
from tests.conformance.wire import Fields

LONG: Final = 60.0
"""A session or rebalance timeout that never plays a part in a scenario."""
_POLL: Final = 0.02
_BUSY: Final = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
}

Offsets = Mapping[str, int | tuple[int, str]]
"""What to commit: `{"t1-0": 5}` or, with metadata, `{"t1-0": (5, "metadata")}`."""


@dataclass(kw_only=True, eq=False)
class Member:
    """A client of one group. It remembers the member id and generation that it was given.

    `like` makes a client that claims to be this member, with something changed.
    """

    group: Group
    label: str
    protocols: Mapping[str, str | bytes]
    """By preference. Text is a comma-separated list of topics, sent as a consumer's subscription
    with the member's label as user data; bytes are sent as they are."""
    protocol_type: str | None = "consumer"
    instance: str | None = None
    session: float = LONG
    rebalance: float = LONG
    id: str = ""
    generation: int = -1
    protocol: str | None = None

    def like(self, **changes: Any) -> Member:
        """A client that claims to be this member, with something changed."""
        return dataclasses.replace(self, **changes)

    def join(self, version: int = 9, *, reason: str | None = None) -> Call:
        """Join; the answer gives this client its member id and generation."""
        shown = [f"{name}:{_show_metadata(known)}" for name, known in self.protocols.items()]
        details = f" protocols=[{' '.join(shown)}]"
        if self.protocol_type != "consumer":
            details += f" type={self.protocol_type or '-'}"
        for name, seconds in ("session", self.session), ("rebalance", self.rebalance):
            if seconds != LONG:
                details += f" {name}={seconds:.10g} s"
        return self._call(
            "join_group",
            version,
            {
                "group_id": self.group.id,
                "session_timeout": _timeout(self.session),
                "rebalance_timeout": _timeout(self.rebalance) if version >= 1 else None,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "protocol_type": self.protocol_type,
                "protocols": [
                    {"name": name, "metadata": self._metadata(metadata)}
                    for name, metadata in self.protocols.items()
                ],
                "reason": reason,
            },
            self.words(f"JoinGroup v{version}", details),
            self._joined,
        )

    def sync(self, assignments: Mapping[Member, str] | None = None, version: int = 5) -> Call:
        """Sync, as the leader with what each member is to do."""
        given = {member.id: text for member, text in (assignments or {}).items()}
        words = self.in_generation()
        if version >= 5:
            words += f" protocol={self.protocol_type or '-'}/{self.protocol or '-'}"

        def details(names: Names) -> str:
            shown = sorted(f"{names.member(member)}:{text}" for member, text in given.items())
            return f"{words} assignments=[{' '.join(shown)}]" if given else words

        return self._call(
            "sync_group",
            version,
            {
                "group_id": self.group.id,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "protocol_type": self.protocol_type if version >= 5 else None,
                "protocol_name": self.protocol if version >= 5 else None,
                "assignments": [
                    {"member_id": member, "assignment": text.encode()}
                    for member, text in given.items()
                ],
            },
            self.words(f"SyncGroup v{version}", details),
        )

    def heartbeat(self, version: int = 4) -> Call:
        """Send a heartbeat of this member."""
        return self._call(
            "heartbeat",
            version,
            {
                "group_id": self.group.id,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
            },
            self.words(f"Heartbeat v{version}", self.in_generation()),
        )

    def leave(self, version: int = 5, *, reason: str | None = None) -> Call:
        """Leave alone; `Group.leave` takes several members out at once."""
        return self.group.leave(self, version=version, reason=reason, actor=self.label)

    def commit(self, offsets: Offsets, version: int = 9, *, epoch: int | None = None) -> Call:
        """Commit offsets in this member's name and generation."""
        return self._call(
            "offset_commit",
            version,
            {
                "group_id": self.group.id,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "topics": _commit_topics(offsets, epoch),
            },
            self.words(
                f"OffsetCommit v{version}", f"{self.in_generation()} {_show_offsets(offsets)}"
            ),
        )

    async def enlist(self, version: int = 9) -> None:
        """Get a member id (KIP-394), writing nothing."""
        answer = await self.join(version).quiet()
        if show_error(answer) != "MEMBER_ID_REQUIRED":
            raise ScenarioError(f"{self.label} was given no member id: {answer}")

    async def enter(self) -> Call:
        """Send the join that makes this a member, after getting an id where one is needed."""
        if self.instance is None and not self.id:
            await self.enlist()
        return self.join().send()

    def _call(
        self,
        api: str,
        version: int,
        fields: Fields,
        said: Text,
        learn: Callable[[Fields], None] | None = None,
    ) -> Call:
        return Call(self.group.scenario_run, api, version, fields, self.label, said, learn)

    def words(self, request: str, details: str | Text) -> Text:
        """The words for a request, with this member's id as it is now."""
        member_id, instance = self.id, self.instance
        identity = "" if instance is None else f" instance={instance}"

        def said(names: Names) -> str:
            more = details if isinstance(details, str) else details(names)
            return f"{request}({names.member(member_id)}{identity}{more})"

        return said

    def in_generation(self) -> str:
        """The words for the generation that this member believes in."""
        return f" generation={self.generation}"

    def _metadata(self, metadata: str | bytes) -> bytes:
        if isinstance(metadata, bytes):
            return metadata
        return encode_subscription(metadata.split(","), self.label)

    def _joined(self, answer: Fields) -> None:
        error = show_error(answer)
        if error in ("NONE", "MEMBER_ID_REQUIRED"):
            self.id = answer["member_id"]
            self.group.scenario_run.names.own_member(self.label, self.id)
        if error == "NONE":
            self.generation = answer["generation_id"]
            self.protocol = answer["protocol_name"]


class Group:
    """One consumer group of a scenario, and what an administrator can do with it."""

    def __init__(
        self, scenario_run: ScenarioRun, label: str = "g", group_id: str | None = None
    ) -> None:
        self.scenario_run = scenario_run
        self.label = label
        self.id = f"conformance-{scenario_run.run_id}-{label}" if group_id is None else group_id
        scenario_run.names.own_group(label, self.id)

    def sibling(self, label: str, group_id: str | None = None) -> Group:
        """Another group, whose members' ids are named in the same transcript."""
        return Group(self.scenario_run, label, group_id)

    def member(self, label: str, **attributes: Any) -> Member:
        """A client that is not in the group yet; by default it knows protocol range, topic t1."""
        attributes.setdefault("protocols", {"range": "t1"})
        return Member(group=self, label=label, **attributes)

    def producer(self, label: str) -> Producer:
        """A client with a transactional id of its own."""
        return Producer(self.scenario_run, label)

    def now(self) -> float:
        """The time, for `since`."""
        return trio.current_time()

    def note(self, text: str) -> None:
        """Write a remark."""
        self.scenario_run.write(lambda names: f"-- {text}")

    # Requests

    def leave(
        self,
        *members: Member,
        version: int = 5,
        reason: str | None = None,
        actor: str | None = None,
    ) -> Call:
        """Take several members out at once, as an administrator or one of them."""
        identities = [(member.id, member.instance) for member in members]

        def said(names: Names) -> str:
            shown = " ".join(
                names.member(member) + (f"@{instance}" if instance else "")
                for member, instance in identities
            )
            return f"LeaveGroup v{version}({shown})"

        several = [
            {"member_id": member, "group_instance_id": instance, "reason": reason}
            for member, instance in identities
        ]
        fields = {"members": several} if version >= 3 else {"member_id": identities[0][0]}
        return self._call(
            "leave_group", version, {"group_id": self.id, **fields}, said, actor=actor
        )

    def describe(self, *others: Group, version: int = 6) -> Call:
        """Describe this group, and others in the same request."""
        groups = (self, *others)
        return self._call(
            "describe_groups",
            version,
            {
                "groups": [group.id for group in groups],
                "include_authorized_operations": False if version >= 3 else None,
            },
            f"DescribeGroups v{version}({_labels(groups)})",
        )

    def list_groups(
        self, version: int = 5, *, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> Call:
        """The groups of this scenario among all groups that the broker lists."""
        filters = ",".join((*states, *kinds))
        return self._call(
            "list_groups",
            version,
            {
                "states_filter": list(states) if version >= 4 else None,
                "types_filter": list(kinds) if version >= 5 else None,
            },
            f"ListGroups v{version}({filters})",
        )

    def delete(self, *others: Group, version: int = 2) -> Call:
        """Delete this group, and others in the same request."""
        groups = (self, *others)
        return self._call(
            "delete_groups",
            version,
            {"groups_names": [group.id for group in groups]},
            f"DeleteGroups v{version}({_labels(groups)})",
        )

    def delete_offsets(self, *partitions: str) -> Call:
        """Delete the offsets of these partitions."""
        return self._call(
            "offset_delete",
            0,
            {
                "group_id": self.id,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": index} for index in indexes],
                    }
                    for topic, indexes in _by_topic(partitions).items()
                ],
            },
            f"OffsetDelete v0({' '.join(partitions)})",
        )

    def fetch(
        self, *partitions: str, version: int = 9, everything: bool = False, stable: bool = False
    ) -> Call:
        """Fetch committed offsets, of all partitions that have one if `everything`."""
        wanted = None if everything else partitions
        if version >= 8:
            return self.fetch_groups({self: wanted}, version=version, stable=stable)
        shown = "everything" if wanted is None else " ".join(wanted)
        return self._call(
            "offset_fetch",
            version,
            {
                "group_id": self.id,
                "topics": _fetch_topics(wanted),
                "require_stable": stable if version >= 7 else None,
            },
            f"OffsetFetch v{version}({shown}{' stable' if stable else ''})",
        )

    def fetch_groups(
        self,
        wanted: Mapping[Group, Sequence[str] | None],
        version: int = 9,
        *,
        stable: bool = False,
    ) -> Call:
        """Fetch several groups' offsets (version 8 on); None stands for everything."""
        shown = "; ".join(
            f"{group.label}: {'everything' if some is None else ' '.join(some)}"
            for group, some in wanted.items()
        )
        return self._call(
            "offset_fetch",
            version,
            {
                "groups": [
                    {"group_id": group.id, "topics": _fetch_topics(some)}
                    for group, some in wanted.items()
                ],
                "require_stable": stable,
            },
            f"OffsetFetch v{version}({shown}{' stable' if stable else ''})",
        )

    # Steps of several requests

    async def form(self, leader: Member, *followers: Member, synced: bool = True) -> None:
        """Bring a new group to a generation of these members, in one line.

        The leader joins alone first. If there are followers they then all join, and the leader
        joins again; so the generation is 1 for a leader alone and 2 otherwise. If `synced`, each
        member is assigned its own label and the group is Stable, else CompletingRebalance.
        """
        members = (leader, *followers)
        await (await leader.enter()).good()
        if followers:
            joins = [await follower.enter() for follower in followers]
            await self.wait_for("PreparingRebalance", len(members))
            joins.append(leader.join().send())
            for join in joins:
                await join.good()
        if synced:
            await leader.sync({member: member.label for member in members}).good()
            for follower in followers:
                await follower.sync().good()
        self._write_formed("Stable" if synced else "CompletingRebalance", *members)

    async def reform(self, leader: Member, *followers: Member) -> float:
        """Take a Stable group through one more join, in one line.

        Returns a time shortly before the join completed.
        """
        joins = [leader.join().send()]
        await self.wait_for("PreparingRebalance", 1 + len(followers))
        completed = self.now()
        joins.extend(follower.join().send() for follower in followers)
        for join in joins:
            await join.good()
        self._write_formed("CompletingRebalance", leader, *followers)
        return completed

    async def state(self, expected: str, *, near: float | None = None, since: float = 0.0) -> None:
        """Wait for a state and write it with the group's members, or the state found instead."""
        found = await self._poll(lambda group: group["group_state"] == expected)
        timing = "" if near is None else self.scenario_run.timing(self.now() - since, near)
        ids = [member["member_id"] for member in found["members"]]

        def line(names: Names) -> str:
            members = " ".join(sorted(names.member(member) for member in ids)) or "no members"
            return f"-- {self.label} is {found['group_state']}: {members}{timing}"

        self.scenario_run.write(line)

    async def wait_for(self, state: str, members: int) -> None:
        """Wait, writing nothing, until the broker has taken in what was sent."""
        found = await self._poll(
            lambda group: group["group_state"] == state and len(group["members"]) == members
        )
        if found["group_state"] != state or len(found["members"]) != members:
            raise ScenarioError(f"{self.label} is not {state} with {members} members: {found}")

    async def keep_alive(self, *members: Member, during: float, every: float) -> None:
        """Send heartbeats for a while and write each member's different answers, in order."""
        answers: dict[Member, list[str]] = {member: [] for member in members}
        end = self.now() + during
        while self.now() < end:
            for member in members:
                error = show_error(await member.heartbeat().quiet())
                if answers[member][-1:] != [error]:
                    answers[member].append(error)
            await trio.sleep(every)
        for member, errors in answers.items():
            self.note(f"{member.label} heartbeats for {during:g} s -> {', '.join(errors)}")

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await trio.sleep(seconds)
        self.note(f"{seconds:g} s pass")

    def _write_formed(self, state: str, leader: Member, *followers: Member) -> None:
        members = (leader, *followers)
        generations = {member.label: member.generation for member in members}
        if len(set(generations.values())) > 1:
            raise ScenarioError(f"members are in different generations: {generations}")
        ids = [member.id for member in members]
        generation = leader.generation
        self.scenario_run.write(
            lambda names: (
                f"-- {self.label} is {state} in generation {generation}: "
                f"{' '.join(names.member(member) for member in ids)}"
            )
        )

    async def _poll(self, enough: Callable[[Fields], bool]) -> Fields:
        deadline = self.now() + PATIENCE
        while True:
            group: Fields = (await self.describe(version=5).quiet())["groups"][0]
            if enough(group) or self.now() > deadline:
                return group
            await trio.sleep(_POLL)

    def _call(
        self, api: str, version: int, fields: Fields, said: str | Text, actor: str | None = None
    ) -> Call:
        words = said if callable(said) else lambda names: str(said)
        return Call(self.scenario_run, api, version, fields, actor or "admin", words)


class Producer:
    """A transactional producer that commits offsets on behalf of group members."""

    def __init__(self, scenario_run: ScenarioRun, label: str) -> None:
        self._scenario_run = scenario_run
        self._label = label
        self._transactional_id = f"conformance-{scenario_run.run_id}-{label}"
        self._identity: Fields = {}

    async def begin(self, group: Group) -> None:
        """Start a transaction that commits offsets of `group`, in one line."""
        if not self._identity:
            fields = {
                "transactional_id": self._transactional_id,
                "transaction_timeout": _timeout(LONG),
            }
            answer = await self._step("init_producer_id", 4, fields)
            self._identity = {
                "transactional_id": self._transactional_id,
                "producer_id": answer["producer_id"],
                "producer_epoch": answer["producer_epoch"],
            }
        await self._step("add_offsets_to_txn", 3, {**self._identity, "group_id": group.id})
        self._scenario_run.write(lambda names: f"-- {self._label} begins a transaction")

    def commit(self, member: Member, offsets: Offsets, version: int = 3) -> Call:
        """Commit offsets in the transaction as `member`; before version 3 without a member."""
        named = version >= 3
        request, shown = f"TxnOffsetCommit v{version}", _show_offsets(offsets)
        said = (
            member.words(request, f"{member.in_generation()} {shown}")
            if named
            else lambda names: f"{request}({shown})"
        )
        return self._call(
            "txn_offset_commit",
            version,
            {
                **self._identity,
                "group_id": member.group.id,
                "generation_id": member.generation if named else None,
                "member_id": member.id if named else None,
                "group_instance_id": member.instance if named else None,
                "topics": _commit_topics(offsets, None),
            },
            said,
        )

    async def end(self, group: Group, *partitions: str, committed: bool) -> None:
        """End the transaction and wait until the broker has applied its marker."""
        await self._step("end_txn", 3, {**self._identity, "committed": committed})
        deadline = trio.current_time() + PATIENCE
        while await self._is_open(group, *partitions) and trio.current_time() < deadline:  # noqa: ASYNC110 # a broker can only be asked
            await trio.sleep(_POLL)
        outcome = "commits" if committed else "aborts"
        self._scenario_run.write(lambda names: f"-- {self._label} {outcome} the transaction")

    async def _is_open(self, group: Group, *partitions: str) -> bool:
        answer = await group.fetch(*partitions, version=7, stable=True).quiet()
        return "UNSTABLE" in show_answer("offset_fetch", answer, self._scenario_run.names)

    def _call(self, api: str, version: int, fields: Fields, said: Text) -> Call:
        return Call(self._scenario_run, api, version, fields, self._label, said)

    async def _step(self, api: str, version: int, fields: Fields) -> Fields:
        """One of the transaction's own requests, repeated while its coordinator is busy."""
        deadline = trio.current_time() + PATIENCE
        while True:
            answer = await self._call(api, version, fields, lambda names: api).quiet()
            error = show_error(answer)
            if error == "NONE":
                return answer
            if error not in _BUSY or trio.current_time() > deadline:
                raise ScenarioError(f"{api}: {error}")
            await trio.sleep(_POLL)


def _timeout(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=round(seconds * 1000))


def _labels(groups: Sequence[Group]) -> str:
    return " ".join(group.label for group in groups)


def _by_topic(partitions: Sequence[str]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topic, _, index = partition.rpartition("-")
        topics.setdefault(topic, []).append(int(index))
    return topics


def _fetch_topics(partitions: Sequence[str] | None) -> list[Fields] | None:
    if partitions is None:
        return None
    return [
        {"name": topic, "partition_indexes": indexes}
        for topic, indexes in _by_topic(partitions).items()
    ]


def _commit_topics(offsets: Offsets, epoch: int | None) -> list[Fields]:
    def partition(topic: str, index: int) -> Fields:
        value = offsets[f"{topic}-{index}"]
        offset, metadata = value if isinstance(value, tuple) else (value, "")
        known = {} if epoch is None else {"committed_leader_epoch": epoch}
        return {
            "partition_index": index,
            "committed_offset": offset,
            "committed_metadata": metadata,
            **known,
        }

    return [
        {"name": topic, "partitions": [partition(topic, index) for index in indexes]}
        for topic, indexes in _by_topic(list(offsets)).items()
    ]


def _show_metadata(metadata: str | bytes) -> str:
    return metadata if isinstance(metadata, str) else metadata.decode()


def _show_offsets(offsets: Offsets) -> str:
    return " ".join(
        f"{partition}={value[0] if isinstance(value, tuple) else value}"
        for partition, value in offsets.items()
    )
