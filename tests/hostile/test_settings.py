"""Every setting of every settings class with every hostile value: accepted, or a ConfigError.

Fields are found by introspection, so new ones are tested too, and must have bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, get_args, get_type_hints

import attrs
import pytest

from kgroup.bounds import LONGEST_DURATION, Bound
from kgroup.broker import BrokerSettings
from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES, CoordinatorSettings
from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.spark.batch_limits import BatchPace, Limits
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.testing.simulation import Scenario
from tests.hostile.values import VALUES

#: Each settings class, with its required arguments.
CLASSES: Final[dict[type[Any], dict[str, Any]]] = {
    GroupConfig: {"group_id": "g", "bootstrap_servers": "a:9092", "topics": ["t"]},
    ReaderSettings: {"bootstrap_servers": "a:9092"},
    Limits: {},
    BatchPace: {},
    BrokerSettings: {},
    CoordinatorSettings: {},
    Scenario: {},
}
#: Fields without bounds, each with the reason.
UNBOUNDED: Final = {
    (BrokerSettings, "properties"): "what was set, for DescribeConfigs; from_properties makes it",
}
FIELDS: Final = [
    pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")
    for kind in CLASSES
    for field in attrs.fields(kind)
    if (kind, field.name) not in UNBOUNDED
]
LONGEST_LINE: Final = 1500


def check_error(error: ConfigError, name: str) -> None:
    """Check that an error has one line that names the field and its bounds."""
    text = str(error)
    assert text.startswith(name), text
    assert " is refused: " in text
    assert len(error.allowed) > 10
    assert "\n" not in text
    assert len(text) < LONGEST_LINE
    text.encode("utf-8", "backslashreplace")


def refused(make: Callable[[dict[str, Any]], object], name: str, value: object) -> bool:
    """Whether a value is refused; anything but a ConfigError fails the test."""
    try:
        make({name: value})
    except ConfigError as error:
        # A rule between two fields names either of them.
        check_error(error, name if str(error).startswith(name) else error.field)
        return True
    return False


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_hostile_value_is_refused_by_a_config_error(kind: type[Any], name: str) -> None:
    """A hostile value causes only a ConfigError that names field, value and bounds."""

    def make(given: dict[str, Any]) -> object:
        return kind(**{**CLASSES[kind], **given})

    found = [refused(make, name, value) for value in VALUES.values()]
    assert any(found)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_every_field_says_its_bounds(kind: type[Any], name: str) -> None:
    """Every field has a text for its bounds."""
    field = attrs.fields_dict(kind)[name]
    allowed = field.metadata.get("allowed") or getattr(field.validator, "allowed", None)
    assert isinstance(allowed, str), f"{kind.__name__}.{name} has no bounds"
    if {int, float} & numbers_of(kind, name):
        assert isinstance(field.validator, Bound)


def numbers_of(kind: type[Any], name: str) -> set[Any]:
    """The types that a field may have."""
    hint = get_type_hints(kind)[name]
    return {hint, *get_args(hint)}


def numeric() -> Iterator[Any]:
    """Every numeric field."""
    for kind in CLASSES:
        for field in attrs.fields(kind):
            if {int, float} & numbers_of(kind, field.name):
                yield pytest.param(kind, field.name, id=f"{kind.__name__}.{field.name}")


@pytest.mark.parametrize(("kind", "name"), list(numeric()))
def test_no_number_is_without_bounds(kind: type[Any], name: str) -> None:
    """NaN, infinities, bools, fractions of counts, and more ms than an int32 are refused."""
    bound = attrs.fields_dict(kind)[name].validator
    assert isinstance(bound, Bound)
    for value in (float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 2**63, 10**5000, True):
        assert not bound.holds(value), value
    if float not in numbers_of(kind, name):
        assert not bound.holds(1.5)
        assert not bound.holds(1.0)
    elif "seconds" in bound.allowed and kind is not Scenario and name != "offsets_retention":
        assert not bound.holds(LONGEST_DURATION + 1)


@pytest.mark.parametrize("name", [*PROPERTIES, *GROUP_PROPERTIES])
def test_a_hostile_property_is_refused_by_a_config_error(name: str) -> None:
    """Hostile values of Kafka's properties are refused by name."""
    found = [refused(BrokerSettings.from_properties, name, value) for value in VALUES.values()]
    assert any(found)


@pytest.mark.parametrize("name", [value for value in VALUES.values() if isinstance(value, str)])
def test_a_hostile_name_of_a_property_is_refused(name: str) -> None:
    """An unknown property is named in one line."""
    with pytest.raises(ConfigError) as caught:
        BrokerSettings.from_properties({name: "1"})
    assert "no such property" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2 * LONGEST_LINE
