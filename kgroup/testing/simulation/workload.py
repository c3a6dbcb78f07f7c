"""A program with what it reads and where it writes: values of records, and a store of each run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, final

import attrs
import trio

from kgroup import arguments
from kgroup.errors import ArgumentError, UsageError, short_repr
from kgroup.functions import check_awaitable, is_generator, misfit
from kgroup.testing.simulation.process import Process, Worker
from kgroup.types import TopicPartition

Value = Callable[[TopicPartition, int], bytes]
"""Makes the value of a record of its partition and its number, which no other record has."""
Setup = Callable[[], Any]
"""Makes what `Process.store` is in one run: a value, or a context manager that gives one."""


_ASYNC_FUNCTION: Final = "it must be an async function that takes a Process"


@final
class NotAsyncError(UsageError):
    """A program turned out not to be an async function; no start of it can work."""


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
        _check_worker(worker)
        _check_call("value", value, (TopicPartition("orders", 0), 0), "a partition and a number")
        _check_call("setup", setup, (), "nothing")
        return cls(worker, value, setup)

    async def __call__(self, process: Process) -> None:
        """Run the program.

        Raises:
            NotAsyncError: it is no async function.
        """
        made: object = self.worker(process)
        if not isinstance(made, Awaitable):
            raise NotAsyncError(
                f"the worker {short_repr(self.worker)} returned {short_repr(made)};"
                f" {_ASYNC_FUNCTION}"
            )
        await made

    async def try_out(self, topics: Mapping[str, int] | None) -> None:
        """Make one value and one store, as every simulation does.

        Raises:
            UsageError: the value is no bytes.
            Exception: what ``value`` or ``setup`` raised, with a note.
        """
        topic = next(iter(topics or ("orders",)))
        step = "value"
        try:
            self.value_of(TopicPartition(topic, 0), 0)
            step = "setup"
            async with self.store():
                pass
        except Exception as error:
            error.add_note(f"This happened when `{step}` was tried out, before any simulation.")
            raise

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


def _check_worker(worker: object) -> None:
    """Refuse what cannot be a program; of some, only a call shows whether they are async."""
    arguments.function("worker", worker)
    if is_generator(worker):
        raise ArgumentError("worker", worker, f"it contains `yield`; {_ASYNC_FUNCTION}")
    _check_call("worker", worker, (None,), "a Process")
    check_awaitable("worker", worker, _ASYNC_FUNCTION)


def _check_call(name: str, given: object, example: tuple[object, ...], what: str) -> None:
    """Check that a function can be called with these arguments; None is no function, and allowed.

    Raises:
        ArgumentError: it cannot be called at all, or not so.
    """
    if given is None:
        return
    if fault := misfit(arguments.function(name, given), example, follow_wrapped=True):
        raise ArgumentError(name, given, f"it is called with {what}: {fault}")


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
