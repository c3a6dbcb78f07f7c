"""A worker process with a client in Python: ``python -m benchmarks.clients.worker NAME JOB...``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

import attrs

from benchmarks.clients.job import Ended, Job, Note
from benchmarks.clients.sinks import SINKS

ADAPTERS: Final[Mapping[str, tuple[str, str]]] = {
    "kgroup": ("kgroup_client", "tasks"),
    "kgroup-batches": ("kgroup_client", "batches"),
    "kgroup-threads": ("kgroup_client", "threads"),
    "kgroup-source": ("kgroup_source", "run"),
    "confluent-raw": ("confluent_client", "raw"),
    "confluent-checked": ("confluent_client", "checked"),
    "confluent-eager": ("confluent_client", "eager"),
    "confluent-cooperative": ("confluent_client", "cooperative"),
    "confluent-kip848": ("confluent_client", "kip848"),
    "aiokafka": ("aiokafka_client", "run"),
    "kafka-python": ("kafka_python_client", "run"),
}
"""The module beside this file, and its function."""

Adapter = Callable[[Job, Note, Ended], None]


def adapter_of(name: str) -> Adapter:
    """Import a client, and only this one."""
    module, function = ADAPTERS[name]
    adapter: Adapter = getattr(import_module(f"benchmarks.clients.{module}"), function)
    return adapter


def main() -> None:
    """Run the client as often as the job says."""
    name, *arguments = sys.argv[1:]
    job, adapter = Job.parse(arguments), adapter_of(name)
    for number in range(job.rounds):
        again = job if job.rounds == 1 else attrs.evolve(job, group=f"{job.group}-{number}")
        ended = Ended()
        ended.set_at_sigterm()
        sink = SINKS[job.sink](again, ended)
        adapter(again, sink.note, ended)
        sink.close()


if __name__ == "__main__":
    main()
