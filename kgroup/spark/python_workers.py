"""The processes of Python workers that Spark has killed, as far as this JVM started them.

Spark closes a killed worker's connection, which ends its task, and lets its daemon kill the
process. The daemon is a process of its own: on a busy machine user code runs on meanwhile.

Spark does not report the end of the process, so this reads private fields of Spark. If a version
of Spark has others, no worker is found.

Source: Spark 4.0: ``SparkEnv.pythonWorkers``, ``PythonWorkerFactory.daemonWorkers`` and
``stopWorker``, ``PythonWorker.stop``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

_HANDLES: Final[WeakKeyDictionary[Any, dict[int, Any]]] = WeakKeyDictionary()
"""For each JVM the handles of the processes that were seen and may exist, by process id."""


def killed_workers(jvm: Any) -> int:
    """The number of workers that Spark has stopped, and whose process still exists.

    Only workers of executors in this JVM are found: those of a session with a ``local`` master.
    Spark's list of workers has weak references, so a stopped worker is gone from it after the next
    garbage collection. It is found if an earlier call saw it, so call this before a job is killed.

    Args:
        jvm: py4j's view of the driver's JVM.

    Raises:
        Py4JJavaError: Spark changed its list of workers meanwhile; ask again.
    """
    environment = jvm.org.apache.spark.SparkEnv.get()
    factories = [] if environment is None else _private(environment, "pythonWorkers")
    workers = {
        int(entry.productElement(1).pid()): entry
        for factory in factories
        for entry in _private(factory.productElement(1), "daemonWorkers")
    }
    seen = _HANDLES.setdefault(jvm, {})
    for pid, entry in workers.items():
        seen.setdefault(pid, entry.productElement(1))
    for pid, handle in list(seen.items()):
        if not handle.isAlive():
            seen.pop(pid, None)  # another thread may count too
    return sum(
        pid not in workers or not workers[pid].productElement(0).channel().isOpen()
        for pid in list(seen)
    )


def _private(owner: Any, name: str) -> Iterator[Any]:
    """The entries of the Scala map in a private field; none if there is no such field."""
    for field in owner.getClass().getDeclaredFields():
        # The Scala compiler may put the class's name in front of it.
        if field.getName().endswith(name):
            field.setAccessible(True)
            entries = field.get(owner).iterator()
            while entries.hasNext():
                yield entries.next()
