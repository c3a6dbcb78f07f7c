"""Mutations of the embedded coordinator, by the invariant that each breaks."""

from __future__ import annotations

from typing import Final

from tests.testing.simulation.mutations.mutation import Mutation

_GROUPS: Final = "kgroup.broker.groups"
_LONGEST: Final = (
    "return max((member.rebalance_timeout for member in self.members.values()), default=0.0)"
)

COORDINATOR: Final = (
    Mutation(
        breaks=1,
        says="Every member is given what the leader has.",
        module=f"{_GROUPS}.actions",
        old='member.assignment = given.get(member.member_id, b"")',
        new='member.assignment = given.get(group.leader, b"")',
    ),
    Mutation(
        breaks=2,
        says="A join completes as soon as half of the members have come.",
        module=f"{_GROUPS}.group",
        old="return self._joined == len(self.members) and not self.pending",
        new="return self._joined * 2 >= len(self.members) and not self.pending",
    ),
    Mutation(
        breaks=2,
        says="The wait for joins is over after a tenth of the rebalance time-out.",
        module=f"{_GROUPS}.group",
        old=_LONGEST,
        new=f"{_LONGEST} / 10",
    ),
    Mutation(
        breaks=2,
        says="Whoever has not joined in time stays, and is given partitions.",
        module=f"{_GROUPS}.rebalance",
        old="if member.parked_join is None and not member.is_static",
        new="if member.parked_join is None and member.is_new",
        seed=2,
    ),
    Mutation(
        breaks=3,
        says="A completed join begins no new generation.",
        module=f"{_GROUPS}.rebalance",
        within="def start_generation(turn: Turn) -> None:",
        old="group.generation_id += 1",
        new="group.generation_id += group.generation_id == 0",
    ),
    Mutation(
        breaks=3,
        says="A group that becomes empty counts its generations anew.",
        module=f"{_GROUPS}.rebalance",
        within="def _become_empty(turn: Turn) -> None:",
        old="group.generation_id += 1",
        new="group.generation_id = 0",
        seed=2,
    ),
    Mutation(
        breaks=3,
        says="A join that a timer completes begins no new generation.",
        module=f"{_GROUPS}.rebalance",
        within="def start_generation(turn: Turn) -> None:",
        old="group.generation_id += 1",
        new="group.generation_id += turn.ticket is not None",
    ),
    Mutation(
        breaks=4,
        says="The generation of a commit is not looked at.",
        module=f"{_GROUPS}.conditions",
        old="return bool(turn.event.generation_id != turn.group.generation_id)",
        new="return bool(turn.event.generation_id > turn.group.generation_id)",
        seed=42,
    ),
    Mutation(
        breaks=4,
        says="The group is not asked whether it allows a commit.",
        module=f"{_GROUPS}.answering",
        old="error = registry.judge(now, request)",
        new="error = ErrorCode.NONE",
        seed=7,
    ),
    Mutation(
        breaks=4,
        says="A commit is stamped anew with the group's generation.",
        module=f"{_GROUPS}.machine",
        old="return run(_JUDGES[type(request)], self._turn(now, request))",
        new="return run(_JUDGES[type(request)], self._turn(now,"
        " attrs.evolve(request, generation_id=self.group.generation_id)))",
        seed=42,
    ),
    Mutation(
        breaks=4,
        says="Who is no member commits as tools do, that name neither member nor generation.",
        module=f"{_GROUPS}.tables",
        within="OFFSET_COMMIT: Final[Table] = (",
        old="Row(_WITH_MEMBERS, (if_.is_anonymous,), error=ErrorCode.UNKNOWN_MEMBER_ID),  # 25",
        new="Row(_WITH_MEMBERS, (if_.is_no_member,)),",
        seed=7,
    ),
    Mutation(
        breaks=6,
        says="The coordinator answers the next offset but one.",
        module=f"{_GROUPS}.offsets",
        old="offset=record.offset,",
        new="offset=record.offset + 1,",
    ),
    Mutation(
        breaks=8,
        says="Commits are refused from the moment that a rebalance begins.",
        module=f"{_GROUPS}.tables",
        within="OFFSET_COMMIT: Final[Table] = (",
        old="Row({COMPLETING}, error=ErrorCode.REBALANCE_IN_PROGRESS),  # 27",
        new="Row({PREPARING, COMPLETING}, error=ErrorCode.REBALANCE_IN_PROGRESS),",
        seed=1,
    ),
    Mutation(
        breaks=9,
        says="A new coordinator does not read the offsets.",
        module=f"{_GROUPS}.registry",
        old="self.store.load(snapshot.offsets, snapshot.pending)",
        new="self.store.load({}, snapshot.pending)",
    ),
    Mutation(
        breaks=9,
        says="What is at rest while nobody coordinates loses the offsets.",
        module="kgroup.broker.resting",
        old="self._offsets.load(snapshot.offsets, snapshot.pending)",
        new="self._offsets.load({}, snapshot.pending)",
    ),
    Mutation(
        breaks=9,
        says="Only the first commit of a partition is written down for a successor.",
        module=f"{_GROUPS}.store",
        old="self._offsets[group_id] = dict(known)",
        new="self._offsets[group_id] = {name: known[name] for name in list(known)[:1]}",
    ),
    Mutation(
        breaks=11,
        says="A static member that is replaced stays beside its successor.",
        module=f"{_GROUPS}.group",
        old="old = self.members.pop(self._static[group_instance_id])",
        new="old = self.members[self._static[group_instance_id]]",
    ),
    Mutation(
        breaks=11,
        says="An instance id is not recognised when its program comes back.",
        module=f"{_GROUPS}.group",
        old="return self._static.get(group_instance_id)",
        new="return None",
    ),
    Mutation(
        breaks=11,
        says="A member id that is not the instance's own is not fenced.",
        module=f"{_GROUPS}.conditions",
        old="return owner is not None and owner != turn.event.member_id",
        new="return False",
        seed=3,
    ),
    Mutation(
        breaks=12,
        says="The end of a session is ignored.",
        module=f"{_GROUPS}.tables",
        old="Row(_WITH_MEMBERS, (if_.is_spared,)),",
        new="Row(_WITH_MEMBERS),",
        seed=1,
    ),
    Mutation(
        breaks=12,
        says="The timer of the wait for syncs is forgotten.",
        module=f"{_GROUPS}.rebalance",
        old="turn.set_timer(TimerKind.SYNC, group.rebalance_timeout)",
        new="turn.cancel_timer(TimerKind.SYNC)",
        seed=81,
    ),
    Mutation(
        breaks=12,
        says="The timer of the wait for joins is forgotten.",
        module=f"{_GROUPS}.rebalance",
        old="turn.set_timer(TimerKind.JOIN, group.rebalance_timeout)",
        new="turn.cancel_timer(TimerKind.JOIN)",
        seed=2,
    ),
    Mutation(
        breaks=12,
        says="Nobody ends the initial wait of an empty group.",
        module=f"{_GROUPS}.rebalance",
        within="if was_empty:",
        old="turn.set_timer(TimerKind.JOIN, delay)",
        new="turn.cancel_timer(TimerKind.JOIN)",
    ),
    Mutation(
        breaks=12,
        says="Only the leader's join is answered.",
        module=f"{_GROUPS}.rebalance",
        old="turn.answer_join(member, turn.joined(member.member_id, with_members=leads))",
        new="leads and turn.answer_join(member, turn.joined(member.member_id, with_members=leads))",
    ),
    Mutation(
        breaks=12,
        says="Who waits at a coordinator that gives the group up is not told.",
        module=f"{_GROUPS}.tables",
        old="Row(ANY, then=(do.refuse_all_parked, do.bury), to=DEAD),",
        new="Row(ANY, then=(do.bury,), to=DEAD),",
        seed=1,
    ),
)
