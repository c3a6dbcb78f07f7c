"""Reports what a member subscribes to and does not exist, every five minutes, with names near it.

A wrong name, or a pattern that matches nothing, must not end a group, because the topic may be
created later. So the log has to show it, with existing topics of nearly the same name, because the
name is most likely misspelt. The leader reports names, for the whole group; each member reports its
own patterns, which no other member knows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import trio

from kgroup.errors import BrokerError, TransportError
from kgroup.events import PatternsUnmatched, TopicsMissing
from kgroup.generation.member_context import MemberContext
from kgroup.types import LONGEST_TOPIC

REPEATED_AFTER: Final = 300.0
"""Seconds between two reports."""
_MOST_COMPARED: Final = 10
"""The most topics or patterns for which near names are looked for, among all names."""
_SYNTAX: Final = re.compile(r"\\?[^\w-]")
"""What a pattern has beside the letters of a name."""


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


async def report_unmatched_patterns(member: MemberContext, topics: Collection[str]) -> None:
    """Report the member's patterns that match no topic, until the generation ends.

    Once a pattern matches other topics, the subscription watcher ends the generation.

    Args:
        member: the member.
        topics: those with which it joined: its names, and what its patterns matched.

    Cancellation: at any time.
    """
    patterns = [topic for topic in member.subscription.topics if isinstance(topic, re.Pattern)]
    left = _without_match(patterns, topics)
    while left:
        existing = await _existing(member)
        if left := _without_match(left, existing):
            nearest = await member.checking_thread(
                partial(find_partly_matched, left, existing),
                f"kgroup-names {member.config.group_id}",
            )
            names = tuple(sorted(pattern.pattern for pattern in left))
            member.emitter.emit(PatternsUnmatched, patterns=names, nearest=nearest)
            await trio.sleep(REPEATED_AFTER)


def _without_match(
    patterns: Collection[re.Pattern[str]], names: Collection[str]
) -> Collection[re.Pattern[str]]:
    return [pattern for pattern in patterns if not any(map(pattern.fullmatch, names))]


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


def find_partly_matched(
    patterns: Collection[re.Pattern[str]], existing: Collection[str]
) -> Mapping[str, str]:
    """For each pattern a topic that was most likely meant, if there is one. Runs in a thread.

    That is one in which the pattern matches a part of the name, or one with a name like the
    pattern.
    """
    found, names = {}, sorted(existing)
    for pattern in list(patterns)[:_MOST_COMPARED]:
        # An empty part of a name says nothing.
        near = [name for name in names if (found_in := pattern.search(name)) and found_in.group()]
        near = near or difflib.get_close_matches(
            _SYNTAX.sub("", pattern.pattern)[:LONGEST_TOPIC], names, n=1
        )
        if near:
            found[pattern.pattern] = near[0]
    return found
