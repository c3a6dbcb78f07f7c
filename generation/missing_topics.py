"""Reports subscribed topics that do not exist, every five minutes, with names that are near them.

A wrong name must not end a group, because the topic may be created later. So the log has to show
it, with existing topics of nearly the same name, because the name is most likely misspelt.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import trio

from kgroup.errors import BrokerError, TransportError
from kgroup.events import TopicsMissing
from kgroup.generation.member_context import MemberContext

REPEATED_AFTER: Final = 300.0
"""Seconds between two reports."""
_MOST_COMPARED: Final = 10
"""The most missing topics for which near names are looked for; each is compared with all names."""


async def report_missing_topics(member: MemberContext, missing: Collection[str]) -> None:
    """Report topics until all of them exist.

    Args:
        member: the leader.
        missing: the subscribed topics that did not exist when the assignment was computed.

    Cancellation: at any time.
    """
    left = tuple(sorted(missing))
    reported = False
    while left:
        existing = await _existing(member)
        absent = tuple(name for name in left if name not in existing)
        # The first report says what the assignment lacks, even if it has appeared meanwhile.
        names = absent if reported else left
        if names:
            nearest = await member.checking_thread(
                partial(find_nearest, absent, existing), f"kgroup-names {member.config.group_id}"
            )
            member.emitter.emit(TopicsMissing, topics=names, nearest=nearest)
        left, reported = absent, True
        await trio.sleep(REPEATED_AFTER)


async def _existing(member: MemberContext) -> Collection[str]:
    """The names of all topics that the member may see; none if no broker answers."""
    try:
        known = await member.cluster.metadata(None)
    except (BrokerError, TransportError):
        return ()  # the requests of the generation report what is wrong with the brokers
    return known.topics.keys() - known.internal


def find_nearest(names: Collection[str], existing: Collection[str]) -> Mapping[str, str]:
    """For each name the existing name that is most like it, if there is one. Runs in a thread."""
    found = {}
    for name in sorted(names)[:_MOST_COMPARED]:
        if near := difflib.get_close_matches(name, existing, n=1):
            found[name] = near[0]
    return found
