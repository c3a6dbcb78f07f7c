"""Mutations of the client and of the simulated program, by the invariant that each breaks."""

from __future__ import annotations

from typing import Final

from tests.testing.simulation.mutations.mutation import Mutation

_WORKER: Final = "kgroup.testing.simulation.default_program"
_STORED: Final = "stored = {name: self._open.pop(name) for name, code in codes.items()"
_END_REPORTED: Final = (
    "self._emitter.emit(GenerationEnded, end=last.end, cut_short=last.lifecycle.cut_short)"
)

CLIENT: Final = (
    Mutation(
        breaks=1,
        description="The round-robin assignor forgets the last partition.",
        module="kgroup.assignors.roundrobin",
        old="parts[place].append(span[step :: len(places)])",
        new="parts[place].append(span[:-1][step :: len(places)])",
        seed=4,
    ),
    Mutation(
        breaks=1,
        description="The range assignor assigns no more than divides evenly.",
        module="kgroup.assignors.range",
        old="width = least + (nth < extra)",
        new="width = least",
    ),
    Mutation(
        breaks=2,
        description="The lease never runs out, however long no heartbeat was answered.",
        module="kgroup.client.lease",
        old="return self.ends - self._clock.now()",
        new="return self._session_timeout",
        seed=2,
    ),
    Mutation(
        breaks=5,
        description="Partitions of the previous assignment are kept in the new one.",
        module="kgroup.generation.received_assignment",
        old="assignment = Assignment(received.partitions, previous, retained)",
        new="assignment = Assignment({*received.partitions, *previous}, previous, retained)",
    ),
    Mutation(
        breaks=5,
        description="The committed offset is one too far.",
        module="kgroup.client.coordinator",
        old='"committed_offset": position.offset,',
        new='"committed_offset": position.offset + 1,',
    ),
    Mutation(
        breaks=7,
        description="A batch reports an end one record too far.",
        module="kgroup.records.buffered_source",
        old="next_offset=queue.position,",
        new="next_offset=queue.position + 1,",
    ),
    Mutation(
        breaks=5,
        description="In a commit all partitions of a topic get the offset of the first.",
        module="kgroup.client.coordinator",
        old="_commit_partition(number, offsets[TopicPartition(topic, number)], version)",
        new="_commit_partition(number, offsets[TopicPartition(topic, numbers[0])], version)",
        seed=4,
    ),
    Mutation(
        breaks=6,
        description="A generation starts one record before the committed offset.",
        module="kgroup.generation.start_finder",
        old="known = {name: at.offset for name, at in committed.items() if at is not None}",
        new="known = {name: max(at.offset - 1, 0) for name, at in committed.items() if at}",
    ),
    Mutation(
        breaks=6,
        description="A kept partition continues where its queue is.",
        module="kgroup.records.buffered_source",
        old="if queue is None or partition in added or not queue.continues_at(offset):",
        new="if queue is None or partition in added:",
        seed=16,
    ),
    Mutation(
        breaks=6,
        description="A generation ignores the committed offset and starts at the beginning.",
        module="kgroup.generation.start_finder",
        old="starts = {name: known.get(name, 0) for name in assignment}",
        new="starts, epochs = dict.fromkeys(assignment, 0), {}",
    ),
    Mutation(
        breaks=7,
        description="The program commits before it processes.",
        module=_WORKER,
        old="await process.process(message)",
        new="await generation.commit({partition: batch.next_offset});"
        " await process.process(message)",
        seed=1,
    ),
    Mutation(
        breaks=7,
        description="The program commits its whole batch when it breaks off.",
        module=_WORKER,
        old="await generation.commit({partition: message.offset() + 1})",
        new="await generation.commit({partition: batch.next_offset})",
        seed=23,
    ),
    Mutation(
        breaks=7,
        description="A batch that may no longer be handed out is not returned to the source.",
        module="kgroup.generation.record_stream",
        old="source.put_back(self._epoch, batch)",
        new="source.seek(self._epoch, batch.partition, batch.next_offset)",
        seed=21,
    ),
    Mutation(
        breaks=7,
        description="A batch that is cut out of a longer run takes one record too many from it.",
        module="kgroup.records.buffer",
        old="run.start += room",
        new="run.start += room + (left > room + 1)",
        seed=3,
    ),
    Mutation(
        breaks=7,
        description="Without a committed offset reading starts at the end.",
        module="kgroup.generation.offset_requests",
        old="names, timestamp, use_cached=use_cached",
        new="names, -1, use_cached=use_cached",
        seed=1,
    ),
    Mutation(
        breaks=8,
        description="The drain does not wait for tasks.",
        module="kgroup.generation.lifecycle",
        old="while self._is_working and self.state is State.DRAINING:",
        new="while self._body is not None and self.state is State.DRAINING:",
        seed=1,
    ),
    Mutation(
        breaks=8,
        description="A generation that drains refuses to commit.",
        module="kgroup.generation.generation",
        old="if self.state is State.ENDED and self.end is not None:",
        new="if self.end is not None:",
        seed=1,
    ),
    Mutation(
        breaks=8,
        description="The program does not commit what it has processed when it breaks off.",
        module=_WORKER,
        old="await generation.commit({partition: message.offset() + 1})",
        new="pass",
        seed=23,
    ),
    Mutation(
        breaks=8,
        description="A refused commit counts as applied.",
        module="kgroup.generation.commit_request",
        old=f"{_STORED} if code == _APPLIED}}",
        new=f"{_STORED}}}",
        seed=18,
    ),
    Mutation(
        breaks=10,
        description="The end of a lost generation is not reported.",
        module="kgroup.member",
        old=_END_REPORTED,
        new=f"last.end.can_commit and {_END_REPORTED}",
    ),
    Mutation(
        breaks=10,
        description="The end of a generation is reported twice.",
        module="kgroup.member",
        old="await runner.run(offer)",
        new="await runner.run(offer); self._remember(runner)",
    ),
    Mutation(
        breaks=10,
        description="The end of a generation is reported only if it was handed over.",
        module="kgroup.member",
        old=_END_REPORTED,
        new=f"last.handed_over and {_END_REPORTED}",
        seed=3,
    ),
    Mutation(
        breaks=11,
        description="A member that is fenced joins again.",
        module="kgroup.client.error_policy",
        within="Request.HEARTBEAT: {",
        old="ErrorCode.FENCED_INSTANCE_ID: _FENCED,",
        new="ErrorCode.FENCED_INSTANCE_ID: _UNKNOWN_MEMBER,",
        seed=3,
    ),
    Mutation(
        breaks=6,
        description="A seek has no effect.",
        module="kgroup.generation.generation",
        old="source.seek(self.epoch, partition, position)",
        new="pass",
    ),
    Mutation(
        breaks=13,
        description="The isolation level is ignored.",
        module="kgroup.records.memory",
        old="self._isolation = isolation",
        new="self._isolation = IsolationLevel.READ_UNCOMMITTED",
    ),
)
