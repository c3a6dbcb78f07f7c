"""The vote for a protocol."""

from __future__ import annotations

import pytest

from kgroup.broker.groups.protocol_vote import ProtocolVote
from kgroup.broker.groups.requests import Protocol


def protocols(names: str) -> tuple[Protocol, ...]:
    """Protocols by preference, without metadata."""
    return tuple(Protocol(name, b"") for name in names.split())


def vote(*members: str) -> ProtocolVote:
    """The vote of these members."""
    made = ProtocolVote()
    for names in members:
        made.add(protocols(names))
    return made


@pytest.mark.parametrize(
    ("members", "elected"),
    [
        (["range"], "range"),
        (["range roundrobin", "roundrobin"], "roundrobin"),
        (["range roundrobin", "roundrobin range", "roundrobin range"], "roundrobin"),
        (["roundrobin range", "range roundrobin"], "range"),
        (["cooperative-sticky range", "range cooperative-sticky"], "range"),
        (["range roundrobin range"], "roundrobin"),
        (["range roundrobin range", "range roundrobin"], "roundrobin"),
        (["x range roundrobin", "y range roundrobin", "roundrobin range"], "range"),
    ],
)
def test_most_first_choices_among_common_protocols_win(members: list[str], elected: str) -> None:
    """What a member lacks or names twice gets no vote; Java's HashMap decides ties."""
    assert vote(*members).elect() == elected


def test_a_removed_member_does_not_vote() -> None:
    """Its vote does not count, and protocols that it lacked can win."""
    some = vote("range roundrobin", "roundrobin range", "roundrobin range", "range")
    assert not some.any_supported_by_all(protocols("roundrobin"))
    some.remove(protocols("range"))
    assert some.any_supported_by_all(protocols("x roundrobin"))
    assert some.elect() == "roundrobin"


def test_without_members_every_protocol_is_known_to_all() -> None:
    """As in Kafka: a group without members supports any protocol, but not a missing one."""
    assert vote().any_supported_by_all(protocols("range"))
    assert not vote().any_supported_by_all(())


def test_protocol_that_a_member_names_twice_is_not_common() -> None:
    """It is neither supported by that member nor by a group in which it counts for another."""
    assert not vote("range").any_supported_by_all(protocols("range range"))
    assert not vote().any_supported_by_all(protocols("range range"))
    some = vote("range roundrobin range", "roundrobin", "roundrobin range")
    assert not some.any_supported_by_all(protocols("range"))
    some.remove(protocols("range roundrobin range"))
    assert some.any_supported_by_all(protocols("roundrobin"))
