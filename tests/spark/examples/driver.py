"""Runs the exactly-once examples in one driver process, which is killed or frozen at a step.

    python driver.py STEP ACTION BOOTSTRAP_SERVERS TOPIC EXAMPLE=SINK...

Each example runs unchanged, with its own group, in its own thread. All share one session, because a
JVM costs more than all else in the test. When every example has reached the step, the process does
the action to itself: ``kill``, or ``freeze``, with its JVM. For each step that an example reaches,
a line is printed: the name, a colon, the step.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, final

import psutil

from kgroup import GroupConfig
from kgroup.spark.threaded import MicroBatch
from kgroup.testing.spark import session
from kgroup.testing.spark.jars import DELTA_SETTINGS, delta_jars, postgres_jars

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
BEFORE: Final = "before the sink"
BETWEEN: Final = "between sink and commit"
AFTER: Final = "after the commit"
REFUSED: Final = "refused"
KILL, FREEZE = "kill", "freeze"
SESSION_TIMEOUT: Final = 10.0
"""The story waits for its end several times; a machine that pauses must not end a session."""
PATIENCE: Final = 200.0
"""Seconds for what has no part in the story."""
SETTINGS: Final = {
    **DELTA_SETTINGS,
    "spark.sql.shuffle.partitions": "1",
    # Queries run once or twice, so that compiling them would cost the most.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def load(name: str) -> ModuleType:
    """Load an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kill() -> None:
    """End this process as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Stop this process and those that it has started, and return when it was woken.

    It must not return earlier: the threads stop one after the other, and a thread that continued
    from the barrier could leave a connection half made, which PostgreSQL would find too old
    afterwards. Here, SIGCONT is waited for, and every thread blocks it. A handler would run in the
    main thread, which does not notice a signal that the kernel has given to another thread.
    """
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a Python worker that was just ending
            child.suspend()
    os.kill(os.getpid(), signal.SIGSTOP)
    signal.sigwait({signal.SIGCONT})


@final
class Steps:
    """The steps of the examples, and the action once all have reached one.

    Attributes:
        names: the example of each group.
    """

    def __init__(self, examples: int, step: str, action: str) -> None:
        self.names: dict[str, str] = {}
        self._step = step
        self._armed = True
        self._act = {KILL: kill, FREEZE: freeze}[action]
        self._together = threading.Barrier(examples, self._once)

    def _once(self) -> None:
        self._armed = False
        self._act()

    def at(self, batch: MicroBatch, step: str) -> None:
        """Record that a batch has reached a step."""
        # One write: lines of several threads must not mix.
        sys.stdout.write(f"{self.names[batch.group_id]}: {step}\n")
        sys.stdout.flush()
        if self._armed and step == self._step:
            self._together.wait()


def run(name: str, steps: Steps, *arguments: str) -> None:
    """Run an example, again after each refusal; any other end of it ends the process."""
    example: Any = load(name)
    publish = example.publish

    def published(batch: MicroBatch, *rest: Any) -> None:
        steps.names[batch.group_id] = name
        steps.at(batch, BEFORE)
        try:
            publish(batch, *rest)
        except BaseException:
            steps.at(batch, REFUSED)
            raise
        steps.at(batch, BETWEEN)

    example.publish = published
    example.GroupConfig = partial(
        GroupConfig,
        session_timeout=SESSION_TIMEOUT,
        heartbeat_interval=0.3,
        rebalance_timeout=PATIENCE,
        drain_timeout=PATIENCE,
    )
    # Signals are the main thread's.
    example.signal = SimpleNamespace(signal=lambda *_: None, SIGTERM=signal.SIGTERM)
    try:
        while True:
            with suppress(example.SinkMovedError):
                example.main(*arguments)
    finally:
        traceback.print_exc()
        os._exit(1)


def main(step: str, action: str, servers: str, topic: str, *sinks: str) -> None:
    """Run all examples."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})  # threads inherit it
    steps = Steps(len(sinks), step, action)
    commit = MicroBatch.commit

    def committed(self: MicroBatch) -> None:
        commit(self)
        steps.at(self, AFTER)

    MicroBatch.commit = committed  # type: ignore[method-assign]
    with (
        session(jars=[*delta_jars(), *postgres_jars()], settings=SETTINGS),
        ThreadPoolExecutor(len(sinks)) as threads,
    ):
        for sink in sinks:
            name, _, place = sink.partition("=")
            threads.submit(run, name, steps, servers, topic, place)


if __name__ == "__main__":
    main(*sys.argv[1:])
