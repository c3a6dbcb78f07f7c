"""``Uncopied``: the root of objects that work in one process, and are neither pickled nor copied.

Such an object has connections, tasks or a lease. Programs meet the refusal where something else
pickles for them: multiprocessing, Spark, a queue of log records, ``dataclasses.asdict``.
"""

from __future__ import annotations

from typing import ClassVar, Final, NoReturn, Self

MAKE_ANOTHER: Final = "in another process, make a group with the same GroupConfig"
SEND_ADDRESS: Final = "pass its bootstrap_servers on"
SEND_MESSAGES: Final = (
    "pass on what the other process needs, such as the messages of a batch, or their values and"
    " offsets, and commit here"
)


class Uncopied:
    """An object that cannot be pickled or copied; the error says what to do in its place.

    ``copy.copy`` returns the object itself, as it does for functions and modules.
    """

    __slots__ = ()
    _in_its_place: ClassVar[str]
    """What a program passes on or makes in place of the object."""

    def __reduce__(self) -> NoReturn:
        raise refused_copy(self, self._in_its_place)

    def __copy__(self) -> Self:
        return self


def refused_copy(value: object, in_its_place: str) -> TypeError:
    """The error of an object that cannot be pickled or copied; Python's own is a TypeError, too."""
    return TypeError(
        f"a {type(value).__name__} of kgroup cannot be pickled or copied, because it works only"
        f" where it was made; {in_its_place}"
    )
