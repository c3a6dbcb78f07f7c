"""Functions that cannot do what a worker calls them for, and results that are no results."""

from __future__ import annotations

import asyncio
import functools
import itertools
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from multiprocessing.pool import ThreadPool
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import trio

from kgroup.errors import ArgumentError, UsageError
from kgroup.functions import (
    ON_BATCH,
    check_arguments,
    check_async,
    check_event_handler,
    check_handled,
    check_plain,
    check_result,
    check_task,
    is_async,
    is_program_error,
    name_of,
)
from tests.program_exceptions import OwnError


async def coroutine(generation: object, batch: object) -> None:
    """An async function."""


def plain(generation: object, batch: object) -> None:
    """A function."""


def generator(generation: object, batch: object) -> Iterator[None]:
    """A generator function."""
    yield


async def async_generator(generation: object, batch: object) -> AsyncIterator[None]:
    """An async generator function."""
    yield


@types.coroutine
def old_coroutine(generation: object, batch: object) -> Generator[None, None, None]:
    """A generator function that is awaitable."""
    yield


def failed() -> Future[None]:
    """A call that raised."""
    future: Future[None] = Future()
    future.set_exception(OwnError())
    return future


def in_a_pool() -> object:
    """The result of a call in a pool of multiprocessing; those of threads have the same class."""
    with ThreadPool(1) as pool:
        return [pool.imap(int, [1])]


class Object:
    """An object that can be called, and a method."""

    def __call__(self, generation: object, batch: object) -> None:
        """Do nothing."""

    async def method(self, generation: object, batch: object) -> None:
        """Do nothing."""


class AsyncObject:
    """An object whose call is a coroutine."""

    async def __call__(self, generation: object, batch: object) -> None:
        """Do nothing."""


def more(generation: object, batch: object, database: object) -> Any:
    """A function of three arguments."""
    return database


@functools.wraps(more)
def decorated(generation: object, batch: object) -> Any:
    """What a decorator makes that adds an argument."""
    return more(generation, batch, None)


ASYNC = [
    coroutine,
    Object().method,
    AsyncObject(),
    functools.partial(coroutine),
    functools.partial(AsyncObject(), batch=None),
    functools.partial(functools.partial(AsyncObject())),
]


@pytest.mark.parametrize("fn", ASYNC)
def test_async_functions_in_all_forms(fn: Callable[..., object]) -> None:
    """A method, an object with an async call and a partial of either are known as async."""
    assert is_async(fn)


@pytest.mark.parametrize("fn", [plain, Object(), functools.partial(plain), generator, print])
def test_functions_that_are_not_async(fn: Callable[..., object]) -> None:
    """No other function is taken for one."""
    assert not is_async(fn)


ALWAYS_REFUSED: list[tuple[object, str]] = [
    (5, "it must be a function"),
    (generator, "it is a generator function"),
    (async_generator, "it is a generator function"),
    (functools.partial(generator), "it is a generator function"),
    (more, r"it is called with \(generation, batch\), but missing .* 'database'"),
    (lambda _: None, r"but too many positional arguments"),
]


@pytest.mark.parametrize(("wrong", "match"), ALWAYS_REFUSED)
def test_functions_that_cannot_be_called(wrong: object, match: str) -> None:
    """They are refused by name, whether the worker awaits them or calls them in threads."""
    with pytest.raises(ArgumentError, match=f"handle=.*{match}"):
        check_async("handle", wrong, ON_BATCH, instead="")
    with pytest.raises(ArgumentError, match=f"handle=.*{match}"):
        check_plain("handle", wrong, ON_BATCH, instead="take the other one")


@pytest.mark.parametrize(
    "wrong",
    [coroutine, functools.partial(coroutine), AsyncObject(), Object().method, AsyncMock()],
)
def test_async_functions_for_threads(wrong: object) -> None:
    """They are refused, with what to do with them."""
    with pytest.raises(ArgumentError, match="it is an async function; take the other one"):
        check_plain("handle", wrong, ON_BATCH, instead="take the other one")


@pytest.mark.parametrize("right", [plain, Object(), print, decorated, Mock(), lambda *_: None])
def test_functions_for_threads(right: object) -> None:
    """Anything that can be called with these arguments, and is not known to be async."""
    check_plain("handle", right, ON_BATCH, instead="")


@pytest.mark.parametrize(
    "right",
    [
        coroutine,
        old_coroutine,
        functools.partial(more, database=1),
        AsyncObject(),
        Object().method,
        decorated,
        AsyncMock(),
        lambda *both: coroutine(*both),  # noqa: PLW0108 # its kind is not known
    ],
)
def test_functions_that_are_awaited(right: object) -> None:
    """What a plain function returns shows only when it is called."""
    check_async("handle", right, ON_BATCH, instead="")


def made_or_none(generation: Any, batch: Any) -> Any:
    """Return an awaitable, or None."""
    return batch.made or None


def made_if(generation: Any, batch: Any) -> Any:
    """Return an awaitable in one case."""
    if not batch:
        return None
    with generation:
        return batch.made


def never(generation: Any, batch: Any) -> None:
    """Return None in several ways."""
    if batch:
        return
    try:
        with generation:
            batch.process()
            return
    finally:
        batch.close()


class Plain:
    """Objects whose call and method are plain."""

    def __call__(self, generation: object, batch: object) -> None:
        """Do nothing."""

    def method(self, generation: object, batch: object) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "wrong",
    [plain, never, Plain(), Plain().method, functools.partial(plain), lambda *_: None, Object()],
)
def test_plain_functions_where_async_ones_are_awaited(wrong: object) -> None:
    """A function whose code returns nothing but None is refused, with what to do with it."""
    with pytest.raises(ArgumentError, match="it is not an async function; use a thread"):
        check_async("handle", wrong, ON_BATCH, instead="use a thread")
    with pytest.raises(ArgumentError, match="it is not an async function; use a thread"):
        check_task("fn", wrong, (1, 2), instead="use a thread")


@pytest.mark.parametrize("right", [made_or_none, made_if, print, Mock()])
def test_functions_that_may_return_something_to_await(right: object) -> None:
    """What such a function returns shows only when it is called."""
    check_async("handle", right, ON_BATCH, instead="")


async def one(argument: object) -> None:
    """An async function of one argument."""


def test_the_arguments_of_a_task() -> None:
    """They have to fit the function's signature, if it has one."""
    check_arguments("fn", more, (1, 2, 3))
    check_arguments("fn", print, (1, 2, 3))
    check_arguments("fn", min, ())
    for given, words in (((), "no arguments"), ((1,), "1 argument"), ((1, 2), "2 arguments")):
        with pytest.raises(ArgumentError, match=f"fn=.*called with {words}, but missing"):
            check_arguments("fn", more, given)
    with pytest.raises(ArgumentError, match="2 arguments, but too many"):
        check_task("fn", one, (1, 2), instead="")


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda: coroutine(1, 2), "plain returned <coroutine object .*>: await it"),
        (lambda: generator(1, 2), "plain returned <generator object .*>, which runs only as far"),
        (lambda: async_generator(1, 2), "plain returned <async_generator object .*>, which runs"),
        (Future[None], "plain returned <Future .*>, whose work may not be done yet"),
        (lambda: map(int, [1]), "plain returned <map .*>, which computes only what is taken"),
        (lambda: filter(int, [1]), "plain returned <filter .*>, which computes only what is"),
        (lambda: itertools.starmap(plain, []), "returned <itertools.starmap .*>, which computes"),
        (lambda: [1, coroutine(1, 2)], r"plain returned \[1, <coroutine object .*>\]: await it"),
        (lambda: [coroutine(1, 2), coroutine(1, 2)], "plain returned .*: await it"),
        (lambda: (Future[None](),), r"plain returned \(<Future .*>,\), whose work may not be done"),
        (lambda: {"one": generator(1, 2)}, "plain returned {'one': .*}, which runs only as far as"),
        (failed, "plain returned <Future .*>, whose work may not be done yet"),
        (in_a_pool, r"plain returned \[<.*Iterator .*>\], whose work may not be done yet"),
    ],
)
def test_results_that_are_work_not_done(
    returned: Callable[[], Awaitable[None] | Any], match: str
) -> None:
    """They are errors, because what they stand for has not been processed."""
    with pytest.raises(UsageError, match=match):
        check_result(plain, returned(), "await it")


def test_results() -> None:
    """Anything else is a result."""
    done: Future[int] = Future()
    done.set_result(1)
    for returned in (None, 5, "text", [1], {}, {1: 2}, iter([1]), done, Mock()):
        check_result(plain, returned, "await it")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError(), True),
        (SystemExit(), True),
        (OwnError(), True),
        (asyncio.CancelledError(), True),
        (KeyboardInterrupt(), False),
        (GeneratorExit(), False),
        (BaseExceptionGroup("", [SystemExit(), ExceptionGroup("", [ValueError()])]), True),
        (BaseExceptionGroup("", [ValueError(), KeyboardInterrupt()]), False),
    ],
)
def test_errors_of_the_program(error: BaseException, expected: bool) -> None:
    """All are but those that end everything at once, alone or in a group."""
    assert is_program_error(error) is expected


def test_cancellations_are_no_errors_of_the_program() -> None:
    """Those of the event loop that runs; in another one they are exceptions like any other."""

    async def in_trio() -> None:
        await trio.lowlevel.checkpoint()
        assert is_program_error(asyncio.CancelledError())
        with trio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(trio.Cancelled) as raised:
                await trio.lowlevel.checkpoint()
            assert not is_program_error(raised.value)
            assert not is_program_error(BaseExceptionGroup("", [ValueError(), raised.value]))

    async def in_asyncio() -> None:
        assert not is_program_error(asyncio.CancelledError())
        assert is_program_error(OwnError())

    trio.run(in_trio)
    asyncio.run(in_asyncio())


def test_names() -> None:
    """A function without a name is shown by its repr."""
    assert name_of(functools.partial(print)).startswith("functools.partial(")
    assert name_of(Object().method) == "Object.method"


@pytest.mark.parametrize("handler", [AsyncObject(), coroutine, functools.partial(coroutine, None)])
def test_an_async_event_handler_is_refused(handler: object) -> None:
    """Nothing would await it."""
    with pytest.raises(ArgumentError, match="on_event=.*async function; nothing awaits it"):
        check_event_handler("on_event", handler)


@pytest.mark.parametrize("handler", [print, [].append, Mock(), lambda event: event])
def test_what_can_be_called_with_an_event_is_a_handler(handler: object) -> None:
    """Functions, bound methods and objects that can be called are accepted."""
    check_event_handler("on_event", handler)


def test_an_event_handler_of_other_parameters_is_refused() -> None:
    """It would raise for each event."""
    with pytest.raises(ArgumentError, match="called with \\(event\\), but missing"):
        check_event_handler("on_event", plain)


def test_what_an_event_handler_may_return() -> None:
    """A coroutine is closed and refused; a future works by itself."""
    returned = coroutine(None, None)
    with pytest.raises(UsageError, match="lambda.* returned <coroutine .*nothing awaits it"):
        check_handled(lambda event: returned, returned)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        returned.send(None)
    check_handled(print, None)
    check_handled(print, Future())
