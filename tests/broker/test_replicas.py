"""Places: spread over the brokers, elected within their replicas, never uncleanly."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode

from kgroup.broker.replicas import NO_LEADER, LiveBrokers, PartitionReplicas
from kgroup.broker.request_error import RequestError

BROKERS = strategies.sampled_from([1, 2, 3])


def refusal(made: object) -> ErrorCode:
    """What a place is refused with."""
    with pytest.raises(RequestError) as refused:
        made()  # type: ignore[operator]
    return refused.value.code


def test_leaders_go_round_the_brokers() -> None:
    """Each turn's leader is the next broker, and its replicas are those that follow."""
    fleet = LiveBrokers([1, 2, 3])
    assert [fleet.place(turn, 2).replicas for turn in range(4)] == [(1, 2), (2, 3), (3, 1), (1, 2)]
    assert [fleet.place(turn, 1).leader for turn in (4, 5)] == [2, 3]


def test_a_broker_that_is_down_leads_nothing_new() -> None:
    """It gets replicas only where there are not enough others, and is not in sync there."""
    fleet = LiveBrokers([1, 2, 3])
    fleet.set_up(2, is_up=False)
    assert [fleet.place(turn, 2).replicas for turn in range(2)] == [(1, 3), (3, 1)]
    place = fleet.place(1, 3)
    assert (place.replicas, place.isr, place.leader) == ((3, 1, 2), (3, 1), 3)
    assert (fleet.up, fleet.node_ids) == ((1, 3), (1, 2, 3))


def test_what_cannot_be_placed_is_refused() -> None:
    """More replicas than brokers, unknown ones, ones named twice, none that is up."""
    fleet = LiveBrokers([1, 2])
    assert refusal(lambda: fleet.place(0, 3)) is ErrorCode.invalid_replication_factor
    assert refusal(lambda: fleet.place(0, 0)) is ErrorCode.invalid_replication_factor
    for chosen in ([], [3], [1, 1]):
        assert refusal(lambda c=chosen: fleet.place_at(c)) is ErrorCode.invalid_replica_assignment
    fleet.set_up(1, is_up=False)
    assert refusal(lambda: fleet.place_at([1])) is ErrorCode.invalid_replica_assignment
    assert fleet.place_at([1, 2]).leader == 2
    fleet.set_up(2, is_up=False)
    assert refusal(lambda: fleet.place(0, 1)) is ErrorCode.invalid_replication_factor


def test_a_leader_can_be_moved_to_any_broker() -> None:
    """To a replica it moves alone; any other broker takes the leader's place among them."""
    fleet = LiveBrokers([1, 2, 3])
    place = fleet.place(0, 2)
    assert fleet.move(place, 2)
    assert (place.replicas, place.leader, place.epoch) == ((1, 2), 2, 1)
    assert fleet.move(place, 3)
    assert (place.replicas, place.isr, place.leader, place.epoch) == ((1, 3), (1, 3), 3, 2)
    assert not fleet.move(place, 3)
    assert fleet.prefer(place)
    assert (place.leader, place.epoch) == (1, 3)


class Elections(RuleBasedStateMachine):
    """Brokers come and go, leaders move: what holds of a place at all times."""

    @initialize(factor=BROKERS, turn=BROKERS)
    def begin(self, factor: int, turn: int) -> None:
        """Three brokers, one partition."""
        self.fleet = LiveBrokers([1, 2, 3])
        self.place: PartitionReplicas = self.fleet.place(turn, factor)
        self.seen = (self.place.leader, self.place.epoch)

    @rule(node_id=BROKERS)
    def go(self, node_id: int) -> None:
        """A broker goes."""
        if self.fleet.is_up(node_id):
            self.fleet.set_up(node_id, is_up=False)
            self.changed(told=self.fleet.lose(self.place, node_id))

    @rule(node_id=BROKERS)
    def come(self, node_id: int) -> None:
        """A broker comes."""
        if not self.fleet.is_up(node_id):
            self.fleet.set_up(node_id, is_up=True)
            self.changed(told=self.fleet.regain(self.place))

    @rule(node_id=BROKERS)
    def move(self, node_id: int) -> None:
        """Somebody moves the leader."""
        if self.fleet.is_up(node_id):
            self.changed(told=self.fleet.move(self.place, node_id))

    @rule()
    def prefer(self) -> None:
        """Somebody asks for the preferred leader."""
        self.changed(told=self.fleet.prefer(self.place))

    def changed(self, *, told: bool) -> None:
        """The epoch rises exactly when the leader changes, and that is what is told."""
        leader, epoch = self.seen
        assert told == (self.place.leader != leader) == (self.place.epoch > epoch)
        self.seen = (self.place.leader, self.place.epoch)

    @invariant()
    def sound(self) -> None:
        """A leader is up and in sync; there is one as soon as one of those in sync is up."""
        place = self.place
        assert set(place.isr) <= set(place.replicas)
        assert place.isr
        if place.leader == NO_LEADER:
            assert not any(map(self.fleet.is_up, place.isr))
        else:
            assert self.fleet.is_up(place.leader)
            assert place.leader in place.isr
            assert place.isr == tuple(filter(self.fleet.is_up, place.replicas))


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=60, stateful_step_count=25)
