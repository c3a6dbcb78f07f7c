"""Replicas: spread over the brokers; leaders are elected among those in sync."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kgroup.broker.replicas import NO_LEADER, LiveBrokers, PartitionReplicas
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

BROKERS = strategies.sampled_from([1, 2, 3])


def error(made: object) -> ErrorCode:
    """The error with which a placement is refused."""
    with pytest.raises(RequestError) as refused:
        made()  # type: ignore[operator]
    return refused.value.code


def test_leaders_are_spread_over_the_brokers() -> None:
    """The next partition's leader is the next broker, and its replicas are those after it."""
    live_brokers = LiveBrokers([1, 2, 3])
    assert [live_brokers.place_replicas(rotation, 2).node_ids for rotation in range(4)] == [
        (1, 2),
        (2, 3),
        (3, 1),
        (1, 2),
    ]
    assert [live_brokers.place_replicas(rotation, 1).leader for rotation in (4, 5)] == [2, 3]


def test_a_broker_that_is_down_leads_nothing_new() -> None:
    """It gets replicas only if other brokers are too few, and is not in sync there."""
    live_brokers = LiveBrokers([1, 2, 3])
    live_brokers.set_up(2, is_up=False)
    assert [live_brokers.place_replicas(rotation, 2).node_ids for rotation in range(2)] == [
        (1, 3),
        (3, 1),
    ]
    replicas = live_brokers.place_replicas(1, 3)
    assert (replicas.node_ids, replicas.isr, replicas.leader) == ((3, 1, 2), (3, 1), 3)
    assert (live_brokers.up, live_brokers.node_ids) == ((1, 3), (1, 2, 3))


def test_impossible_placements_are_refused() -> None:
    """More replicas than brokers, unknown or repeated ones, and only stopped ones."""
    live_brokers = LiveBrokers([1, 2])
    assert error(lambda: live_brokers.place_replicas(0, 3)) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert error(lambda: live_brokers.place_replicas(0, 0)) is ErrorCode.INVALID_REPLICATION_FACTOR
    for chosen in ([], [3], [1, 1]):
        assert (
            error(lambda c=chosen: live_brokers.place_on(c)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    live_brokers.set_up(1, is_up=False)
    assert error(lambda: live_brokers.place_on([1])) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert live_brokers.place_on([1, 2]).leader == 2
    live_brokers.set_up(2, is_up=False)
    assert error(lambda: live_brokers.place_replicas(0, 1)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_leader_can_be_moved_to_any_broker() -> None:
    """A broker without a replica takes over the old leader's replica."""
    live_brokers = LiveBrokers([1, 2, 3])
    replicas = live_brokers.place_replicas(0, 2)
    assert live_brokers.move_leader(replicas, 2)
    assert (replicas.node_ids, replicas.leader, replicas.epoch) == ((1, 2), 2, 1)
    assert live_brokers.move_leader(replicas, 3)
    assert (replicas.node_ids, replicas.isr, replicas.leader, replicas.epoch) == (
        (1, 3),
        (1, 3),
        3,
        2,
    )
    assert not live_brokers.move_leader(replicas, 3)
    assert live_brokers.elect_preferred(replicas)
    assert (replicas.leader, replicas.epoch) == (1, 3)


class Elections(RuleBasedStateMachine):
    """Brokers start and stop, leaders move, and a partition's replicas keep their invariants."""

    @initialize(factor=BROKERS, rotation=BROKERS)
    def begin(self, factor: int, rotation: int) -> None:
        """Make three brokers and one partition."""
        self.live_brokers = LiveBrokers([1, 2, 3])
        self.replicas: PartitionReplicas = self.live_brokers.place_replicas(rotation, factor)
        self.seen = (self.replicas.leader, self.replicas.epoch)

    @rule(node_id=BROKERS)
    def go(self, node_id: int) -> None:
        """Stop a broker."""
        if self.live_brokers.is_up(node_id):
            self.live_brokers.set_up(node_id, is_up=False)
            self.changed(returned=self.live_brokers.broker_stopped(self.replicas, node_id))

    @rule(node_id=BROKERS)
    def come(self, node_id: int) -> None:
        """Start a broker."""
        if not self.live_brokers.is_up(node_id):
            self.live_brokers.set_up(node_id, is_up=True)
            self.changed(returned=self.live_brokers.broker_started(self.replicas))

    @rule(node_id=BROKERS)
    def move(self, node_id: int) -> None:
        """Move the leader."""
        if self.live_brokers.is_up(node_id):
            self.changed(returned=self.live_brokers.move_leader(self.replicas, node_id))

    @rule()
    def elect_preferred(self) -> None:
        """Elect the preferred leader."""
        self.changed(returned=self.live_brokers.elect_preferred(self.replicas))

    def changed(self, *, returned: bool) -> None:
        """The epoch rises exactly when the leader changes, and so does the result say."""
        leader, epoch = self.seen
        assert returned == (self.replicas.leader != leader) == (self.replicas.epoch > epoch)
        self.seen = (self.replicas.leader, self.replicas.epoch)

    @invariant()
    def sound(self) -> None:
        """A leader runs and is in sync; there is one if any replica in sync runs."""
        replicas = self.replicas
        assert set(replicas.isr) <= set(replicas.node_ids)
        assert replicas.isr
        if replicas.leader == NO_LEADER:
            assert not any(map(self.live_brokers.is_up, replicas.isr))
        else:
            assert self.live_brokers.is_up(replicas.leader)
            assert replicas.leader in replicas.isr
            assert replicas.isr == tuple(filter(self.live_brokers.is_up, replicas.node_ids))


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=60, stateful_step_count=25)
