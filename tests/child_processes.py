"""The child processes of a process, some of which may be ending."""

from __future__ import annotations

from collections.abc import Callable

import psutil


def children_where(
    parent: psutil.Process, holds: Callable[[psutil.Process], bool], *, recursive: bool = False
) -> list[psutil.Process]:
    """The children for which ``holds`` returns True; one that ends meanwhile is left out.

    Imports start such children for a moment, for example to find a library.

    Args:
        parent: the process.
        holds: called with each of its children.
        recursive: whether the children of children count too.
    """

    def counts(child: psutil.Process) -> bool:
        try:
            return holds(child)
        except psutil.NoSuchProcess:  # as is a zombie
            return False

    return list(filter(counts, parent.children(recursive)))
