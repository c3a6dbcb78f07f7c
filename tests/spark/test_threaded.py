"""The iterator over Spark's batches for threads: a wait that is interrupted loses no batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from kgroup.background.event_loop import Call
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import CommitFailedError, CommitUnknownError, StaleGenerationError
from kgroup.spark import threaded
from kgroup.spark.threaded import Batches
from kgroup.types import TopicPartition
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON, Harness

once = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
"""For tests that are the same on every broker."""


class Loop:
    """Gives the numbers from 0 on in place of batches, until it is closed."""

    def __init__(self) -> None:
        self.given = 0
        self.closed = False

    async def __anext__(self) -> int:
        """See ``Batches``."""
        if self.closed:
            raise StopAsyncIteration
        self.given += 1
        return self.given - 1

    async def aclose(self) -> None:
        """See ``Batches``."""
        self.closed = True


class Interrupted(BaseException):
    """A signal handler's exception."""


@once
def test_an_interrupted_wait_loses_no_batch(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a signal handler raises as a batch arrives, the next call returns it, until `close`."""
    here, loop = Harness(kafka), Loop()
    here.create()
    scripted: Any = loop

    def numbers(count: int) -> list[Any]:
        return [next(batches)._batch for _ in range(count)]

    def interrupt() -> None:
        def refuse(call: Call[Any]) -> None:
            raise Interrupted

        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(Call, "result", refuse)
            next(batches)

    with here.group() as group:
        batches = Batches(group.next(SOON), scripted)
        assert numbers(1) == [0]
        interrupt()
        assert numbers(2) == [1, 2]
        interrupt()
        batches.close()
        assert list(batches) == []


class FailingLoop:
    """A loop of one batch; the batch, whose run fails; and the generation of both."""

    def __init__(self, group_is_closed: bool) -> None:
        self.closed = 0
        self._group_is_closed = group_is_closed

    def __iter__(self) -> Iterator[FailingLoop]:
        """The only batch."""
        return iter([self])

    def run(self, fn: object, *args: object) -> None:
        """Fail."""
        del fn, args
        raise LookupError("the sink is away")

    def close(self) -> None:
        """Count the call."""
        self.closed += 1
        if self._group_is_closed:
            raise StaleGenerationError("the group is closed", None)

    def scope(self) -> AbstractContextManager[None]:
        """A block."""
        return nullcontext()


@pytest.mark.parametrize("group_is_closed", [False, True])
def test_foreach_batch_closes_its_loop(
    monkeypatch: pytest.MonkeyPatch, group_is_closed: bool
) -> None:
    """If the function raises, the partitions are released, and its error is what surfaces."""
    loop: Any = FailingLoop(group_is_closed)
    monkeypatch.setattr(threaded, "batches", lambda *_: loop)
    with pytest.raises(LookupError):
        threaded.foreach_batch(loop, loop, lambda df, batch: None)
    assert loop.closed == 1


class CommitsWithErrors(FailingLoop):
    """A loop whose batch runs; its commits raise these errors before one succeeds."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(group_is_closed=False)
        self.commits = 0
        self._errors = iter(errors)

    def run(self, fn: object, *args: object) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Raise the next error, if there is one."""
        self.commits += 1
        for error in self._errors:
            raise error


def failed(code: ErrorCode) -> CommitFailedError:
    """A commit of one partition that was answered with an error code."""
    answer = broker_error(Request.COMMIT, code)
    return CommitFailedError("refused", {TopicPartition("lines", 0): answer})


@pytest.mark.parametrize(
    ("errors", "commits"),
    [
        ([CommitUnknownError("no answer"), failed(ErrorCode.NOT_COORDINATOR)], 3),
        ([failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], 1),
    ],
    ids=["coordinator is away", "topic is deleted"],
)
def test_foreach_batch_commits_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], commits: int
) -> None:
    """However long the coordinator is away; of a topic that was deleted nothing is left."""
    loop: Any = CommitsWithErrors(*errors)
    monkeypatch.setattr(threaded, "batches", lambda *_: loop)
    threaded.foreach_batch(loop, loop, lambda df, batch: None)
    assert (loop.commits, loop.closed) == (commits, 1)


def test_foreach_batch_raises_what_no_other_commit_mends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that would be the same again is the program's to know."""
    loop: Any = CommitsWithErrors(failed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    monkeypatch.setattr(threaded, "batches", lambda *_: loop)
    with pytest.raises(CommitFailedError):
        threaded.foreach_batch(loop, loop, lambda df, batch: None)
    assert (loop.commits, loop.closed) == (1, 1)
