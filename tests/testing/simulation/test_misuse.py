"""Mistakes in what a simulation is given are errors before the first seed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import attrs
import pytest

from kgroup import ConsumerGroup, GroupConfig
from kgroup.errors import ArgumentError, ConfigError, UsageError
from kgroup.testing.simulation import (
    Process,
    Progress,
    Scenario,
    check,
    default_worker,
    generate_plan,
    simulate,
)
from tests.testing.simulation.samples import SMALL

CALM = attrs.evolve(SMALL, duration=30.0, members=1, faults_per_hour=0.0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"config": {"sesion_timeout": 6.0}}, "config['sesion_timeout']"),
        ({"config": {"session_timeout": "6"}}, "config['session_timeout']"),
        ({"config": {"assignors": ["nope"]}}, "config['assignors']"),
        ({"config": {1: 2}}, "config={1: 2}"),
        (
            {"config": {"session_timeout": 6.0, "heartbeat_interval": 5.0}},
            "config['heartbeat_interval']",
        ),
        ({"broker_settings": {"no.such.property": 1}}, "broker_settings['no.such.property']"),
        (
            {"broker_settings": {"group.min.session.timeout.ms": "soon"}},
            "broker_settings['group.min.session.timeout.ms']",
        ),
    ],
)
def test_settings_are_checked_when_the_scenario_is_made(
    settings: dict[str, Any], named: str
) -> None:
    """The error names the mapping and the setting in it."""
    with pytest.raises(ConfigError) as raised:
        Scenario(**settings)
    assert str(raised.value).startswith(named)


@pytest.mark.parametrize(
    "config",
    [
        {"session_timeout": 3.0},
        {"rebalance_timeout": 2.0},
        {"heartbeat_interval": 12.0},
        {"heartbeat_interval": 12.0, "rebalance_timeout": 18.0},
        {"heartbeat_interval": 1.0, "session_timeout": 3.0, "rebalance_timeout": 1.5},
    ],
)
def test_the_seeds_settings_make_room_for_given_ones(config: Mapping[str, Any]) -> None:
    """Whatever the seed chooses, the settings of its plan can be those of a group."""
    for seed in range(20):
        plan = generate_plan(Scenario(config=config), seed)
        group = GroupConfig(
            bootstrap_servers="broker:9092", group_id="g", topics=["t"], **plan.config
        )
        assert {name: getattr(group, name) for name in config} == dict(config)


async def _generator(process: Process) -> AsyncIterator[int]:
    yield process.life


def _plain(process: Process) -> None:
    del process


def _checks() -> list[Callable[..., object]]:
    return [
        partial(check, CALM, [1], processes=1),
        partial(simulate, generate_plan(CALM, 1)),
    ]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"worker": 7}, "worker=7 is refused"),
        ({"worker": _generator}, "it contains `yield`"),
        ({"worker": _plain}, "it is not an async function; it must be an async function that"),
        ({"worker": lambda: None}, "it is called with a Process: too many positional"),
        ({"worker": default_worker, "value": lambda number: b""}, "a partition and a number"),
        ({"worker": default_worker, "setup": lambda store: store}, "it is called with nothing"),
        ({"worker": default_worker, "value": b"7"}, "value=b'7' is refused"),
    ],
)
def test_functions_that_cannot_be_called_are_refused(given: dict[str, Any], named: str) -> None:
    """The error names the argument, and what it is called with, before anything runs."""
    for call in _checks():
        with pytest.raises(ArgumentError) as raised:
            call(**given)
        assert named in str(raised.value)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_command_takes_is_refused(seed: int) -> None:
    """A failure of it could not be run again by the command that its report names."""
    with pytest.raises(ConfigError, match=f"seeds={seed} is refused: it must be a whole number"):
        check(CALM, [seed], processes=1)


def test_a_worker_that_is_not_async_ends_the_campaign() -> None:
    """It is one error that says so, and not a program that fails again and again."""
    calls: list[object] = []
    for call in _checks():
        with pytest.raises(UsageError, match=r"returned None; it must be an async function"):
            call(worker=calls.append)
    assert len(calls) == 3  # twice by `check`, as any seed that fails


def _no_value(partition: object, number: int) -> bytes:
    raise ZeroDivisionError(str(partition))


def _no_store() -> object:
    raise ZeroDivisionError("no database")


@pytest.mark.parametrize(
    ("given", "text"),
    [({"value": _no_value}, "letters-0"), ({"setup": _no_store}, "no database")],
)
def test_value_and_setup_are_tried_out_first(given: dict[str, Any], text: str) -> None:
    """What they raise is raised as it is, with a note, before any seed is run."""
    scenario = attrs.evolve(CALM, topics={"letters": 1})
    seen: list[Progress] = []
    with pytest.raises(ZeroDivisionError, match=text) as raised:
        check(scenario, range(3), default_worker, on_progress=seen.append, **given)
    (name,) = given
    assert raised.value.__notes__ == [
        f"This happened when `{name}` was tried out, before any simulation."
    ]
    assert seen == []


def test_a_value_that_is_no_bytes_is_refused_first() -> None:
    """The error has the call and its result."""
    with pytest.raises(UsageError, match=r"value\(orders-0, 0\) returned 'text'") as raised:
        check(Scenario(), range(3), default_worker, value=lambda *_: "text")  # type: ignore[arg-type]
    assert "tried out" in raised.value.__notes__[0]


def test_a_worker_may_be_a_partial_or_an_object() -> None:
    """What can be called with a process and awaited is a program."""

    class Program:
        async def __call__(self, process: Process, name: str = "group") -> None:
            async with ConsumerGroup(process.config(group_id=name)) as group:
                async for generation in group:
                    async for batch in generation.records():
                        for message in batch:
                            process.processed(message)
                        await generation.commit({batch.partition: batch.next_offset})

    for worker in (Program(), partial(Program(), name="other"), Program().__call__):
        assert simulate(generate_plan(CALM, 5), worker).violations == ()
