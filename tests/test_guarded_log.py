"""Log lines where the program's log raises."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator

import attrs
import pytest
from trio.testing import MockClock

from kgroup import threaded
from kgroup.config import GroupConfig
from kgroup.guarded_log import GuardedLog
from kgroup.testing.embedded import EmbeddedKafka
from tests.group.harness import P0, harness

SOON = 60.0


class Broken(logging.Handler):
    """A handler that raises, as those of other libraries may."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.called = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Raise."""
        del record
        self.called.set()
        raise self.error


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Iterator[Broken]:
    """A broken handler of the logger whose name is the parameter."""
    logger, handler = logging.getLogger(request.param), Broken(RuntimeError("full"))
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("broken", ["a.logger"], indirect=True)
@pytest.mark.parametrize("error", [RuntimeError("full"), SystemExit(3)])
def test_what_a_handler_raises_is_shown(
    broken: Broken, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown with its traceback, as logging shows its own; the caller goes on."""
    broken.error = error
    GuardedLog(logging.getLogger("a.logger")).error("a line")
    shown = capsys.readouterr().err
    assert shown.startswith("--- Logging error, which ends nothing in kgroup ---\nTraceback")
    assert type(error).__name__ in shown


@pytest.mark.parametrize("broken", ["a.logger"], indirect=True)
def test_what_cannot_be_shown(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised where standard error is closed or missing, or logging shall be quiet."""
    log = GuardedLog(logging.getLogger("a.logger"))
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr("sys.stderr", stream)
        log.error("a line")
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.error("a line")


@pytest.mark.parametrize("broken", ["a.logger"], indirect=True)
def test_ctrl_c_in_a_handler_is_passed_on(broken: Broken) -> None:
    """A KeyboardInterrupt is the program's, wherever it is raised."""
    broken.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        GuardedLog(logging.getLogger("a.logger")).error("a line")


def test_a_line_names_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Module, attributes and exception are those of the call."""
    error = ValueError("x")
    GuardedLog(logging.getLogger("a.logger")).error("%s", "a line", extra={"a": 1}, exc_info=error)
    (record,) = caplog.records
    assert record.getMessage() == "a line"
    assert record.module == "test_guarded_log"
    assert record.__dict__["a"] == 1
    assert record.exc_info
    assert record.exc_info[1] is error


@pytest.mark.parametrize("broken", ["kgroup"], indirect=True)
async def test_a_log_that_raises_ends_no_group(
    broken: Broken, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group joins, reads, commits and leaves all the same."""
    async with harness() as here:
        await here.append(1)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records())
            await generation.commit({P0: batch.next_offset})
        assert await here.committed() == {P0: 1}
    assert broken.called.is_set()
    assert "RuntimeError: full" in capsys.readouterr().err


@pytest.mark.parametrize("broken", ["kgroup.librdkafka"], indirect=True)
def test_a_log_that_raises_ends_no_record_source(broken: Broken) -> None:
    """Records are read on after a line of librdkafka could not be logged."""
    with EmbeddedKafka() as kafka:
        kafka.create_topic("t")
        kafka.append("t", 0, [b"a"])
        config = GroupConfig(bootstrap_servers=kafka.bootstrap_servers, group_id="g", topics=["t"])
        with threaded.ConsumerGroup(attrs.evolve(config, session_timeout=SOON)) as group:
            records = group.next().records()
            assert records.next(SOON) is not None
            (broker,) = kafka.cluster.nodes.values()
            kafka.call(broker.disconnect)
            assert broken.called.wait(SOON)
            kafka.call(broker.start)
            kafka.append("t", 0, [b"b"])
            batch = records.next(SOON)
            assert batch is not None
            assert batch.start_offset == 1
