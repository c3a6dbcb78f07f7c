"""The child processes of a process, some of which may be ending."""

from __future__ import annotations

from collections.abc import Callable

import psutil


def children_that(
    parent: psutil.Process, so: Callable[[psutil.Process], bool], *, recursive: bool = False
) -> list[psutil.Process]:
    """The children for which ``so`` holds, without those that end before it is known.

    Imports start such children for a moment, for example to find a library.

    Args:
        parent: the process.
        so: called with each of its children.
        recursive: whether the children of children count too.
    """

    def is_so(child: psutil.Process) -> bool:
        try:
            return so(child)
        except psutil.NoSuchProcess:  # as is a zombie
            return False

    return list(filter(is_so, parent.children(recursive)))
