"""The floors: who may import whom. The table is DESIGN's list of floors as data.

The rules are functions from sources to faults, so that each is shown to find what it is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

import pytest

from tests.house.sources import package_sources

FLOORS: Final[tuple[tuple[frozenset[str], ...], ...]] = (
    # Values, errors, settings, events, and the protocols that the floors above implement.
    (
        frozenset(
            {
                "kgroup.addresses",
                "kgroup.arguments",
                "kgroup.bounds",
                "kgroup.config",
                "kgroup.error_codes",
                "kgroup.errors",
                "kgroup.events",
                "kgroup.extension_checks",
                "kgroup.interfaces",
                "kgroup.lazy",
                "kgroup.runtime",
                "kgroup.types",
            }
        ),
    ),
    # Decisions without I/O.
    (
        frozenset({"kgroup.assignors"}),
        frozenset({"kgroup.client.backoff"}),
        frozenset({"kgroup.clocks"}),
        frozenset({"kgroup.worker_thread"}),
        frozenset({"kgroup.client.lease"}),
        frozenset({"kgroup.logs"}),
        frozenset({"kgroup.notifier"}),
        frozenset({"kgroup.client.error_policy"}),
        frozenset({"kgroup.broker.groups"}),
        frozenset({"kgroup.wire.versions"}),
    ),
    # The wire; retries and events by the error policy.
    (
        frozenset({"kgroup.wire"}),
        frozenset({"kgroup.client.retry"}),
        frozenset({"kgroup.event_emitter"}),
    ),
    # The cluster, and the coordinator as the client sees it.
    (frozenset({"kgroup.client"}),),
    # Live parts: neither of these imports the other, and a generation starts both.
    (
        frozenset({"kgroup.watchers"}),
        frozenset({"kgroup.records"}),
    ),
    (frozenset({"kgroup.generation"}),),
    # ConsumerGroup, with the member that it runs.
    (frozenset({"kgroup.group", "kgroup.member"}),),
    # Its threaded twin, the embedded broker's server; Spark, for both kinds of groups.
    (
        frozenset({"kgroup.threaded"}),
        frozenset({"kgroup.broker"}),
    ),
    (frozenset({"kgroup.spark"}),),
    # Testing; the command line, which has the simulator.
    (frozenset({"kgroup.testing"}),),
    (frozenset({"kgroup.cli"}),),
    # What users import; nobody inside does.
    (frozenset({"kgroup"}),),
)
"""From the bottom to the top; each floor is a row of rooms, each room the modules (and packages
with all that is in them) that may import each other. The longest name that fits is a module's."""

ROOMS: Final = {
    name: (floor, room) for floor, rooms in enumerate(FLOORS) for room in rooms for name in room
}
BARE_TWINS: Final = {"generation", "watchers"}


def room_of(module: str) -> tuple[int, frozenset[str]] | None:
    """The floor and room of a module, or None if the table has no place for it."""
    if module == "kgroup":
        return ROOMS[module]
    name = module
    while name != "kgroup":
        if name in ROOMS:
            return ROOMS[name]
        name = name.rpartition(".")[0]
    return None


def imports_of(source: str, modules: Mapping[str, str]) -> Iterator[str]:
    """What a source imports, wherever it stands, each as the module that is meant.

    A relative import keeps its dots; ``from package import module`` means the module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                member = f"{origin}.{alias.name}"
                yield member if member in modules else origin


def import_faults(modules: Mapping[str, str]) -> Iterator[str]:
    """Each import that breaks a rule of the floors, as a sentence."""
    for module, source in modules.items():
        place = room_of(module)
        if place is None:
            yield f"{module} has no floor: give it a place in FLOORS"
            continue
        floor, room = place
        for target in imports_of(source, modules):
            if target.startswith("."):
                yield f"{module} imports {target} relatively"
            elif target.partition(".")[0] in BARE_TWINS:
                yield f"{module} imports the bare name {target}, which may be a user's own"
            elif target == "kgroup":
                yield f"{module} imports the bare kgroup, which is for users"
            elif target.startswith("kgroup."):
                other = room_of(target)
                if other is None:
                    yield f"{module} imports {target}, which has no floor"
                elif other[1] != room and other[0] >= floor:
                    yield f"{module} (floor {floor}) imports {target} (floor {other[0]})"


def import_cycle(modules: Mapping[str, str]) -> list[str]:
    """The modules of an import cycle in their order, or nothing."""
    graph = {
        module: {target for target in imports_of(source, modules) if target in modules} - {module}
        for module, source in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_every_import_keeps_to_its_floor() -> None:
    """A module imports only from floors below its own, or within its own package."""
    assert list(import_faults(package_sources())) == []


def test_no_import_cycle() -> None:
    """No module comes back to itself through its imports, those for types included."""
    assert import_cycle(package_sources()) == []


def test_every_package_of_the_checkout_is_read() -> None:
    """The two linked packages are among the modules that the rules see."""
    assert {"kgroup", "kgroup.types", "kgroup.generation", "kgroup.watchers"} <= set(
        package_sources()
    )


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("kgroup.nowhere", "", "kgroup.nowhere has no floor: give it a place in FLOORS"),
        (
            "kgroup.types",
            "from kgroup.nowhere import x",
            "kgroup.types imports kgroup.nowhere, which has no floor",
        ),
        (
            "kgroup.types",
            "def late():\n    import kgroup.wire.connection",
            "kgroup.types (floor 0) imports kgroup.wire.connection (floor 2)",
        ),
        (
            "kgroup.client.error_policy",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kgroup.assignors",
            "kgroup.client.error_policy (floor 1) imports kgroup.assignors (floor 1)",
        ),
        (
            "kgroup.broker.groups.machine",
            "from kgroup.broker.log import Log",
            "kgroup.broker.groups.machine (floor 1) imports kgroup.broker.log (floor 7)",
        ),
        (
            "kgroup.watchers.tasks",
            "from kgroup.records import Batch",
            "kgroup.watchers.tasks (floor 4) imports kgroup.records (floor 4)",
        ),
        (
            "kgroup.cli.demo",
            "from kgroup import ConsumerGroup",
            "kgroup.cli.demo imports the bare kgroup, which is for users",
        ),
        (
            "kgroup.cli.demo",
            "import kgroup",
            "kgroup.cli.demo imports the bare kgroup, which is for users",
        ),
        ("kgroup.wire", "from .types import x", "kgroup.wire imports .types relatively"),
        ("kgroup.wire", "from . import types", "kgroup.wire imports . relatively"),
        (
            "kgroup.group",
            "from generation import Generation",
            "kgroup.group imports the bare name generation, which may be a user's own",
        ),
        (
            "kgroup.group",
            "import watchers.heartbeat",
            "kgroup.group imports the bare name watchers.heartbeat, which may be a user's own",
        ),
    ],
)
def test_the_rules_find_a_fault(module: str, source: str, fault: str) -> None:
    """Each way to break the floors is found and named."""
    assert list(import_faults({module: source})) == [fault]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kgroup.config", "from kgroup.errors import ConfigError"),
        ("kgroup.wire.connection", "from kgroup.wire import versions\nimport kgroup.wire.codec"),
        ("kgroup.client.coordinator", "from kgroup.client.cluster import Cluster"),
        ("kgroup.broker.server", "from kgroup.broker.groups.machine import step"),
        ("kgroup", "from kgroup.group import ConsumerGroup"),
        ("kgroup.cli.demo", "import kgroup.broker\nimport sys, trio"),
    ],
)
def test_the_rules_allow_what_lies_below(module: str, source: str) -> None:
    """Imports from below and within the own package are no fault."""
    assert list(import_faults({module: source, "kgroup.wire.versions": ""})) == []


def test_a_cycle_is_found() -> None:
    """Two modules that import each other, one of them late, are a cycle."""
    modules = {
        "kgroup.client.cluster": "from kgroup.client import coordinator",
        "kgroup.client.coordinator": "def late():\n    from kgroup.client.cluster import Cluster",
    }
    assert set(import_cycle(modules)) == set(modules)
