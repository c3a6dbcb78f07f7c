"""The groups of one broker, their shards, and their records.

A shard is a partition of the offsets topic; the hash of a group's id says which.

Source: Kafka's ``CoordinatorRuntime`` and ``GroupCoordinatorShard``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, final

from kgroup.broker.groups import retention
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.java_hashing import shard_of
from kgroup.broker.groups.machine import GroupMachine
from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import Snapshot
from kgroup.broker.groups.requests import DeleteGroups, JoinGroup, Ticket
from kgroup.broker.groups.responses import CoordinatorResponse
from kgroup.broker.groups.states import DEAD, EMPTY
from kgroup.broker.groups.timers import Timers
from kgroup.broker.groups.validation import (
    IncomingRequest,
    Shard,
    absent_group_error,
    precondition_error,
)
from kgroup.broker.groups.write_faults import WriteFaults
from kgroup.error_codes import ErrorCode


@final
class Registry:
    """Groups by their ids, with their offsets and timers.

    Attributes:
        machines: by group id, in the order in which the groups were created.
        write_faults: decides which writes to the log fail.
        shut_down: whether every request is answered COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_id: Callable[[], str],
        topics: Callable[[str], int | None],
        shards: Collection[int] | None,
        max_batch_bytes: int,
    ) -> None:
        self.settings = settings
        self.machines: dict[str, GroupMachine] = {}
        self.store = OffsetStore(self.shard_of)
        self.timers = Timers()
        self.write_faults = WriteFaults(max_batch_bytes)
        self.shut_down = False
        self._new_id = new_id
        self._topics = topics
        led = range(settings.offsets_topic_partitions) if shards is None else shards
        self._shards = dict.fromkeys(led, Shard.ACTIVE)

    def group(self, group_id: str) -> ClassicGroup | None:
        """A group, or None."""
        machine = self.machines.get(group_id)
        return None if machine is None else machine.group

    @property
    def is_full(self) -> bool:
        """Whether the broker has as many groups as it may have; Kafka has no such limit."""
        return len(self.machines) >= self.settings.max_groups

    def create(self, now: float, group_id: str) -> GroupMachine:
        """Create a group without members and without a record."""
        return self._add(ClassicGroup(group_id, since=now))

    def create_by_join(
        self, now: float, request: JoinGroup, ticket: Ticket
    ) -> list[CoordinatorResponse]:
        """Handle a JoinGroup to an absent group, which it creates if the record can be written."""
        machine = self.create(now, request.group_id)
        responses = machine.join_new_group(now, request, ticket)
        if machine.group.state is DEAD:
            self.discard(request.group_id)
        return responses

    def discard(self, group_id: str) -> None:
        """Remove a group of which nothing has been written."""
        del self.machines[group_id]

    def is_empty(self, group_id: str) -> bool:
        """Whether a group exists and has no members."""
        group = self.group(group_id)
        return group is not None and group.state is EMPTY

    def exists(self, topic: str, partition: int) -> bool:
        """Whether a partition exists."""
        partitions = self._topics(topic)
        return partitions is not None and 0 <= partition < partitions

    # Validation

    def precondition_error(self, request: Any, group_id: str) -> ErrorCode | None:
        """The error of the checks before the group is looked up, or None."""
        return self._precondition_error(request, group_id, self.shard(group_id))

    def precondition_error_in_any_shard(self, request: Any) -> ErrorCode | None:
        """The same for a request that concerns all groups: the first error of any shard."""
        errors = (self._precondition_error(request, "", shard) for shard in self._shards.values())
        return next((error for error in errors if error is not None), None)

    def validate(self, now: float, request: Any) -> ErrorCode:
        """The error of a commit or an offset delete, or NONE; a commit may create the group."""
        machine = self.machines.get(request.group_id)
        if machine is None:
            error = absent_group_error(request)
            if error is not None:
                return error
            if self.is_full:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            machine = self.create(now, request.group_id)
        return machine.validate(now, request)

    def delete(self, now: float, group_id: str, request: Any) -> ErrorCode:
        """Delete a group and its offsets, if its state allows it."""
        machine = self.machines.get(group_id)
        if machine is None:
            return absent_group_error(request) or ErrorCode.NONE
        error = machine.validate(now, request)
        if error is ErrorCode.NONE:
            del self.machines[group_id]
            self.store.delete_group(group_id)
        return error

    def drop_expired(self, now: float, group_id: str) -> None:
        """Delete a group's expired offsets, and the group if it is unused then."""
        group, store = self.machines[group_id].group, self.store
        expired = retention.expired(now, self.settings.offsets_retention, group, store)
        is_unused = len(expired) == len(store.of_group(group_id)) and not store.has_transaction(
            group_id
        )
        deletes_group = is_unused and group.state is EMPTY
        if not (expired or deletes_group) or self.write_faults.append() is not ErrorCode.NONE:
            return
        store.delete(group_id, expired)
        if deletes_group:
            self.delete(now, group_id, DeleteGroups(group_ids=(group_id,)))

    # Shards

    def shard_of(self, group_id: str) -> int:
        """The shard that a group belongs to."""
        return shard_of(group_id, self.settings.offsets_topic_partitions)

    def shard(self, group_id: str) -> Shard:
        """Whether this broker coordinates the shard of a group."""
        return self._shards.get(self.shard_of(group_id), Shard.ELSEWHERE)

    def snapshot(self, shards: Collection[int] | None) -> Snapshot:
        """The records of some shards, of all if None."""
        group_ids = self._groups_in(shards)
        offsets, pending = self.store.snapshot(group_ids)
        records = {name: self.machines[name].group.record for name in self.machines}
        return Snapshot(
            groups={
                name: record
                for name, record in records.items()
                if record is not None and name in group_ids
            },
            offsets=offsets,
            pending=pending,
        )

    def unload(self, now: float, shards: Collection[int] | None) -> list[CoordinatorResponse]:
        """Give up shards, all if None, and answer the requests that are parked in them."""
        responses: list[CoordinatorResponse] = []
        group_ids = self._groups_in(shards)
        for group_id in group_ids:
            if group_id in self.machines:
                responses += self.machines.pop(group_id).unload(now)
        self.store.unload(group_ids)
        for shard in list(self._shards) if shards is None else shards:
            self._shards.pop(shard, None)
        return responses

    def begin_loading(self, shards: Collection[int]) -> None:
        """Lead shards whose records are not loaded yet."""
        self._shards.update(dict.fromkeys(shards, Shard.LOADING))

    def load(self, now: float, snapshot: Snapshot, shards: Collection[int]) -> None:
        """Lead shards with these records; every member's session starts again."""
        self._shards.update(dict.fromkeys(shards, Shard.ACTIVE))
        self.store.load(snapshot.offsets, snapshot.pending)
        for record in snapshot.groups.values():
            self._add(ClassicGroup.from_record(record))
        for group_id in snapshot.offsets:
            if group_id not in self.machines:
                self.create(now, group_id)
        for group_id in snapshot.groups:
            self.machines[group_id].loaded(now)

    def _add(self, group: ClassicGroup) -> GroupMachine:
        machine = GroupMachine(group, self.settings, self.timers, self.write_faults, self._new_id)
        self.machines[group.group_id] = machine
        return machine

    def _groups_in(self, shards: Collection[int] | None) -> dict[str, None]:
        group_ids = dict.fromkeys((*self.machines, *self.store.group_ids()))
        if shards is None:
            return group_ids
        wanted = set(shards)
        return {name: None for name in group_ids if self.shard_of(name) in wanted}

    def _precondition_error(self, request: Any, group_id: str, shard: Shard) -> ErrorCode | None:
        return precondition_error(
            IncomingRequest(
                request=request,
                group_id=group_id,
                shard=shard,
                shut_down=self.shut_down,
                settings=self.settings,
            )
        )
