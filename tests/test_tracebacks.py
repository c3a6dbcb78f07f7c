"""The notes on exceptions of a program's functions, and the contexts with which they are raised."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kgroup.interfaces import Batch
from kgroup.tracebacks import StartedCall, explain, handed_out, raise_outside, what_raised
from kgroup.types import Membership, TopicPartition
from tests.program_exceptions import UnprintableError

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBERSHIP = Membership(
    group_id="g",
    member_id="m",
    group_instance_id=None,
    generation_id=7,
    epoch=1,
    assignor="range",
    leader=True,
)


def batch_of(partition: TopicPartition, first: int, last: int) -> Batch:
    """A batch from one offset to another."""
    messages: Any = [SimpleNamespace(offset=_giving(offset)) for offset in (first, last)]
    return Batch(partition=partition, messages=messages, next_offset=last + 1, epoch=1)


def _giving(offset: int) -> Callable[[], int]:
    return lambda: offset


def handle(*_: object) -> None:
    """The program's function."""


def note_of(*args: object, given: tuple[Batch, ...] = ()) -> str:
    """The only note on an exception of a call with these arguments, which got these batches."""

    def fail() -> None:
        with StartedCall(handle, args, MEMBERSHIP):
            for batch in given:
                handed_out(frozenset({batch.partition}), batch)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        contextvars.copy_context().run(fail)
    (note,) = raised.value.__notes__
    return note


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((), ""),
        ((object(), "orders", 0), ""),
        ((object(), P0), "; it was started with orders-0"),
        (([P0, P1], {"other": P0}), "; it was started with orders-0, orders-1"),
        ((batch_of(P1, 3, 9),), "; it was started with offsets 3 to 9 of orders-1"),
    ],
)
def test_the_note_names_the_function_and_its_partitions(
    args: tuple[object, ...], what: str
) -> None:
    """It has the function, the generation, the group, and each partition among the arguments."""
    assert note_of(*args) == f"handle raised this in generation 7 of group 'g'{what}"


def test_the_note_has_the_last_batch_of_each_stream() -> None:
    """Batches that came before the last one of their stream are not named."""
    note = note_of(P0, given=(batch_of(P0, 0, 4), batch_of(P1, 7, 7), batch_of(P0, 5, 9)))
    assert note.endswith(
        "; its stream last handed out offsets 5 to 9 of orders-0, offset 7 of orders-1"
    )


def test_a_batch_outside_of_every_call() -> None:
    """A stream that the body of the loop reads is of no function, and nothing is kept of it."""
    handed_out(frozenset({P0}), batch_of(P0, 0, 1))
    assert "handed out" not in note_of()


def test_the_first_note_is_the_only_one() -> None:
    """An exception that has been explained gets no second note; the program's own do not count."""
    error = ValueError("wrong")
    error.add_note("the program's")
    explain(error, "first")
    explain(error, "second")
    with pytest.raises(ValueError, match="wrong"), StartedCall(handle, (), MEMBERSHIP):
        raise error
    assert error.__notes__ == ["the program's", "first"]


def test_a_cancellation_gets_no_note() -> None:
    """What ends a function from outside is no exception of the function."""
    with pytest.raises(KeyboardInterrupt) as raised, StartedCall(handle, (), MEMBERSHIP):
        raise KeyboardInterrupt
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("outside", [None, LookupError("outside")])
def test_an_exception_is_raised_outside(outside: Exception | None) -> None:
    """The exception that is being handled is not its context; the given one is."""
    with pytest.raises(ValueError, match="wrong") as raised:
        try:
            raise KeyError
        except KeyError:
            raise_outside(ValueError("wrong"), outside)
    assert raised.value.__context__ is outside


def test_its_own_context_and_cause_stay() -> None:
    """Whatever is being handled where it is raised, and outside."""
    context, cause = LookupError("context"), LookupError("cause")
    error = ValueError("wrong")
    error.__context__, error.__cause__ = context, cause
    with pytest.raises(ValueError, match="wrong"):
        try:
            raise KeyError
        except KeyError:
            raise_outside(error, LookupError("outside"))
    assert (error.__context__, error.__cause__) == (context, cause)


def test_an_exception_that_cannot_be_printed() -> None:
    """Its class is named in place of it; what it raises itself is not raised."""
    error = UnprintableError()
    assert what_raised(error, handle) == "handle raised <UnprintableError that cannot be printed>"
    explain(error, "a note", records="for offset 3")
    assert what_raised(error, handle).endswith("that cannot be printed>, for offset 3")
