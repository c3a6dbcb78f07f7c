"""Objects that a program gives kgroup: a faulty one is reported when it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import pytest
import trio

from kgroup.assignors import resolve, user_data_of
from kgroup.broker import in_memory
from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError, ConfigError, UsageError
from kgroup.extension_checks import SOURCE_METHODS
from kgroup.group import ConsumerGroup, default_runtime
from kgroup.interfaces import RecordSource
from kgroup.runtime import Runtime
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.threaded.group import ConsumerGroup as ThreadedGroup
from tests.hostile.values import VALUES, Raises

PARTS: Final = ("name", "assign", "user_data", "on_assignment", "cooperative")


def assignor(**parts: Any) -> Any:
    """A correct assignor, except for these attributes; an exception among them is raised."""

    def part(value: Any) -> Any:
        def read(_: object) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return property(read)

    good = {"name": "ours", "assign": lambda *_: {}}
    members = {name: part(value) for name, value in {**good, **parts}.items()}
    return type("Ours", (), members)()


def config(*assignors: Any) -> GroupConfig:
    """A config with these assignors."""
    return GroupConfig(
        group_id="g", bootstrap_servers="a:1", topics=["t"], assignors=list(assignors)
    )


def refused(make: Callable[[Any], object], value: object) -> str | None:
    """The field that a ConfigError names, or None where there is no error."""
    try:
        make(value)
    except ConfigError as error:
        return error.field
    return None


class RaisingText(Exception):  # noqa: N818 # what a program raises is called as it likes
    """An exception whose text raises as well."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), RaisingText(), KeyError("k")])
def test_what_a_property_of_an_assignor_raises_is_in_the_refusal(
    part: str, error: Exception
) -> None:
    """The ConfigError names the setting, the attribute, and the error that it raised."""
    given = assignor(**{part: error})
    said = f"its '{part}' raised {type(error).__name__}"
    for make in (lambda: config(given), lambda: resolve([given])):
        with pytest.raises(ConfigError, match=said) as raised:
            make()
        assert raised.value.__cause__ is error
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("part", PARTS)
def test_any_other_part_of_an_assignor_is_refused_or_taken(part: str) -> None:
    """No value of an assignor's part causes anything but a ConfigError."""
    fields = [refused(lambda v: config(assignor(**{part: v})), value) for value in VALUES.values()]
    assert "assignors" in fields
    assert set(fields) <= {None, "assignors"}


def test_an_assignor_s_class_is_not_an_assignor() -> None:
    """A class is refused: its assign() would take the topics for self."""
    with pytest.raises(ConfigError, match="it is a class, not an instance of it"):
        config(type("Ours", (), {"name": "ours", "assign": lambda *_: {}}))


def test_user_data_is_bytes() -> None:
    """User data that are not bytes are refused; bytes(5) would be five zeros."""
    for data in (5, 10**12, "text", [1], Raises()):
        given = assignor(user_data=lambda *_, data=data: data)
        with pytest.raises(UsageError, match="it must return bytes or None"):
            user_data_of(given, None)


@pytest.mark.parametrize("part", [field.name for field in attrs.fields(Runtime)])
def test_a_part_of_the_runtime_is_refused_by_name(part: str) -> None:
    """A part that cannot be called or lacks a method is refused where it is given."""
    given = attrs.asdict(default_runtime(), recurse=False)
    fields = [refused(lambda v: Runtime(**{**given, part: v}), v) for v in VALUES.values()]
    assert fields.count(part) > len(VALUES) // 2
    assert set(fields) <= {None, part}


@pytest.mark.parametrize("group", [ConsumerGroup, ThreadedGroup])
@pytest.mark.parametrize("argument", ["config", "runtime", "on_event"])
def test_a_group_refuses_what_it_cannot_use(group: Any, argument: str) -> None:
    """A wrong argument is refused by name when the group is made."""
    for value in VALUES.values():
        if callable(value) or (value is None and argument != "config"):
            continue
        with pytest.raises(ArgumentError, match=f"{argument}=.* is refused"):
            group(**{"config": config("range"), argument: value})


def test_every_method_of_a_record_source_is_checked() -> None:
    """The methods that are checked are those of the protocol."""
    methods = {
        name
        for name, found in vars(RecordSource).items()
        if inspect.isfunction(found) and name not in ("__init__", "__subclasshook__")
    }
    assert methods == set(SOURCE_METHODS)


SOURCES: Final[Mapping[str, Any]] = {
    "nothing": lambda *_: None,
    "raises": lambda *_: Raises(),
    "less": lambda *_: type("Less", (), dict.fromkeys(SOURCE_METHODS[:-1], print))(),
}


@pytest.mark.parametrize("source", SOURCES)
async def test_a_record_source_that_is_none_is_refused(source: str, autojump_clock: object) -> None:
    """An object without a record source's methods ends the group before it joins."""
    async with in_memory() as broker:
        runtime = attrs.evolve(memory_runtime(broker), record_source=SOURCES[source])
        wrong = pytest.RaisesExc(UsageError, match="the record source .* cannot be used: it")
        with pytest.RaisesGroup(wrong):
            async with ConsumerGroup(config_for(broker), runtime=runtime):
                await trio.sleep_forever()
