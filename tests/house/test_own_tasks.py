"""Tasks of kgroup's own are protected from KeyboardInterrupt, which belongs to the program's."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.house.sources import package_files

PARTS: Final = ("broker", "client", "generation", "group", "records", "watchers", "wire")
"""What runs in the program's own event loop."""
OF_THE_PROGRAM: Final = frozenset({"_work", "_attend"})
"""Tasks that run the program's functions, which Ctrl-C is to interrupt."""
PROTECTED: Final = "trio.lowlevel.enable_ki_protection"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[ast.Module]:
    """The modules of these parts, parsed."""
    return [
        ast.parse(path.read_text(encoding="utf-8"))
        for name, path in package_files().items()
        if name.removeprefix("kgroup.").partition(".")[0] in PARTS
    ]


def started(tree: ast.Module) -> set[str]:
    """The names of the functions that a module starts as tasks of a nursery."""
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "start_soon"
            and "nursery" in ast.unparse(node.func.value)
        ):
            given = node.args[0]
            if isinstance(given, ast.Call):  # partial(...)
                given = given.args[0]
            found.add(ast.unparse(given).rpartition(".")[2])
    return found


def protected(trees: list[ast.Module]) -> set[str]:
    """The names of the functions that have trio's protection."""
    return {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, Function) and PROTECTED in map(ast.unparse, node.decorator_list)
    }


def test_tasks_of_kgroups_own_are_protected() -> None:
    """Each function that kgroup starts as a task has the protection, but for the program's work."""
    trees = modules()
    names = {name for tree in trees for name in started(tree)}
    assert names >= {*OF_THE_PROGRAM, "_serve", "_manage", "run"}
    assert names - protected(trees) == OF_THE_PROGRAM


@pytest.mark.parametrize("name", sorted(OF_THE_PROGRAM))
def test_the_programs_functions_are_not_protected(name: str) -> None:
    """Ctrl-C ends a function of the program that computes and never waits."""
    assert name not in protected(modules())
