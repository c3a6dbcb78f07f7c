"""The example of a custom assignor: two members get even and odd partitions."""

from __future__ import annotations

import re
import signal

from kgroup.types import TopicPartition
from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import Worker

LINE = re.compile(r"generation (\d+) by even-and-odd: (.+)")


def printed(line: str) -> tuple[int, set[TopicPartition]]:
    """The generation's id and the partitions that a member prints."""
    match = LINE.fullmatch(line)
    assert match, line
    owned = (name.rpartition("-") for name in match[2].split(", "))
    return int(match[1]), {TopicPartition(topic, int(number)) for topic, _, number in owned}


def test_two_members_get_even_and_odd_partitions(reader: Reader, topic: Topic) -> None:
    """A single member has all partitions; of two, one has the even and one the odd ones.

    One member leaves at SIGTERM, the other at Ctrl-C.
    """
    arguments = ("examples/custom_assignor.py", topic.bootstrap_servers, topic.name)
    everything = set(topic.partitions)
    even, odd = set(topic.partitions[::2]), set(topic.partitions[1::2])
    with Worker(reader, *arguments) as one:
        one.until(lambda lines: lines)
        assert printed(one.lines[0])[1] == everything
        with Worker(reader, *arguments) as two:
            two.until(lambda lines: lines)
            one.until(lambda lines: printed(lines[-1])[0] == printed(two.lines[0])[0])
            shares = [printed(one.lines[-1])[1], printed(two.lines[0])[1]]
            assert shares in ([even, odd], [odd, even])
            two.send(signal.SIGTERM)
            assert two.ended() == 0
            assert two.errors == ""
        one.until(lambda lines: printed(lines[-1])[1] == everything)
        one.send(signal.SIGINT)
        assert one.ended() == 0
        assert one.errors == ""
    assert topic.members(f"{topic.name}-even-and-odd") == []
