"""Monitors: what they are given, alone and together, and what becomes of their exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError
from kgroup.event_emitter import EventEmitter
from kgroup.events import Event, GenerationStarted
from kgroup.health import Health, judge, limits_of
from kgroup.monitors import HealthMonitor, Monitor, Monitored, Monitors
from kgroup.status import GroupStatus, Phase
from kgroup.types import TopicPartition

P0 = TopicPartition("t", 0)
CONFIG = GroupConfig(group_id="g", bootstrap_servers="h:1", topics=["t"])


class Noting:
    """A monitor that notes what it is given."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.noted: list[tuple[object, ...]] = []
        self._error = error

    def _note(self, *what: object) -> None:
        self.noted.append(what)
        if self._error is not None:
            raise self._error

    def __call__(self, event: Event) -> None:
        """See ``Monitor``."""
        self._note(type(event))

    def attach(self, group: Monitored) -> None:
        """See ``Monitor``."""
        self._note(group)

    def handed_out(self, group_id: str, partition: TopicPartition, records: int) -> None:
        """See ``Monitor``."""
        self._note(group_id, partition, records)

    def processed(
        self,
        group_id: str,
        partition: TopicPartition,
        records: int,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """See ``Monitor``."""
        self._note(group_id, partition, records, seconds, error)


class Group:
    """A group that runs."""

    def status(self) -> GroupStatus:
        """See ``Monitored``."""
        return GroupStatus(group_id="g", phase=Phase.RUNNING, lease=9.0, batch_age=400.0)

    def health(self, **limits: Any) -> Health:
        """See ``Monitored``."""
        return judge(self.status(), limits_of(CONFIG, **limits))


GROUP: Any = Group()
ERROR = ValueError("bad")
ALL = [(GenerationStarted,), (GROUP,), ("g", P0, 5), ("g", P0, 5, 0.5, ERROR)]


def play(*handlers: Any) -> None:
    """Emit one of each."""
    emitter = EventEmitter("g", *handlers)
    emitter.emit(GenerationStarted)
    emitter.attach(GROUP)
    emitter.handed_out(P0, 5)
    emitter.processed(P0, 5, 0.5, ERROR)


def test_monitors_get_everything_and_functions_get_events() -> None:
    """One that is inside of Monitors, and Monitors inside of Monitors, are no different."""
    monitor, inner, events = Noting(), Noting(), list[Event]()
    assert isinstance(monitor, Monitor)
    assert not isinstance(events.append, Monitor)
    play(monitor, Monitors(events.append, Monitors(inner)))
    assert monitor.noted == inner.noted == ALL
    assert [type(event) for event in events] == [GenerationStarted]


def test_a_monitor_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The first of its exceptions is logged, and the others still get everything."""
    broken, well = Noting(RuntimeError("full")), Noting()
    play(broken, well)
    assert broken.noted == well.noted == ALL
    (record,) = caplog.records
    assert "the group continues" in record.getMessage()


def test_monitors_keeps_its_handlers_apart(caplog: pytest.LogCaptureFixture) -> None:
    """The first exception of each is logged with its traceback, and the others get everything."""
    events: list[Event] = []

    def exits(_: Event) -> None:
        raise SystemExit

    broken, well = Noting(RuntimeError("full")), Noting()
    both = Monitors(broken, exits, events.append, Monitors(well))
    play(both)
    assert broken.noted == well.noted == ALL
    assert [type(event) for event in events] == [GenerationStarted]
    for record, kind in zip(caplog.records, (RuntimeError, SystemExit), strict=True):
        assert record.exc_info
        assert record.exc_info[0] is kind
        assert "of group 'g' raised an exception for GenerationStarted" in record.getMessage()
    play(both)
    assert len(well.noted) == 2 * len(ALL)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("first", range(len(ALL)))
def test_monitors_names_the_group_of_each_failure(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is that a monitor fails on first; a program may call Monitors itself."""
    monitors = Monitors(Noting(RuntimeError("full")))
    calls: list[Callable[[], None]] = [
        lambda: monitors(GenerationStarted(group_id="g")),
        lambda: monitors.attach(GROUP),
        lambda: monitors.handed_out("g", P0, 5),
        lambda: monitors.processed("g", P0, 5, 0.5, None),
    ]
    calls[first]()
    (record,) = caplog.records
    assert "of group 'g' raised" in record.getMessage()


def test_a_handler_that_only_shows_to_be_async_when_it_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its first coroutine is reported as an exception is, and no coroutine is left unawaited."""

    async def note(event: Event) -> None:
        """Do nothing."""

    def handle(event: Event) -> Any:
        return note(event)

    events: list[Event] = []
    play(handle, events.append)
    (record,) = caplog.records
    assert record.exc_info
    assert "nothing awaits it" in str(record.exc_info[1])
    assert [type(event) for event in events] == [GenerationStarted]


def test_monitors_refuses_what_cannot_handle_events() -> None:
    """When it is made, and not at the first event."""

    async def note(event: Event) -> None:
        """Do nothing."""

    for wrong in (note, None, 5):
        with pytest.raises(ArgumentError, match="handlers="):
            Monitors(wrong)  # type: ignore[arg-type]


def test_a_monitor_is_given_once() -> None:
    """The same one twice would count every record twice, also inside of other Monitors."""
    monitor = Noting()
    for wrong in ((monitor, monitor), (monitor, Monitors(Monitors(monitor)))):
        with pytest.raises(ArgumentError, match="it would count everything twice"):
            Monitors(*wrong)
    function = list[Event]().append
    Monitors(function, function, Noting(), Monitors(Noting()))


def test_ctrl_c_in_a_monitor_is_passed_on() -> None:
    """A KeyboardInterrupt is the user's, and not the monitor's."""
    emitter = EventEmitter("g", Noting(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        emitter.handed_out(P0, 1)


def test_the_health_of_a_group_that_the_program_does_not_hold() -> None:
    """Before there is one, the program is live and not ready; then the group is asked."""
    monitor = HealthMonitor()
    health = monitor.health()
    assert (health.live, health.ready, health.status.phase) == (True, False, Phase.NOT_ENTERED)
    play(monitor)
    assert "a handler has had its batch" in monitor.health().reasons[0]
    assert monitor.health(stuck_after=500.0).ready
