"""A program with what it reads and where it writes: values of records, and a store of each run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, final

import attrs
import trio

from kgroup import arguments
from kgroup.errors import UsageError, short_repr
from kgroup.testing.simulation.process import Process, Worker
from kgroup.types import TopicPartition

Value = Callable[[TopicPartition, int], bytes]
"""Makes the value of a record of its partition and its number, which no other record has."""
Setup = Callable[[], Any]
"""Makes what `Process.store` is in one run: a value, or a context manager that gives one."""


@final
@attrs.frozen
class Workload:
    """A program, and what `check` and `simulate` were given beside it.

    Attributes:
        worker: the program.
        value: makes values of records; by default, a value is the record's number in digits.
        setup: makes the store of one run; by default, that is an empty dict.
    """

    worker: Worker
    value: Value | None = None
    setup: Setup | None = None

    @classmethod
    def of(cls, worker: Worker, value: Value | None = None, setup: Setup | None = None) -> Workload:
        """A workload of these; a workload that was given as the program is taken as it is.

        Raises:
            ArgumentError: something that was given is no function.
        """
        if isinstance(worker, Workload):
            return worker
        arguments.callback("value", value)
        arguments.callback("setup", setup)
        return cls(worker, value, setup)

    async def __call__(self, process: Process) -> None:
        """Run the program."""
        await self.worker(process)

    def value_of(self, partition: TopicPartition, number: int) -> bytes:
        """The value of a record.

        Raises:
            UsageError: the program's function returned no bytes.
        """
        __tracebackhide__ = True
        if self.value is None:
            return b"%d" % number
        made = self.value(partition, number)
        if not isinstance(made, bytes):
            raise UsageError(
                f"value({partition}, {number}) returned {short_repr(made)}; it must return bytes"
            )
        return made

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Any]:
        """The store of one run, for the time of the block."""
        await trio.lowlevel.checkpoint()
        made: Any = {} if self.setup is None else self.setup()
        if isinstance(made, Awaitable):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            async with made as store:
                yield store
        elif isinstance(made, AbstractContextManager):
            with made as store:
                yield store
        else:
            yield made


def own_frames(frames: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the program's ``value`` or ``setup``.

    What called them is of no use to whoever wrote them. The traceback of an error that has not come
    from them is returned as it is.
    """
    last = None
    one = frames
    while one is not None:
        if one.tb_frame.f_globals.get("__name__") == __name__:
            last = one
        one = one.tb_next
    return frames if last is None else last.tb_next or last
