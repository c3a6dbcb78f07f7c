"""Faulty assignors and workers, for options that name one."""

from __future__ import annotations

from typing import Any, Final, NoReturn


class Unmade:
    """A class whose constructor raises."""

    def __init__(self) -> None:
        raise RuntimeError("two\nlines")


class Raising:
    """An assignor all of whose attributes raise."""

    @property
    def name(self) -> NoReturn:
        """Raises."""
        raise RuntimeError("no name")

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr")


class Unnamed:
    """An assignor without a name."""

    def assign(self, *_: object) -> dict[str, Any]:
        """Assign nothing."""
        return {}


class Lying(Unnamed):
    """An assignor whose name can be read once only."""

    def __init__(self) -> None:
        self._asked = 0

    @property
    def name(self) -> str:
        """A name, the first time."""
        self._asked += 1
        if self._asked > 1:
            raise RuntimeError("read a second time")
        return "lying"


raises: Final = Raising()
unnamed: Final = Unnamed()
lying: Final = Lying
