"""``headers_of``: the headers of a record, also of one whose headers confluent-kafka cannot read.

Kafka allows any bytes as the name of a header; confluent-kafka reads names as UTF-8. Of a record
with another name, ``Message.headers()`` returns a broken list, and leaves an exception set that a
later call raises: to go through the list ends the process.

INVARIANT: kgroup reads headers by this function alone.
"""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Final

from kgroup.interfaces import Headers

UNREADABLE: Final = ("kgroup.unreadable_headers", b"a name is no UTF-8")
"""Stands in for the headers of a record that cannot be read."""
_READ: Final = methodcaller("headers")
"""Called like this, the method raises the exception at once. The interpreter's own calls do not
check for one, once they have become quick."""


def headers_of(message: Any) -> Headers | None:
    """The headers of a record, or None. A producer may have given them names that are no UTF-8.

    Kafka allows that, and ``message.headers()`` then ends the process. This function replaces such
    headers by one, ``kgroup.unreadable_headers``, in the record too. Use it if you do not know all
    producers of the topic.

    Args:
        message: a record, as a batch has it.
    """
    try:
        found: Headers | None = _READ(message)
    except SystemError:
        found = [UNREADABLE]
        message.set_headers(found)
    return found
