"""Calls that cannot work, and time-outs that lose nothing."""

from __future__ import annotations

import pytest

from kgroup.errors import (
    ArgumentError,
    GroupClosedError,
    UsageError,
)
from kgroup.events import (
    RequestFailed,
)
from kgroup.testing.simulation import Process, history, simulate
from kgroup.threaded import ConsumerGroup
from tests.brokers import Kafka
from tests.testing.simulation.samples import a_plan
from tests.threaded.harness import (
    SOON,
    Harness,
    RecordedEvents,
    thread,
)


def test_next_in_a_handler_is_refused(kafka: Kafka) -> None:
    """This also holds in a thread pool's function with the handler's context."""
    here = Harness(kafka)
    here.create()

    def handle(group: ConsumerGroup) -> None:
        next(group)

    with pytest.raises(ExceptionGroup) as info, here.group() as group:
        for generation in group:
            generation.start(handle, group)
    (error,) = info.value.exceptions
    assert isinstance(error, UsageError)
    assert "called by a handler" in str(error)


def test_arguments_that_do_not_fit_start_no_thread(kafka: Kafka) -> None:
    """The call itself is refused, and the generation goes on."""
    here = Harness(kafka)
    here.create()
    with here.group() as group:
        generation = next(group)
        with pytest.raises(ArgumentError, match="called with 1 argument, but missing"):
            generation.start(lambda _, batch: batch, 1)  # type: ignore[arg-type, misc]
        assert generation.end is None


def test_two_threads_in_next_are_refused() -> None:
    """The second thread gets an error; the first continues."""
    recorded = RecordedEvents()
    nowhere = Harness(Kafka("nobody", "127.0.0.1:1"))
    with nowhere.group(recorded) as group:

        def first() -> None:
            with pytest.raises(GroupClosedError):
                group.next()

        with thread(first):
            recorded.wait(RequestFailed)
            with pytest.raises(UsageError, match="another thread already waits"):
                group.next()
            group.shutdown()


def test_a_group_is_entered_once(kafka: Kafka) -> None:
    """next() before ``with``, and a second ``with``, are refused."""
    group = Harness(kafka).group()
    with pytest.raises(UsageError, match="is not open"):
        group.next()
    with group, pytest.raises(UsageError, match="entered only once"):
        group.__enter__()


def test_a_time_out_of_next_loses_nothing(kafka: Kafka) -> None:
    """The next call continues where the call that gave up had stopped, as the error says."""
    here = Harness(kafka)
    here.create()
    with here.group() as group:
        with here.group() as other:
            other.next(SOON)  # until this generation drains, there is no other
            said = r"next\(\) got no generation within 0 s; the member is .*the next call goes on"
            with pytest.raises(TimeoutError, match=f"group '{here.group_id}': {said}"):
                group.next(0)
        generation = group.next(SOON)
        while not generation.assignment:
            generation = group.next(SOON)
        with pytest.raises(TimeoutError):
            generation.wait_ended(0)


def test_a_threaded_group_cannot_be_simulated() -> None:
    """A program of a simulation is refused at once: its threads would run in real time."""

    async def worker(process: Process) -> None:
        ConsumerGroup(process.config())

    outcome = simulate(a_plan(duration=1.0), worker)
    ended = [entry for entry in outcome.history if isinstance(entry, history.ProcessEnded)]
    assert {entry.process for entry in ended} == {"m1", "m2"}
    for entry in ended:
        assert entry.error is not None
        assert entry.error.startswith("UsageError: group 'group': kgroup.threaded uses threads")
        assert "simulate the same work with kgroup.ConsumerGroup" in entry.error
