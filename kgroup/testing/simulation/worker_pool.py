"""Processes that simulate seeds: each is handed one at a time and gives back figures, no facts.

INVARIANTS: no process outlives the iteration over its results, whatever ends it, nor the process
that iterates, also if that is killed; one that dies is an error that says so, and no seed is
silently left out.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator, Sized
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final, final

import attrs

from kgroup.errors import UsageError
from kgroup.testing.simulation.plan import Scenario
from kgroup.testing.simulation.plan_generation import draw
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.run import simulate
from kgroup.testing.simulation.summary import Summary

_ENDING: Final = 5.0
"""Real seconds that a process has to end before it is killed."""
_READY: Final = "ready"


@final
@attrs.frozen(kw_only=True)
class Result:
    """What became of one seed.

    Attributes:
        position: of the seed among all.
        seed: itself.
        summary: its figures.
        told: what is wrong, in text; empty if nothing is.
    """

    position: int
    seed: int
    summary: Summary
    told: str

    @property
    def is_failure(self) -> bool:
        """Whether an invariant was broken, or the simulation itself failed."""
        return bool(self.told)


def results(
    scenario: Scenario,
    seeds: Iterable[int],
    worker: Worker,
    *,
    processes: int | None,
    keep_going: bool,
) -> Generator[Result, None, None]:
    """Simulate seeds, and give what became of each as it is known.

    After a failure no other seed is begun, unless ``keep_going``; those that were begun are
    finished. Close the generator, and its processes have ended.

    Raises:
        UsageError: a process could not be started, or has died.
    """
    number = _processors() if processes is None else processes
    if isinstance(seeds, Sized):
        number = min(number, len(seeds))
    tasks = enumerate(seeds)
    payload = _pickled(scenario, worker)
    if number > 1 and payload is not None:
        with _WorkerPool(payload, number) as crew:
            if crew.can_load():
                yield from crew.results(tasks, keep_going=keep_going)
                return
    for position, seed in tasks:
        result = _result(scenario, worker, position, seed)
        yield result
        if result.is_failure and not keep_going:
            return


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pickled(scenario: Scenario, worker: Worker) -> bytes | None:
    """What another process needs, or None if it cannot be told."""
    try:
        return pickle.dumps((scenario, worker))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _result(scenario: Scenario, worker: Worker, position: int, seed: int) -> Result:
    try:
        outcome = simulate(draw(scenario, seed), worker)
    except Exception:  # noqa: BLE001 # told, and raised where this seed is run again
        told, summary = traceback.format_exc(), Summary()
    else:
        told = "\n".join(map(str, outcome.violations))
        summary = Summary.of(outcome.facts)
    return Result(position=position, seed=seed, summary=summary, told=told)


def _work(connection: Connection, payload: bytes) -> None:
    """The life of a process of the crew."""
    # Who is interrupted is the process that waits for this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        scenario, worker = pickle.loads(payload)  # noqa: S301 # our own parent's
    except Exception as error:  # noqa: BLE001 # told to the parent
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(_READY)
    while True:
        try:
            position, seed = connection.recv()
        except EOFError:
            return
        connection.send(_result(scenario, worker, position, seed))


def _end_with_parent() -> None:
    """End this process when its parent has ended, in the middle of a long simulation too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@final
class _WorkerPool:
    """Some processes that all know the same program."""

    def __init__(self, payload: bytes, number: int) -> None:
        self._payload = payload
        self._number = number
        self._processes: dict[Connection, SpawnProcess] = {}

    def __enter__(self) -> _WorkerPool:
        context = multiprocessing.get_context("spawn")
        try:
            for number in range(self._number):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work,
                    args=(theirs, self._payload),
                    name=f"kgroup simulation {number + 1}",
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._processes[ours] = process
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(at_once=kind is not None)

    def can_load(self) -> bool:
        """Whether the processes know the program; all do or none."""
        answers = [self._receive(one) for one in self._processes]
        return all(answer == _READY for answer in answers)

    def results(self, tasks: Iterator[tuple[int, int]], *, keep_going: bool) -> Iterator[Result]:
        """Hand seeds out one by one."""
        busy: dict[object, Connection] = {}
        for connection, task in zip(self._processes, islice(tasks, self._number), strict=False):
            connection.send(task)
            busy[connection] = connection
        while busy:
            for ready in wait(list(busy.values())):
                connection = busy.pop(ready)
                result = self._receive(connection)
                assert isinstance(result, Result)
                if result.is_failure and not keep_going:
                    tasks = iter(())
                following = next(tasks, None)
                if following is not None:
                    connection.send(following)
                    busy[connection] = connection
                yield result

    def _receive(self, connection: Connection) -> object:
        try:
            return connection.recv()
        except EOFError:
            process = self._processes[connection]
            process.join(_ENDING)
            raise UsageError(
                f"the process {process.name!r} ended with status {process.exitcode} and without a"
                " result; see what it wrote to its standard error. Is what your script does under"
                ' `if __name__ == "__main__":`? With processes=1 no other process is needed'
            ) from None

    def _end(self, *, at_once: bool) -> None:
        for connection, process in self._processes.items():
            connection.close()
            if at_once:
                process.terminate()
        for process in self._processes.values():
            process.join(_ENDING)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
