"""The arguments of helpers for tests: a wrong one is refused before anything starts."""

from __future__ import annotations

import inspect
import math
from typing import Any, Final, cast

import attrs
import pytest

from kgroup.errors import ArgumentError, ConfigError
from kgroup.testing import admin
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.kafka import RealKafka
from kgroup.testing.simulation import Scenario, generate_plan
from kgroup.testing.simulation import check as simulate
from kgroup.testing.spark.cluster import SparkCluster
from kgroup.types import TopicPartition
from tests.hostile.values import NUMBERS, TEXTS

WRONG: Final = (math.nan, math.inf, -1.0, 1e308, True, "1", None)
#: Further arguments of each function of ``admin`` besides the one under test.
ARGUMENTS: Final[dict[str, Any]] = {
    "bootstrap_servers": "localhost:1",
    "topic": "t",
    "group_id": "g",
    "values": [],
    "partitions": 1,
    "total": 1,
}
FUNCTIONS: Final = [
    function
    for _, function in inspect.getmembers(admin, inspect.isfunction)
    if function.__module__ == admin.__name__ and not function.__name__.startswith("_")
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_wait_has_an_end(function: Any) -> None:
    """Every helper refuses a time-out that is not a time."""
    parameters = inspect.signature(function).parameters
    given = {name: ARGUMENTS[name] for name in parameters if name in ARGUMENTS}
    if function in (admin.committed_offsets, admin.end_offsets):
        given["partitions"] = [TopicPartition("t", 0)]
    for value in WRONG:
        with pytest.raises(
            ConfigError, match="timeout=.* is refused: it must be a number of seconds"
        ):
            function(**given, timeout=value)


@pytest.mark.parametrize("function", [admin.create_topic, admin.add_partitions])
def test_a_number_of_partitions_has_bounds(function: Any) -> None:
    """A number of partitions that librdkafka cannot handle is refused by kgroup."""
    for value in (0, -1, 10_001, 2**31, 10**30, 1.5, True, "1"):
        with pytest.raises(ConfigError, match="whole number from 1 to 10000"):
            function("localhost:1", "t", value)


GIVEN: Final[dict[str, Any]] = {**ARGUMENTS, "partitions": [TopicPartition("t", 0)]}
WRONG_TEXTS: Final[list[Any]] = ["", " ", "a\0", None, 5, ["a"]]


@pytest.mark.parametrize("name", ["bootstrap_servers", "topic", "group_id"])
def test_a_text_of_a_helper_is_checked(name: str) -> None:
    """An empty group id would abort the process, and without an address a call waits in vain."""
    for function in FUNCTIONS:
        parameters = inspect.signature(function).parameters
        given = {one: GIVEN[one] for one in parameters if one in GIVEN}
        if "config" in parameters:
            given["partitions"] = 1
        for value in WRONG_TEXTS if name in parameters else ():
            with pytest.raises(ConfigError, match=f"{name}=.* is refused"):
                function(**{**given, name: value}, timeout=0.1)


@pytest.mark.parametrize("value", [TopicPartition("t", 0), "t", [("t", 0)], [None], 5])
def test_partitions_of_a_helper_are_checked(value: Any) -> None:
    """One partition, or pairs, are refused by the name of the argument."""
    with pytest.raises(ArgumentError, match="partitions=.* is refused"):
        admin.committed_offsets("localhost:1", "g", value)
    with pytest.raises(ArgumentError, match="partitions=.* is refused"):
        admin.end_offsets("localhost:1", value)


def test_records_are_checked_before_the_first_is_sent() -> None:
    """A text in place of a list would be a record for each character."""
    wrong: Any
    for wrong in ("ab", b"ab", 5, ["a", 5], [["a"]]):
        with pytest.raises(ArgumentError, match="values=.* is refused"):
            admin.produce("localhost:1", "t", wrong)
    for wrong in ("ab", ["a"], ["a", "b", "c"], ["a", 5]):
        with pytest.raises(ArgumentError, match="keys=.* is refused"):
            admin.produce("localhost:1", "t", ["a", "b"], keys=wrong)
    for wrong in (-1, TopicPartition("t", 0), 2**31):
        with pytest.raises(ArgumentError, match="partition=.* is refused"):
            admin.produce("localhost:1", "t", ["a"], partition=wrong)


def test_a_helper_says_what_was_not_done_in_time() -> None:
    """The time-out names the topic and the address at which no broker answers."""
    for function in (admin.create_topic, admin.delete_topic):
        with pytest.raises(TimeoutError, match=r"topic 't' was not .* within 0.1 s .*localhost:1"):
            function("localhost:1", "t", timeout=0.1)


@pytest.mark.parametrize("argument", ["workers", "cores", "memory"])
def test_the_size_of_a_spark_cluster_has_bounds(argument: str) -> None:
    """A wrong size is refused by name before anything starts."""
    make: Any = SparkCluster
    for value in (*(number for number in NUMBERS if number not in (0, 1)), "", "1", "g", "1 g"):
        with pytest.raises(ConfigError, match=f"{argument}=.* is refused"):
            make(**{argument: value})


def test_a_broker_of_apache_kafka_takes_what_can_be_written() -> None:
    """Settings that cannot be written, a heap that is no size, and endless waits are refused."""
    for settings in (5, {"a b": 1}, {"": 1}, {5: 1}, {"a\n": 1}, {"a": "\ud800"}, {"a": 10**5000}):
        with pytest.raises(ConfigError):
            RealKafka(settings)  # type: ignore[arg-type] # that is what is tested
    for heap in (*TEXTS, 5, None):
        with pytest.raises(ConfigError, match="heap=.* is refused: it must be a size"):
            RealKafka(heap=heap)  # type: ignore[arg-type] # that is what is tested
    for timeout in WRONG:
        for wait in (RealKafka().start, RealKafka().stop):
            with pytest.raises(ConfigError, match="timeout=.* is refused"):
                wait(timeout)  # type: ignore[arg-type] # that is what is tested


def test_the_size_of_an_embedded_cluster_has_bounds() -> None:
    """A wrong size raises in the caller, and the thread has ended."""
    for brokers in (0, -1, 101, 2**31, 1.5, math.nan, None, "1"):
        with pytest.raises(ConfigError, match="brokers=.* is refused"):
            EmbeddedKafka(brokers=brokers).__enter__()  # type: ignore[arg-type] # that is tested
    with pytest.raises(ConfigError, match="settings=5 is refused"):
        EmbeddedKafka(5).__enter__()  # type: ignore[arg-type] # that is tested


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seeds": range(10**30)}, "seeds"),
        ({"seeds": range(1_000_001)}, "seeds"),
        ({"processes": 0}, "processes"),
        ({"processes": 257}, "processes"),
        ({"processes": math.nan}, "processes"),
        ({"most_runs": -1}, "most_runs"),
        ({"most_runs": math.inf}, "most_runs"),
    ],
)
def test_a_campaign_of_simulations_has_bounds(arguments: dict[str, Any], named: str) -> None:
    """A wrong argument is refused by name before anything is simulated."""
    with pytest.raises(ConfigError, match=f"{named}=.* is refused"):
        simulate(Scenario(), **{"seeds": range(1), **arguments})


@pytest.mark.parametrize(
    "name", ["brokers", "duration", "records_at_once", "records_every", "work"]
)
def test_a_plan_has_bounds(name: str) -> None:
    """A plan with a time that never comes is refused."""
    plan, evolve = generate_plan(Scenario(), 1), cast("Any", attrs.evolve)
    pairs = [(value, 1.0) for value in WRONG]
    for value in (*WRONG, *pairs, (2.0, 1.0), 10**400, 1e300):
        with pytest.raises(ConfigError, match=f"{name}=.* is refused"):
            evolve(plan, **{name: value})
