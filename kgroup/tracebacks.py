"""What the traceback of a program's exception shows: where it came from, and nothing of kgroup's.

A function that a generation runs raises in its own task or thread. Its exception surfaces much
later, where the program leaves the group's block, together with those of other functions. So the
exception gets a note that says which function it was, for which records (`StartedCall`, `explain`).
By then kgroup may have cancelled the block's body. Python would print that cancellation first, as
the context of the exception, and a reader would take it for the cause; `raise_outside` keeps it
out.

INVARIANTS: an exception gets at most one note of `explain`, however many functions of kgroup it
passes through; the cause and the context that the program's own code gave to it stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NoReturn, final

from kgroup.errors import any_repr, short_list
from kgroup.functions import name_of, program_errors
from kgroup.interfaces import Batch
from kgroup.running_loop import wrong_loop
from kgroup.types import Membership, TopicPartition

_COLLECTIONS: Final = (list, tuple, set, frozenset)
"""What a program passes several partitions in."""


class _Explanation(str):
    """A note of `explain`. Being a class of its own, it is found again in ``__notes__``.

    Attributes:
        origin: what raised the exception, if it was not the function that a generation runs.
        records: the records that were being processed, as far as they are known.
    """

    __slots__ = ("origin", "records")

    origin: str
    records: str


def explain(error: BaseException, text: str, *, origin: str = "", records: str = "") -> None:
    """Add a note that says where an exception came from, unless it has one of kgroup's already.

    The first one is the one to keep: it was added nearest to where the exception was raised.

    Args:
        error: the exception.
        text: the note.
        origin: what `what_raised` says in place of the function's name.
        records: what `what_raised` adds.
    """
    if _explanation(error) is None:
        note = _Explanation(text + wrong_loop(error))
        note.origin, note.records = origin, records
        error.add_note(note)


def what_raised(error: BaseException, fn: Callable[..., object]) -> str:
    """Say what raised an exception that a function of a generation has let through, and where.

    A worker's task has the name of the program's function, and also reads and commits for it. What
    fails there is not the function's fault.
    """
    note = _explanation(error)
    if note is None:
        return f"{name_of(fn)} raised {any_repr(error)}"
    text = f"{note.origin or name_of(fn)} raised {any_repr(error)}"
    return f"{text}, {note.records}" if note.records else text


def _explanation(error: BaseException) -> _Explanation | None:
    notes = getattr(error, "__notes__", ())
    return next((note for note in notes if isinstance(note, _Explanation)), None)


def described(batch: Batch) -> str:
    """The offsets and the partition of a batch, for notes and errors."""
    return _offsets(batch.partition, batch.messages[0].offset(), batch.messages[-1].offset())


@final
class StartedCall:
    """A call of a function that a generation runs; the block around it explains its exception.

    The block has to be all that its task or its thread does, because the function counts as the
    one that reads there until the task ends.

    Args:
        fn: the function.
        args: its arguments. Only the partitions among them are kept.
        membership: the member's in the generation.
    """

    def __init__(
        self, fn: Callable[..., object], args: tuple[Any, ...], membership: Membership
    ) -> None:
        self._name = name_of(fn)
        self._subjects = [name for arg in args for name in _subjects(arg)]
        self._membership = membership
        self._last: dict[frozenset[TopicPartition], tuple[TopicPartition, int | None, int | None]]
        """By the partitions of a stream, what it handed out last: its partition, and the first and
        the last offset. The batch itself would keep its records in memory."""
        self._last = {}

    def __enter__(self) -> None:
        # Never reset: a task has a context of its own, and a coroutine that is closed later ends in
        # a context in which it could not be reset.
        _running.set(self)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and program_errors(error)[0] is not None:
            last = [_offsets(*batch) for batch in self._last.values()]
            explain(error, str(self), records=f"with {short_list(last)}" if last else "")

    def handed_out(self, partitions: frozenset[TopicPartition], batch: Batch) -> None:
        """A stream of these partitions hands a batch to the function."""
        first, last = batch.messages[0].offset(), batch.messages[-1].offset()
        self._last[partitions] = batch.partition, first, last

    def __str__(self) -> str:
        member = self._membership
        text = f"{self._name} raised this in generation {member.generation_id}"
        text += f" of group {member.group_id!r}"
        if self._subjects:
            text += f"; it was started with {short_list(self._subjects)}"
        if self._last:
            batches = [_offsets(*last) for last in self._last.values()]
            text += f"; its stream last handed out {short_list(batches)}"
        return text


_running: Final[ContextVar[StartedCall | None]] = ContextVar("kgroup_running", default=None)


def handed_out(partitions: frozenset[TopicPartition], batch: Batch) -> None:
    """A stream of these partitions hands out a batch in this task or thread.

    If a function runs here that a generation has started, the note on its exception will say so.
    """
    if (call := _running.get()) is not None:
        call.handed_out(partitions, batch)


def raise_outside(error: BaseException, outside: BaseException | None) -> NoReturn:
    """Raise an exception as if the one that is being handled here were not.

    Args:
        error: the exception. It keeps its own cause and context.
        outside: the context of an exception that has none: what the program itself was handling
            when it entered the block that raises.
    """
    context = error.__context__ or outside
    try:
        raise error
    finally:
        error.__context__ = context


def _subjects(arg: object) -> Iterator[str]:
    """The partitions, and the batches, that an argument of a function has."""
    if isinstance(arg, TopicPartition):
        yield str(arg)
    elif isinstance(arg, Batch):
        yield described(arg)
    elif isinstance(arg, _COLLECTIONS):
        yield from (str(one) for one in arg if isinstance(one, TopicPartition))


def _offsets(partition: TopicPartition, first: int | None, last: int | None) -> str:
    if first == last:
        return f"offset {first} of {partition}"
    return f"offsets {first} to {last} of {partition}"
