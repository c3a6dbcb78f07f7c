"""Plans in which the simulator has found a fault of kgroup, as it shrank them."""

from __future__ import annotations

import attrs

from kgroup.events import CommitsRestored
from kgroup.testing.simulation import Scenario, faults, generate_plan, simulate
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.history import EventReported
from kgroup.testing.simulation.plan import MemberPlan
from kgroup.types import TopicPartition


def test_a_member_that_thaws_beside_a_loading_coordinator() -> None:
    """It was evicted, and a coordinator that loads answers its heartbeat without knowing it."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9861079),
        duration=182.0,
        members=(MemberPlan(name="m3", start_at=5.807, group_instance_id="instance-3"),),
        faults=(
            faults.CoordinatorMoves(at=167.108, away=0.349, loading=0.0),
            faults.Freeze(at=167.566, seconds=14.178, process="m3"),
            faults.BrokerDies(at=181.744, seconds=0.01, broker="b1", loading=3.996),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_member_that_thaws_while_its_network_is_cut() -> None:
    """It was replaced, and can learn that only when its first heartbeat gets through."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9864291),
        duration=259.0,
        members=(MemberPlan(name="m1", start_at=6.106, group_instance_id="instance-1"),),
        faults=(
            faults.Freeze(at=225.348, seconds=32.248, process="m1"),
            faults.SecondProgram(at=228.913, seconds=1.3, process="m1"),
            faults.Split(at=250.32, seconds=8.2, process="m1", broker="b3"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_member_that_thaws_after_its_login_has_expired() -> None:
    """It logs in again, in three round trips of 0.2 s, before it can learn of its replacement."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9944670),
        duration=177.0,
        faults=(
            faults.Stop(at=32.703, seconds=0.01, process="m4"),
            faults.PasswordChanges(at=104.708, seconds=13.895, process="m2"),
            faults.Freeze(at=139.692, seconds=35.963, process="m3"),
            faults.SecondProgram(at=139.692, seconds=44.328, process="m3"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_commit_that_arrives_after_later_ones() -> None:
    """Its bytes stalled for 18 s; meanwhile the member committed more on another connection."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9865031),
        faults=(
            faults.Stop(at=477.372, seconds=0.01, process="m2"),
            faults.Stall(at=531.061, seconds=25.506, process="m2", broker="*"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_member_that_is_closed_as_it_thaws() -> None:
    """Its group went on without it long ago, so its end hands over nothing."""
    plan = generate_plan(Scenario(), 9867605)
    plan = attrs.evolve(
        plan,
        duration=168.0,
        members=tuple(one for one in plan.members if one.name != "m2"),
        faults=(
            faults.Freeze(at=122.983, seconds=41.656, process="m1"),
            faults.Stop(at=151.211, seconds=0.02, process="m1"),
            faults.Stop(at=151.211, seconds=9.0, process="m3"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_drain_that_lasts_as_long_as_it_may() -> None:
    """A member that closes sends heartbeats in its drain, which do not make that longer."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9871101),
        duration=506.0,
        members=(MemberPlan(name="m1", start_at=0.938), MemberPlan(name="m2", start_at=9.064)),
        faults=(
            faults.Stop(at=63.889, seconds=0.32, process="m1"),
            faults.CoordinatorMoves(at=135.551, away=4.812, loading=3.358),
            faults.Stop(at=138.121, seconds=0.42, process="m1"),
            faults.CoordinatorMoves(at=326.349, away=0.0, loading=1.856),
            faults.Stop(at=328.518, seconds=0.03, process="m2"),
            faults.Stop(at=474.036, seconds=0.37, process="m1"),
            faults.SlowWork(at=474.854, seconds=2.7, process="m1", times=100.0),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_topic_that_is_created_again_while_a_member_is_frozen() -> None:
    """What it had fetched of the old topic happens to continue where others have committed."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9873055),
        duration=167.0,
        faults=(
            faults.Crash(at=92.363, seconds=0.01, process="m3"),
            faults.UserRevoked(at=109.911, seconds=2.8, process="m4"),
            faults.TopicDeleted(at=124.899, seconds=0.01, topic="orders", partitions=6),
            faults.Freeze(at=130.096, seconds=34.708, process="m2"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_drain_whose_times_do_not_add_up() -> None:
    """It lasts for the whole drain_timeout, and a sum of floats says that it was a bit less."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9875189),
        duration=135.0,
        logins=None,
        members=(MemberPlan(name="m1", start_at=6.117, group_instance_id="instance-1"),),
        faults=(
            faults.SlowWork(at=116.456, seconds=0.45, process="m1", times=100.0),
            faults.Stop(at=125.253, seconds=0.01, process="m1"),
        ),
    )
    assert simulate(plan, default_worker).violations == ()


def test_a_commit_that_arrives_between_two_generations() -> None:
    """Its member has committed again since; it keeps the partition and continues after that."""
    plan = attrs.evolve(
        generate_plan(Scenario(logins=True), 9947038),
        duration=367.0,
        members=(
            MemberPlan(name="m1", start_at=1.444, group_instance_id=None),
            MemberPlan(name="m2", start_at=7.512, group_instance_id=None),
            MemberPlan(name="m3", start_at=6.642, group_instance_id=None),
        ),
        faults=(
            faults.Crash(at=215.011, seconds=1.1, process="m2"),
            faults.CoordinatorMoves(at=252.797, away=0.951, loading=0.0),
            faults.Stall(at=305.924, seconds=23.327, process="m1", broker="*"),
            faults.Crash(at=323.093, seconds=0.01, process="m2"),
        ),
    )
    outcome = simulate(plan, default_worker)
    assert outcome.violations == ()
    events = [one.event for one in outcome.history if isinstance(one, EventReported)]
    (restored,) = [one for one in events if isinstance(one, CommitsRestored)]
    partition = TopicPartition("orders", 0)
    assert (restored.found[partition], restored.offsets[partition]) == (103, 117)
