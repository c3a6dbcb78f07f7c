"""``GroupErrors``: what a group raises, from ``next()`` and from its block, and which comes first.

Four things end a group by an exception:

- *tasks* of a generation raise. The block raises an ExceptionGroup of what they raised, and of the
  body's exception if there is one;
- the *body* of the block raises. Its exception is kept until the generation has drained and the
  member has left, and is then raised;
- a *fatal* error: the member cannot stay in the group, or a function of the program, such as an
  assignor, raised. ``next()`` raises it, each time; the block does if no ``next()`` has, and the
  body has raised nothing;
- a *cancellation* from outside. It does not wait for the drain. What tasks have raised surfaces all
  the same, and a fatal error does if nothing else has to be raised.

INVARIANT: an exception of the program is raised once its group has closed, in each of these cases;
a cancellation may replace only itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import NoReturn, final

import trio

from kgroup.errors import KgroupError, without_text
from kgroup.generation.task_errors import without_effects_of_cancellation
from kgroup.tracebacks import raise_outside


@final
class GroupErrors:
    """The exceptions that have ended a group.

    Args:
        group_id: the group's name, for the ExceptionGroup.

    Attributes:
        tasks: what tasks of the last generation have raised.
        fatal: what no ``next()`` can get over.
        outside: what the program was handling when it entered the block.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.tasks: list[BaseException] = []
        self.fatal: BaseException | None = None
        self._fatal_traceback: TracebackType | None = None
        """That of `fatal` when it was kept: each raise adds to an exception's own."""
        self._fatal_raised = False
        self.outside: BaseException | None = None

    @property
    def first(self) -> BaseException | None:
        """The one that a status names."""
        if self.fatal is not None:  # a program's exception may be false, as an empty list is
            return self.fatal
        return next(iter(self.tasks), None)

    def keep(self, tasks: Sequence[BaseException], fatal: BaseException | None) -> None:
        """Raise later what the program's tasks and functions have raised in a generation."""
        self.tasks = list(tasks)
        if fatal is not None:
            self.keep_fatal(fatal)

    def keep_fatal(self, error: BaseException) -> None:
        """Raise this from every ``next()``."""
        self.fatal, self._fatal_traceback = error, error.__traceback__

    def raise_fatal(self) -> None:
        """Raise the fatal error in a ``next()``, if there is one."""
        if self.fatal is not None:
            self._fatal_raised = True
            raise self.fatal.with_traceback(self._fatal_traceback)

    def raise_closed(self, body_error: BaseException | None) -> None:
        """Raise what the block raises once the group has closed, if anything."""
        if self.tasks:
            self._raise_tasks(body_error)
        if (own := self._own(body_error)) is not None:
            raise own

    def raise_cut_short(self, error: BaseException, body_error: BaseException | None) -> NoReturn:
        """Raise what an error from outside, such as a cancellation, does not replace, or itself."""
        if body_error is not None:
            body_error = without_effects_of_cancellation(body_error)
        if self.tasks:
            self._raise_tasks(body_error, error)
        own = self._own(body_error)
        if own is not None and _is_only_cancellation(error):
            raise_outside(own, self.outside)
        if error.__context__ is None:  # let Python print the earlier one too
            error.__context__ = body_error
        raise error

    @property
    def reason_to_leave(self) -> str:
        """What a broker logs of them: no text of the program's; empty if there is none."""
        if self.tasks:
            return f"a task raised {without_text(self.tasks[0])}"
        if isinstance(self.fatal, KgroupError):
            return f"the group failed with {without_text(self.fatal)}"
        if self.fatal is not None:
            return f"the program raised {without_text(self.fatal)}"
        return ""

    def _own(self, body_error: BaseException | None) -> BaseException | None:
        """What the block raises if no task has: the body's, or what no ``next()`` has raised."""
        if body_error is not None or self.fatal is None or self._fatal_raised:
            return body_error
        return self.fatal.with_traceback(self._fatal_traceback)

    def _raise_tasks(self, *others: BaseException | None) -> NoReturn:
        """Raise what tasks raised, and other exceptions with it.

        The body has been cancelled because of them, so that cancellation is not their context.
        """
        errors = [*self.tasks, *(other for other in others if other is not None)]
        failed = BaseExceptionGroup(f"tasks of group {self._group_id!r} failed", errors)
        raise_outside(failed, self.outside)


def raise_cancellation(error: BaseException) -> None:
    """If it is, or contains, a cancellation from outside, raise it without the effects of that."""
    if is_cancellation(error):
        raise_outside(without_effects_of_cancellation(error) or error, error.__context__)


def is_cancellation(error: BaseException) -> bool:
    """Whether it is, or contains, a cancellation from outside, which does not wait for a drain."""
    ends_at_once = (trio.Cancelled, GeneratorExit)
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(ends_at_once) is not None
    return isinstance(error, ends_at_once)


def _is_only_cancellation(error: BaseException) -> bool:
    """Whether it contains nothing but cancellations of trio, which may be left out."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
