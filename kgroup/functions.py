"""Checks of functions that kgroup calls: before the first call, and of what a call returned.

A function of the wrong kind does nothing when it is called: an async one returns a coroutine, a
generator function returns a generator. A worker that took that for a result would commit records
that were never processed. So such a function is refused when it is passed, as far as it shows by
then; a lambda, for one, may return a coroutine. And each result is checked.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import CodeType
from typing import Any, Final

from kgroup import arguments
from kgroup.errors import ArgumentError, UsageError, count_of, short_repr
from kgroup.running_loop import is_cancellation

_GENERATOR: Final = "it is a generator function, so a call would run none of it; remove the `yield`"


ON_BATCH: Final = ("generation", "batch")
"""What a function for batches is called with."""
ON_RECORD: Final = ("generation", "message")
"""What a function for single records is called with."""
ON_FAILURE: Final = ("message", "error")
"""What a function that puts a record aside is called with."""
_MOST_ITEMS: Final = 1000
"""How many items of a collection are looked at; a function may return a million rows."""
_ON_EVENT: Final = ("event",)
_PLAIN_HANDLER: Final = (
    "nothing awaits it, because events are emitted in the middle of other work; give a plain"
    " function, which may put the event into a queue or start a task"
)


END_ALL: Final = (KeyboardInterrupt, GeneratorExit)
"""What ends everything at once, wherever it is raised; so does a cancellation."""


def is_program_error(error: BaseException) -> bool:
    """Whether a function has raised this, and the others still finish what they have begun.

    Anything is that does not end everything at once: also what ``sys.exit()`` raises, and an
    exception of the program that is no ``Exception``. A group is if all in it are.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_program_error, error.exceptions))
    return not isinstance(error, END_ALL) and not is_cancellation(error)


def program_errors(
    error: BaseException,
) -> tuple[BaseException | None, BaseException | None]:
    """What of an error `is_program_error`, and the rest; None in place of nothing.

    If a function is cancelled while a task of its own fails, as in its cleanup, its nursery raises
    the failure and the cancellation in one group.
    """
    if isinstance(error, BaseExceptionGroup):
        return error.split(is_program_error)
    return (error, None) if is_program_error(error) else (None, error)


def name_of(handle: Callable[..., object]) -> str:
    """The name of a function, for errors and for the end of the generation that it causes."""
    return getattr(handle, "__qualname__", None) or repr(handle)


def is_async(fn: object) -> bool:
    """Whether a function is async, as far as it shows before a call."""
    return _is(inspect.iscoroutinefunction, fn)


def is_generator(fn: object) -> bool:
    """Whether a call would run none of a function, because it contains a ``yield``."""
    return _is(_generates, fn)


def check_async(name: str, fn: object, parameters: tuple[str, ...], *, instead: str) -> None:
    """Check a function that has to return an awaitable.

    Args:
        name: the argument's name.
        fn: its value.
        parameters: what the function is called with, in words.
        instead: what the program should do with a plain function.

    Raises:
        ArgumentError: it is no function, a plain or a generator function, or takes other
            parameters.
    """
    _check_called(name, fn)
    _check_parameters(name, fn, parameters)
    check_awaitable(name, fn, instead)


def check_task(name: str, fn: object, args: tuple[object, ...], *, instead: str) -> None:
    """Check a function that has to return an awaitable, and the arguments to call it with.

    Args:
        name: the argument's name.
        fn: its value.
        args: what the function is called with.
        instead: what the program should do with a plain function.

    Raises:
        ArgumentError: it is no function, a plain or a generator function, or takes other arguments.
    """
    _check_called(name, fn)
    check_arguments(name, fn, args)
    check_awaitable(name, fn, instead)


def check_arguments(name: str, fn: object, args: tuple[object, ...]) -> None:
    """Check that a function can be called with these arguments, as far as its signature says.

    Raises:
        ArgumentError: it takes other arguments.
    """
    if fault := misfit(fn, args):
        given = count_of(len(args), "argument") if args else "no arguments"
        raise ArgumentError(name, fn, f"it is called with {given}, but {fault}")


def misfit(fn: Any, args: tuple[object, ...], *, follow_wrapped: bool = False) -> str:
    """Why a function cannot be called with these arguments; nothing if it can, or is not known.

    Args:
        fn: the function.
        args: the arguments.
        follow_wrapped: whether a decorated function has the signature of the one that it wraps. A
            decorator may pass further arguments to that; ``contextlib.contextmanager`` does not.
    """
    try:
        signature = inspect.signature(fn, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return ""  # some functions that are written in C have none
    try:
        signature.bind(*args)
    except TypeError as error:
        return str(error)
    return ""


def check_plain(name: str, fn: object, parameters: tuple[str, ...] | None, *, instead: str) -> None:
    """Check a function that is called in a thread.

    Args:
        name: the argument's name.
        fn: its value.
        parameters: what the function is called with, in words; None if that is not checked.
        instead: what the program should do with an async function.

    Raises:
        ArgumentError: it is no function, async, a generator function, or takes other parameters.
    """
    _check_called(name, fn)
    if is_async(fn):
        raise ArgumentError(name, fn, f"it is an async function; {instead}")
    if parameters is not None:
        _check_parameters(name, fn, parameters)


def check_event_handler(name: str, fn: object) -> None:
    """Check a function that is called with each event.

    Raises:
        ArgumentError: it is no function, async, a generator function, or takes other parameters.
    """
    check_plain(name, fn, _ON_EVENT, instead=_PLAIN_HANDLER)


def check_handled(handler: Callable[..., object], returned: object) -> None:
    """Check what a function returned that was called with an event.

    A task or a future is allowed: its work goes on by itself.

    Raises:
        UsageError: the result is a coroutine.
    """
    if inspect.iscoroutine(returned):
        returned.close()  # otherwise Python warns that it was never awaited
        raise UsageError(f"{name_of(handler)} returned {short_repr(returned)}: {_PLAIN_HANDLER}")


def check_park(fn: object) -> None:
    """Check that what shall put records aside is not the name of a topic.

    Raises:
        ArgumentError: it is one.
    """
    if isinstance(fn, str):
        made = f"kgroup.DeadLetters(producer, {short_repr(fn)})"
        allowed = f"it must be a function or a kgroup.DeadLetters; for a topic give {made}"
        raise ArgumentError("park", fn, allowed)


def check_result(fn: Callable[..., object], returned: object, instead: str) -> None:
    """Check what a function returned, once it was awaited if it is async.

    Args:
        fn: the function.
        returned: its result.
        instead: what the program should do with an async function.

    Raises:
        UsageError: the result is work that has not been done, or a collection with some: a
            coroutine, a future, a generator or another iterator that computes.
    """
    items: Iterable[object] = ()
    if isinstance(returned, (list, tuple, set, frozenset)):
        items = itertools.islice(returned, _MOST_ITEMS)
    elif isinstance(returned, dict):
        items = itertools.islice(returned.values(), _MOST_ITEMS)
    if faults := [fault for one in (returned, *items) if (fault := _undone(one, instead))]:
        raise UsageError(f"{name_of(fn)} returned {short_repr(returned)}{faults[0]}")


def _undone(value: object, instead: str) -> str:
    """Why a value is work that may not be done yet, and what to do about it; empty if it is not."""
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited
    if inspect.isawaitable(value):
        return f": {instead}"
    if _is_pending(value):
        return ", whose work may not be done yet: wait for its result in the function"
    # Other iterators may be cursors of a database, or open files.
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return ", which runs only as far as values are taken from it: take them in the function"
    if isinstance(value, (map, filter, itertools.starmap)):
        return ", which computes only what is taken from it: use a loop"
    return ""


def _is_pending(value: object) -> bool:
    """Whether a value stands for work elsewhere that is not known to have succeeded."""
    if isinstance(value, Future):
        return not value.done() or value.cancelled() or value.exception() is not None
    # A program that has such a result of multiprocessing has imported it.
    pool: Any = sys.modules.get("multiprocessing.pool")
    if pool is None:
        return False
    if isinstance(value, pool.AsyncResult):
        return not value.ready() or not value.successful()
    return isinstance(value, pool.IMapIterator)


def _is(kind: Callable[[Any], bool], fn: Any) -> bool:
    """Whether a function is of a kind; so are a partial of it, and an object with such a call."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return kind(fn) or (not inspect.isroutine(fn) and kind(type(fn).__call__))


def _generates(fn: Any) -> bool:
    if getattr(getattr(fn, "__code__", None), "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE:
        return False  # types.coroutine has made it awaitable
    return inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)


def _check_called(name: str, fn: object) -> None:
    arguments.function(name, fn)
    if is_generator(fn):
        raise ArgumentError(name, fn, _GENERATOR)


def check_awaitable(name: str, fn: object, instead: str) -> None:
    """Check that a function returns an awaitable, as far as that shows before a call.

    Raises:
        ArgumentError: it is a plain function that can return nothing.
    """
    if not is_async(fn) and _is(_returns_nothing, fn):
        raise ArgumentError(name, fn, f"it is not an async function; {instead}")


def _returns_nothing(fn: Any) -> bool:
    """Whether a plain function can return nothing but None, so that nothing could be awaited.

    A plain function may return what another one made to be awaited, as many decorators do. Only its
    code shows that it does not.
    """
    code = getattr(fn, "__code__", None)
    if not isinstance(code, CodeType) or inspect.isgeneratorfunction(fn):
        return False
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":  # of Python 3.12 and 3.13
            if instruction.argval is not None:
                return False
        elif instruction.opname == "RETURN_VALUE":
            # At a jump's target, another value may be on the stack.
            if before is None or before.opname != "LOAD_CONST" or instruction.is_jump_target:
                return False
            if before.argval is not None:
                return False
        before = instruction
    return True


def _check_parameters(name: str, fn: Any, parameters: tuple[str, ...]) -> None:
    if fault := misfit(fn, parameters):
        raise ArgumentError(name, fn, f"it is called with ({', '.join(parameters)}), but {fault}")
