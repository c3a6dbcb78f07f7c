"""Every public name says what it is, and ``kgroup`` shows nothing but what it means to show."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping

import pytest

import kgroup
from tests.house.sources import package_sources

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def is_public(name: str) -> bool:
    """Whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def is_overload(node: Definition) -> bool:
    """Whether it is only a further signature of a function that follows."""
    return any(
        isinstance(decorator, ast.Name) and decorator.id == "overload"
        for decorator in node.decorator_list
    )


def undocumented_in(body: list[ast.stmt], owner: str) -> Iterator[str]:
    """The public classes, functions and methods in a body that have no docstring."""
    for node in body:
        if isinstance(node, Definition) and is_public(node.name) and not is_overload(node):
            name = f"{owner}.{node.name}"
            if not ast.get_docstring(node):
                yield name
            if isinstance(node, ast.ClassDef):
                yield from undocumented_in(node.body, name)


def undocumented(modules: Mapping[str, str]) -> Iterator[str]:
    """The public modules, and the public names in them, that have no docstring."""
    for module, source in modules.items():
        if is_public(module):
            tree = ast.parse(source)
            if not ast.get_docstring(tree):
                yield module
            yield from undocumented_in(tree.body, module)


def test_every_public_name_has_a_docstring() -> None:
    """Modules, classes, functions and methods without an underscore are documented."""
    assert list(undocumented(package_sources())) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("", ["kgroup.m"]),
        ("'''m'''\ndef f(): ...", ["kgroup.m.f"]),
        ("'''m'''\nasync def f(): ...", ["kgroup.m.f"]),
        ("'''m'''\nclass C:\n    def f(self): ...", ["kgroup.m.C", "kgroup.m.C.f"]),
        ("'''m'''\nclass C:\n    '''C'''\n    class D: ...", ["kgroup.m.C.D"]),
        ("'''m'''\ndef _f(): ...\nclass _C:\n    def f(self): ...", []),
        ("'''m'''\nclass C:\n    '''C'''\n    def __init__(self): ...", []),
        ("'''m'''\n@overload\ndef f(): ...", []),
    ],
)
def test_a_missing_docstring_is_found(source: str, names: list[str]) -> None:
    """What has no docstring is named; private and special names need none."""
    assert list(undocumented({"kgroup.m": source, "kgroup._private": ""})) == names


def test_kgroup_shows_only_its_public_names() -> None:
    """``kgroup.__all__`` is all that the package shows beside its own modules."""
    shown = {
        name
        for name in dir(kgroup)
        if is_public(name) and not isinstance(getattr(kgroup, name), types.ModuleType)
    }
    assert sorted(kgroup.__all__) == sorted(shown)


def test_what_kgroup_shows_is_documented() -> None:
    """Each class and function that the package shows has a docstring of its own."""
    values = {name: getattr(kgroup, name) for name in kgroup.__all__}
    documentable = type | types.FunctionType
    assert [
        name
        for name, value in values.items()
        if isinstance(value, documentable) and not value.__doc__
    ] == []
