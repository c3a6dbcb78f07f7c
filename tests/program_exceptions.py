"""Exceptions of programs that are not like most, and that have to be handled all the same."""

from __future__ import annotations


class OwnError(BaseException):
    """One that is no `Exception`, such as that of ``pytest.fail``."""


class UnprintableError(RuntimeError, AttributeError):
    """One that cannot be shown."""

    def __repr__(self) -> str:
        raise LookupError

    __str__ = __repr__
