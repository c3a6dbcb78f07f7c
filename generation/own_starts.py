"""Where partitions start by the program's own store, which ``GroupConfig.starts`` reads.

A program that keeps its offsets in the same transaction as its results processes each record once,
whatever it commits to the group. The function is called for each generation before the hand-over,
beside the heartbeats, so a slow store costs no membership. It is reported while it takes long.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, final

import trio

from kgroup import arguments
from kgroup.errors import ArgumentError
from kgroup.events import OwnStartsDelayed
from kgroup.functions import name_of
from kgroup.generation.lifecycle import Lifecycle
from kgroup.generation.member_context import MemberContext
from kgroup.types import TopicPartition

REPORTED_AFTER: Final = 10.0
"""Seconds after which, again and again, a function that does not return is reported."""
_NAME: Final = "what the function of GroupConfig.starts returned"


@final
class OwnStarts:
    """Calls the function of ``GroupConfig.starts`` for one generation, and checks what it returns.

    Args:
        member: the parts of the member.
        lifecycle: the generation's.
    """

    def __init__(self, member: MemberContext, lifecycle: Lifecycle) -> None:
        self._member = member
        self._lifecycle = lifecycle

    async def load(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the program's store has of these partitions, as far as it has any.

        Raises:
            ArgumentError: the function returned something else than offsets of partitions.
            Exception: what the function raised.

        Cancellation: an async function is cancelled. The thread of another one runs on, its result
            is ignored, and the next call waits until it has ended.
        """
        load = self._member.config.starts
        if load is None or not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        wanted = tuple(sorted(partitions))
        returned = trio.Event()
        self._lifecycle.start_service(self._report, load, len(wanted), returned)
        try:
            return _checked(await self._call(load, wanted), wanted)
        except Exception as error:
            membership = self._lifecycle.membership
            error.add_note(
                f"it comes of {name_of(load)}, the function of GroupConfig.starts, which was called"
                f" for {len(wanted)} partitions in generation {membership.generation_id} of group"
                f" {membership.group_id!r}; nothing was read"
            )
            raise
        finally:
            returned.set()

    async def _call(
        self, load: Callable[..., Any], partitions: tuple[TopicPartition, ...]
    ) -> object:
        if inspect.iscoroutinefunction(load):
            return await load(partitions)
        name = f"kgroup-starts {self._lifecycle.membership.group_id}"
        returned = await self._member.starts_thread(partial(load, partitions), name)
        return await returned if inspect.isawaitable(returned) else returned

    async def _report(self, load: Callable[..., Any], count: int, returned: trio.Event) -> None:
        began = trio.current_time()
        while not returned.is_set():
            with trio.move_on_after(REPORTED_AFTER):
                await returned.wait()
                return
            self._member.emitter.emit(
                OwnStartsDelayed,
                function=name_of(load),
                partitions=count,
                waited=trio.current_time() - began,
            )


def _checked(returned: object, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if not isinstance(returned, Mapping):
        shape = "it must be a mapping of kgroup.TopicPartition to an int or None"
        raise ArgumentError(_NAME, returned, shape)
    given = {arguments.partition(_NAME, one): offset for one, offset in returned.items()}
    return {one: _offset(one, given[one]) for one in wanted if given.get(one) is not None}


def _offset(partition: TopicPartition, value: object) -> int:
    name = f"{partition}: the offset in {_NAME}"
    return arguments.position(name, value, "return", "None, for the group's committed offset")
