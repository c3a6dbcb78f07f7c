"""Simulates kgroup with one line changed, in a process that nothing else runs in.

Run as ``python -P program.py``. Each line of its input is a hunt in JSON, each line of its output
the result:

    {"scenario": {...}, "seeds": [...], "breaks": number or null, "change": {...} or null,
     "partition_handler": name or null}
    {"seed": number or null, "violation": text, "tried": count, "cpu": seconds, "failed": [...]}

A hunt ends with the first seed that breaks the invariant, or any where ``breaks`` is null. Where
``partition_handler`` is null, the seed's plan chooses it.
``failed`` holds the errors of the simulator itself, which do not count as violations.

Other packages are imported once. kgroup is imported in a fork for every hunt, so that hunts share
nothing. The files of the checkout are only read.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import attrs

if TYPE_CHECKING:
    from types import CodeType, ModuleType

    from kgroup.testing.simulation.checks.base import Violation

PACKAGE: Final = "kgroup"
RUN: Final = f"{PACKAGE}.testing.simulation.run"
PLAN_GENERATION: Final = f"{PACKAGE}.testing.simulation.plan_generation"
PLAN: Final = f"{PACKAGE}.testing.simulation.plan"
CHECKOUT: Final = str(Path(__file__).resolve().parents[4])
LONGEST: Final = 300
"""Seconds of processor time that a hunt may take."""


class ChangeError(Exception):
    """The line does not occur exactly once: the mutation has to be updated."""


def changed(source: str, old: str, new: str, within: str | None) -> str:
    """A source with one line changed; its indentation stays.

    Args:
        source: of a module.
        old: the line, without the spaces around it.
        new: what stands in its place.
        within: the first line of the block that it stands in, or None for the whole module.

    Raises:
        ChangeError: there is no such line, or there are several.
    """
    lines = source.splitlines()
    where = range(len(lines)) if within is None else _block(lines, _only(lines, within))
    at = _only(lines, old, where)
    lines[at] = " " * _indentation(lines[at]) + new
    return "\n".join([*lines, ""])


def _block(lines: Sequence[str], first: int) -> range:
    """The lines of a block: those indented deeper than its first, and its closing bracket."""
    margin = _indentation(lines[first])
    for at in range(first + 1, len(lines)):
        line = lines[at]
        if line.strip() and _indentation(line) <= margin and not line.lstrip().startswith(")"):
            return range(first, at)
    return range(first, len(lines))


def _only(lines: Sequence[str], line: str, where: Sequence[int] | None = None) -> int:
    among = range(len(lines)) if where is None else where
    places = [at for at in among if lines[at].strip() == line]
    if len(places) != 1:
        raise ChangeError(f"{line!r} is there {len(places)} times, not once")
    return places[0]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


@final
class _ChangedLoader(SourceFileLoader):
    """Loads a module from its file with one line changed."""

    def __init__(self, module: str, path: str, change: Mapping[str, str | None]) -> None:
        super().__init__(module, path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType:
        """See ``importlib.abc.InspectLoader``; existing compiled code is ignored."""
        source = self.get_source(fullname)
        assert source is not None  # it is a file of Python
        change = self._change
        old, new = change["old"], change["new"]
        assert old is not None
        assert new is not None
        return self.source_to_code(changed(source, old, new, change["within"]), self.path)


@final
class _ChangedFinder(MetaPathFinder):
    """Finds one module where the others would, and loads it with one line changed."""

    def __init__(self, change: Mapping[str, str | None]) -> None:
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if fullname != self._change["module"]:
            return None
        for finder in sys.meta_path:
            if finder is self or (find := getattr(finder, "find_spec", None)) is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None and spec.origin is not None:
                spec.loader = _ChangedLoader(fullname, spec.origin, self._change)
                return spec
        return None


def forget(package: str) -> None:
    """Remove a package from ``sys.modules``, so that it is imported again."""
    for name in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        del sys.modules[name]


def _warm_up() -> None:
    """Import everything once, and keep the modules that are not kgroup's."""
    # kio imports hypothesis where it is installed, which switches trio's scheduling.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    for name in (RUN, PLAN_GENERATION):
        importlib.import_module(name)
    forget(PACKAGE)
    gc.collect()
    gc.freeze()


def hunt(request: Mapping[str, Any]) -> dict[str, object]:
    """Simulate seed after seed until the invariant is broken. Once in a process."""
    change = request["change"]
    if change is not None:
        sys.meta_path.insert(0, _ChangedFinder(change))
    simulate = importlib.import_module(RUN).simulate
    generate_plan = importlib.import_module(PLAN_GENERATION).generate_plan
    scenario = importlib.import_module(PLAN).Scenario(**request["scenario"])
    handler = request["partition_handler"]
    if change is not None and change["module"] not in sys.modules:
        raise ChangeError(f"{change['module']} plays no part in a simulation")
    failed: list[str] = []
    found: tuple[int, Violation] | None = None
    tried = 0
    for seed in request["seeds"]:
        tried += 1
        try:
            plan = generate_plan(scenario, seed)
            if handler is not None:
                plan = attrs.evolve(plan, partition_handler=handler)
            outcome = simulate(plan)
        except Exception as error:  # noqa: BLE001 # changed code may do anything
            failed.append(f"seed {seed}: {error!r}")
            continue
        broken = [one for one in outcome.violations if request["breaks"] in (None, one.number)]
        if broken:
            found = seed, broken[0]
            break
    return {
        "seed": None if found is None else found[0],
        "violation": "" if found is None else str(found[1]),
        "tried": tried,
        "cpu": time.process_time(),
        "failed": failed,
    }


def _hunt_in_a_fork(line: str) -> str:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _be_the_child(line, write)
    os.close(write)
    with os.fdopen(read) as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        why = signal.Signals(-code).name if code < 0 else f"an exception, exit {code}"
        return json.dumps({"error": f"the hunt ended by {why}"})
    return answer


def _be_the_child(line: str, write: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    answer: dict[str, object]
    try:
        try:
            answer = hunt(json.loads(line))
        except ChangeError as error:
            answer = {"error": str(error)}
        with os.fdopen(write, "w") as answers:
            json.dump(answer, answers)
    except BaseException:  # noqa: BLE001 # a fork must not continue with its parent's work
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Hunt until the input ends."""
    sys.path.append(CHECKOUT)  # for programs of the tests; an installed kgroup comes before it
    _warm_up()
    for line in sys.stdin:
        sys.stdout.write(_hunt_in_a_fork(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
