"""A pool of processes that simulate seeds: each gets one at a time and sends back its figures.

INVARIANTS: no process of the pool outlives the iteration over its results, whatever ends that, nor
the process that iterates, even if it is killed. A pool process that dies is an error, so that no
seed is skipped silently.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final, final

import attrs

from kgroup.errors import UsageError
from kgroup.testing.simulation.hanging import SimulationHangError
from kgroup.testing.simulation.plan import Scenario
from kgroup.testing.simulation.plan_generation import generate_plan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.run import simulate
from kgroup.testing.simulation.summary import Summary

_ENDING: Final = 5.0
"""Real seconds that a process has to end before it is killed."""
_PATIENCE: Final = 60.0
"""Real seconds beyond the time-out of a seed in which a process has to report that it hangs."""
_READY: Final = "ready"
_CAN_HOLD: Final = hasattr(signal, "pthread_sigmask")
"""Whether signals can be held back; not on Windows."""


@final
@attrs.frozen(kw_only=True)
class Result:
    """The result of one seed.

    Attributes:
        position: the place of the seed among all seeds.
        seed: the seed.
        summary: its figures.
        failure: what is wrong, as text; empty if nothing is.
        hang: the error, if the simulation did not end; it is not run again.
    """

    position: int
    seed: int
    summary: Summary
    failure: str
    hang: SimulationHangError | None = None

    @property
    def is_failure(self) -> bool:
        """Whether an invariant was broken, or the simulation itself failed."""
        return bool(self.failure)


def results(
    scenario: Scenario,
    seeds: Iterable[int],
    worker: Worker,
    *,
    processes: int | None,
    keep_going: bool,
    seed_timeout: float,
) -> Generator[Result, None, None]:
    """Simulate seeds and yield each result as soon as it is known.

    After a failure no further seed is started, unless ``keep_going``; those that were started are
    finished. When the generator is closed, its processes have ended.

    Raises:
        UsageError: a process could not be started, or died.
    """
    number = _processors() if processes is None else processes
    if isinstance(seeds, Sized):
        number = min(number, len(seeds))
    tasks = enumerate(seeds)
    payload = _pickled(scenario, worker, seed_timeout)
    if number > 1 and payload is not None:
        with _WorkerPool(payload, number) as pool:
            if pool.can_load():
                yield from pool.results(
                    tasks, keep_going=keep_going, patience=seed_timeout + _PATIENCE
                )
                return
    for position, seed in tasks:
        result = _result(scenario, worker, seed_timeout, position, seed)
        yield result
        if result.is_failure and not keep_going:
            return


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _pickled(scenario: Scenario, worker: Worker, seed_timeout: float) -> bytes | None:
    """The scenario and the program for another process, or None if they cannot be pickled."""
    try:
        return pickle.dumps((scenario, worker, seed_timeout))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _result(
    scenario: Scenario, worker: Worker, seed_timeout: float, position: int, seed: int
) -> Result:
    hang = None
    try:
        outcome = simulate(generate_plan(scenario, seed), worker, seed_timeout=seed_timeout)
    except SimulationHangError as error:
        hang, failure, summary = error, str(error), Summary()
    except Exception:  # noqa: BLE001 # raised when this seed is run again
        failure, summary = traceback.format_exc(), Summary()
    else:
        failure = "\n".join(map(str, outcome.violations))
        summary = Summary.of(outcome.history)
    return Result(position=position, seed=seed, summary=summary, failure=failure, hang=hang)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait; a process that is started in the block begins with it held back.

    A new process imports for a second before it can ignore Ctrl-C, and would print a traceback.
    """
    if not _CAN_HOLD:
        yield
        return
    # Python starts this helper with the first process, and then lets Ctrl-C through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, payload: bytes) -> None:
    """The main function of a process of the pool."""
    # Ctrl-C goes to the whole process group; only the parent acts on it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _CAN_HOLD:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    try:
        scenario, worker, seed_timeout = pickle.loads(payload)  # noqa: S301 # from our own parent
    except Exception as error:  # noqa: BLE001 # reported to the parent
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(_READY)
    while True:
        try:
            position, seed = connection.recv()
        except EOFError:
            return
        connection.send(_result(scenario, worker, seed_timeout, position, seed))


def _end_with_parent() -> None:
    """End this process when its parent has ended, even in the middle of a long simulation."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _deaf(busy: Iterable[int], patience: float) -> SimulationHangError:
    """The error of processes that cannot even report that they hang."""
    seeds = sorted(busy)
    return SimulationHangError(
        seeds[0],
        math.nan,
        f"seed {', '.join(map(str, seeds))} hangs: its process has reported nothing for"
        f" {patience:g} real seconds. It computes or blocks in a library that lets no other thread"
        " run; with processes=1 (--processes 1) a debugger shows where",
    )


@final
class _WorkerPool:
    """Processes that have all loaded the same scenario and program."""

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
                with _interrupts_held():
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
        """Whether the processes could load the program; either all can or none."""
        answers = [self._receive(one) for one in self._processes]
        return all(answer == _READY for answer in answers)

    def results(
        self, tasks: Iterator[tuple[int, int]], *, keep_going: bool, patience: float
    ) -> Iterator[Result]:
        """Give each idle process the next seed, and yield the results as they come.

        Raises:
            SimulationHangError: no process answers for so many seconds.
        """
        busy: dict[object, tuple[Connection, int]] = {}
        for connection, task in zip(self._processes, islice(tasks, self._number), strict=False):
            connection.send(task)
            busy[connection] = connection, task[1]
        while busy:
            answered = wait([connection for connection, _ in busy.values()], patience)
            if not answered:
                raise _deaf((seed for _, seed in busy.values()), patience)
            for ready in answered:
                connection, _ = busy.pop(ready)
                result = self._receive(connection)
                assert isinstance(result, Result)
                if result.is_failure and not keep_going:
                    tasks = iter(())
                following = next(tasks, None)
                if following is not None:
                    connection.send(following)
                    busy[connection] = connection, following[1]
                yield result

    def _receive(self, connection: Connection) -> object:
        try:
            return connection.recv()
        except EOFError:
            process = self._processes[connection]
            process.join(_ENDING)
            raise UsageError(
                f"the process {process.name!r} ended with status {process.exitcode} and without a"
                " result; its standard error may say why. If a script called this, its own work"
                ' belongs under `if __name__ == "__main__":`. With processes=1 no other process is'
                " started"
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
