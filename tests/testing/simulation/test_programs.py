"""The programs of a simulation: unchanged, restarted, killed, and isolated."""

from __future__ import annotations

import attrs
import pytest
import trio

from kgroup.clocks import TrioClock
from kgroup.group import ConsumerGroup
from kgroup.testing.simulation import (
    Outcome,
    Process,
    Scenario,
    faults,
    generate_plan,
    history,
    simulate,
)
from tests.testing.simulation.samples import a_plan


def of(outcome: Outcome, *kinds: type[history.HistoryEntry]) -> list[history.HistoryEntry]:
    """The entries of some kinds."""
    return [one for one in outcome.history if type(one) in kinds]


def test_a_program_that_makes_its_groups_itself_lives_in_the_simulation() -> None:
    """A group with its default runtime gets the simulated network, clock and records."""
    clocks = []

    async def program(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            clocks.append(type(group._runtime.clock))
            async for generation in group:
                async for batch in generation.records():
                    for message in batch.messages:
                        process.processed(message)
                    await generation.commit({batch.partition: batch.next_offset})

    outcome = simulate(a_plan(), program)
    assert outcome.violations == ()
    assert set(clocks) == {TrioClock}
    (settled,) = of(outcome, history.FinalGroupState)
    assert isinstance(settled, history.FinalGroupState)
    assert settled.stable
    assert settled.committed == {name: end for name, end in settled.ends.items() if end}


def test_a_program_that_fails_is_started_again() -> None:
    """Its error is recorded, and it is started again after a while."""

    async def program(process: Process) -> None:
        await trio.sleep(30)
        raise LookupError(f"life {process.life} of {process.name}")

    outcome = simulate(attrs.evolve(a_plan(), duration=70.0), program)
    ended = [one for one in of(outcome, history.ProcessEnded) if one.process == "m1"]  # type: ignore[attr-defined]
    assert [one.error for one in ended][:2] == [  # type: ignore[attr-defined]
        "LookupError: life 1 of m1",
        "LookupError: life 2 of m1",
    ]


@pytest.mark.parametrize("in_group", [False, True])
def test_a_program_may_end_by_sys_exit(*, in_group: bool) -> None:
    """It ends that program as any exception does, and not the simulation."""

    async def program(process: Process) -> None:
        await trio.sleep(30)
        if in_group:
            raise BaseExceptionGroup("its tasks", [SystemExit(3), LookupError("too")])
        raise SystemExit(3)

    outcome = simulate(attrs.evolve(a_plan(), duration=70.0), program)
    errors = {one.error for one in of(outcome, history.ProcessEnded)}  # type: ignore[attr-defined]
    assert ("SystemExit: 3; LookupError: too" if in_group else "SystemExit: 3") in errors


def test_nothing_of_a_crashed_program_counts() -> None:
    """A crashed program reaches no broker, and what its tasks still do is not recorded."""

    async def program(process: Process) -> None:
        try:
            async with ConsumerGroup(process.config()) as group:
                async for _ in group:
                    pass
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    crash = faults.Crash(at=40.0, process="m1", seconds=30.0)
    outcome = simulate(a_plan(faults=(crash,)), program)
    gone = [
        one
        for one in outcome.history
        if 40.0 < one.at < 70.0 and getattr(one, "process", None) == "m1"
    ]
    assert gone == []
    requests = [
        one for one in outcome.history if isinstance(one, history.RequestHandled) and one.at > 40.0
    ]
    assert not any(one.api == "leave_group" and one.at < 70.0 for one in requests)


def test_a_program_that_does_not_end_is_killed() -> None:
    """A program has a minute to end; then it is disconnected and cancelled."""

    async def program(process: Process) -> None:
        async with ConsumerGroup(process.config()) as group:
            async for _ in group:
                pass
        await trio.sleep_forever()

    outcome = simulate(
        generate_plan(Scenario(members=1, duration=60.0, faults_per_hour=0.0), 1), program
    )
    (crashed,) = of(outcome, history.ProcessCrashed)
    (over,) = of(outcome, history.SimulationEnded)
    assert over.at == crashed.at > 60.0


def test_an_error_of_a_crashed_program_is_ignored() -> None:
    """A task that fails while its program is killed does not end the simulation."""

    async def fails_as_it_is_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError

    async def program(_: Process) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_as_it_is_cancelled)
            nursery.start_soon(trio.sleep_forever)

    crash = faults.Crash(at=40.0, process="m1", seconds=5.0)
    outcome = simulate(attrs.evolve(a_plan(faults=(crash,)), duration=60.0), program)
    assert of(outcome, history.SimulationEnded)


def test_an_error_of_the_simulation_itself_ends_it_while_a_program_is_frozen() -> None:
    """A frozen program is thawed, so that the simulation can end."""
    freeze = faults.Freeze(at=20.0, process="m1", seconds=50.0)
    impossible = faults.BrokerDies(at=30.0, broker="b77", seconds=1.0)
    with pytest.raises(KeyError):
        simulate(a_plan(faults=(freeze, impossible)))
