"""What a group raises from its block, and which exception comes first."""

from __future__ import annotations

import pytest
import trio

from kgroup.errors import GroupFullError
from kgroup.group_errors import GroupErrors, is_cancellation, raise_cancellation

TASK, OTHER, BODY = ValueError("task"), ValueError("other"), KeyError("body")
FATAL = GroupFullError(81, "GROUP_MAX_SIZE_REACHED", "JoinGroup", "the group is full")
INTERRUPT = KeyboardInterrupt()


async def a_cancellation() -> trio.Cancelled:
    """An exception that only trio can make."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError


def raised(
    errors: GroupErrors, body: BaseException | None, cut: BaseException | None
) -> BaseException | tuple[BaseException, ...] | None:
    """What the block raises; the parts of an ExceptionGroup."""
    try:
        if cut is None:
            errors.raise_closed(body)
        else:
            errors.raise_cut_short(cut, body)
    except BaseExceptionGroup as group:
        return group.exceptions
    except BaseException as error:  # noqa: BLE001 # it is compared
        return error
    return None


@pytest.mark.parametrize("cut", [None, "cancelled", INTERRUPT])
@pytest.mark.parametrize("body", [None, BODY])
@pytest.mark.parametrize("fatal", [None, "raised by next()", "new"])
@pytest.mark.parametrize("tasks", [[], [TASK], [TASK, OTHER]])
async def test_no_exception_of_the_program_is_lost(
    tasks: list[BaseException],
    fatal: str | None,
    body: BaseException | None,
    cut: BaseException | str | None,
) -> None:
    """Those of tasks come in a group with all others; then the body's, then a fatal one."""
    await trio.lowlevel.checkpoint()
    errors = GroupErrors("group")
    errors.keep(tasks, None if fatal is None else FATAL)
    if fatal == "raised by next()":
        with pytest.raises(GroupFullError):
            errors.raise_fatal()
    outside = await a_cancellation() if isinstance(cut, str) else cut
    found = raised(errors, body, outside)
    if tasks:
        assert found == tuple(one for one in (*tasks, body, outside) if one is not None)
    elif outside is INTERRUPT:
        assert found is INTERRUPT
    else:
        assert found is (body or (FATAL if fatal == "new" else outside))


async def test_a_cancellation_is_found_among_others() -> None:
    """A group of exceptions that contains one does not wait for a drain either."""
    cancelled = await a_cancellation()
    for error in (cancelled, GeneratorExit(), BaseExceptionGroup("", [TASK, cancelled])):
        assert is_cancellation(error)
        with pytest.raises(BaseException) as caught:  # noqa: PT011
            raise_cancellation(error)
        assert is_cancellation(caught.value)
    assert not is_cancellation(TASK)
    raise_cancellation(TASK)


def test_brokers_learn_no_text_of_the_program() -> None:
    """The reason for leaving names the classes of what was raised."""
    errors = GroupErrors("group")
    assert errors.reason_to_leave == ""
    errors.keep_fatal(KeyError("secret"))
    assert errors.reason_to_leave == "the program raised KeyError"
    errors.keep_fatal(FATAL)
    assert errors.reason_to_leave == (
        "the group failed with GroupFullError (GROUP_MAX_SIZE_REACHED)"
    )
    errors.keep([TASK], None)
    assert errors.reason_to_leave == "a task raised ValueError"
    assert errors.first is FATAL


def test_an_exception_may_be_false() -> None:
    """A fatal exception whose class has a length of 0 counts as any other."""

    class EmptyError(Exception):
        def __len__(self) -> int:
            return 0

    errors = GroupErrors("group")
    errors.keep([], fatal := EmptyError())
    assert errors.first is fatal
    errors.keep([TASK], None)
    assert errors.first is fatal
