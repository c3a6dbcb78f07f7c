"""Which library's event loop runs in this thread, and how it shows in exceptions.

Errors say by it which group to use; `is_cancellation` knows how the loop cancels a task.

A function that calls asyncio where trio runs, or trio where asyncio runs, raises exceptions that
another attempt would only repeat. They have no class of their own: `called_library` knows them by
their texts, of which a test sees each raised.

Libraries that replace Python's threads and sockets by their own leave no event loop that kgroup
could use; `replaced_modules` recognises them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import trio

_TEXTS: Final[dict[str, tuple[tuple[type[Exception], str], ...]]] = {
    "asyncio": (
        (RuntimeError, "no running event loop"),
        (RuntimeError, "There is no current event loop"),
        (TypeError, "trio.run received unrecognized yield message"),
        (AttributeError, "'NoneType' object has no attribute 'create_future'"),
    ),
    "trio": (
        (RuntimeError, "must be called from async context"),
        (RuntimeError, "Task got bad yield: <class 'trio."),
        (RuntimeError, "Task got bad yield: <outcome."),
        (AttributeError, "'RunContext' object has no attribute"),
    ),
}
"""How the exceptions begin that come of calls of a library whose event loop does not run."""
_LOOKUPS: Final = frozenset(
    {
        "get_running_loop",
        "get_event_loop",
        "current_task",
        "current_time",
        "current_trio_token",
    }
)
"""The functions by which programs look whether an event loop runs; most are written in C, and have
no frame."""
_REPLACING: Final[dict[str, tuple[str, Callable[[Any], Callable[[str], bool]]]]] = {
    "gevent": ("gevent.monkey", lambda module: module.is_module_patched),
    "eventlet": ("eventlet.patcher", lambda module: module.is_monkey_patched),
}
"""Libraries that replace modules of Python: the module that does it, and what says which ones."""
_NEEDED: Final = ("threading", "thread", "select", "socket")
"""The modules that kgroup needs, as those libraries name them."""
_PACKAGES: Final = {"asyncio": "kgroup.aio", "trio": "kgroup"}


def running_library() -> str | None:
    """``trio``, ``asyncio``, or None where no event loop of them runs.

    One may be a guest of the other, in the same thread: then it is the one whose task runs now.
    """
    if trio.lowlevel.in_trio_task():
        return "trio"
    # A program whose asyncio loop runs has imported asyncio; others need not.
    if (asyncio := sys.modules.get("asyncio")) is not None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return "asyncio"
    return "trio" if trio.lowlevel.in_trio_run() else None


def replaced_modules() -> str:
    """What has replaced which of the modules that kgroup needs, as a clause; or nothing.

    On replaced ones trio cannot begin, or a wait in a thread stops all others, for ever.
    """
    for library, (name, tells) in _REPLACING.items():
        if (module := sys.modules.get(name)) is not None:
            replaced = " and ".join(filter(tells(module), _NEEDED))
            if replaced:
                return f"{library} has replaced Python's {replaced} (monkey patching)"
    return ""


def is_cancellation(error: BaseException) -> bool:
    """Whether the event loop that runs here cancels a task by such an exception."""
    if isinstance(error, trio.Cancelled):
        return True
    return running_library() == "asyncio" and isinstance(
        error, sys.modules["asyncio"].CancelledError
    )


def group_for(library: str | None) -> str:
    """What to use under such an event loop, as the end of a sentence."""
    return {
        "trio": "in a trio program, use kgroup.ConsumerGroup",
        "asyncio": "in an asyncio program, use kgroup.aio.ConsumerGroup",
        None: "in a program without an event loop, use kgroup.threaded.ConsumerGroup",
    }[library]


def called_library(error: BaseException) -> str | None:
    """The library whose event loop an exception misses: ``asyncio`` or ``trio``; None for others.

    Args:
        error: the exception. In a group, one is enough; so is one that it was raised from, or while
            it was handled, because functions wrap what they catch. But a function that may run
            without an event loop looks for one, and does its work in the ``except`` clause. What
            that work raises is no misuse.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    looked = False
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, BaseExceptionGroup):
            found = next(filter(None, map(called_library, one.exceptions)), None)
            if found is not None:
                return found
        if not looked and (library := _missed(one)) is not None:
            return library
        cause, looked = one.__cause__, False
        if cause is None and not one.__suppress_context__:
            cause = one.__context__
            looked = cause is not None and _is_of_a_look(cause)
        one = cause
    return None


def _missed(error: BaseException) -> str | None:
    """The library that an exception's own text names, without its cause and context."""
    text = ""
    with suppress(Exception):  # whatever the exception's own __str__ raises
        text = str(error)
    for library, beginnings in _TEXTS.items():
        if any(isinstance(error, kind) and text.startswith(begin) for kind, begin in beginnings):
            return library
    return None


def _is_of_a_look(error: BaseException) -> bool:
    """Whether the function that has caught an exception had only looked for an event loop."""
    caught = error.__traceback__
    here = None if caught is None else caught.tb_next
    while here is not None and here.tb_frame.f_code.co_name in _LOOKUPS:
        here = here.tb_next
    return caught is not None and here is None


def wrong_loop(error: BaseException) -> str:
    """What a note adds about an exception that misses another library's event loop; or nothing."""
    called = called_library(error)
    if called is None:
        return ""
    here = running_library()
    where = f"{here}'s event loop" if here else "a thread without an event loop"
    return (
        f"; it called {called} in {where}, and would do so again: functions that use"
        f" {called} belong to {_PACKAGES[called]}"
    )
