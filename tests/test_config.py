"""GroupConfig: refused values, conversions, and the rules between fields."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.bounds import LONGEST_DURATION
from kgroup.config import DEFAULT_ASSIGNORS, FIELDS, GroupConfig
from kgroup.errors import ConfigError, KgroupError, UsageError, short_repr
from kgroup.security.settings import (
    MechanismName,
    ProtocolName,
    SaslMechanism,
    Security,
    SecurityProtocol,
    TlsVersion,
    TlsVersionName,
)
from kgroup.types import (
    INT32_MAX,
    AutoOffsetReset,
    IsolationLevel,
    IsolationLevelName,
    OffsetResetName,
)

REQUIRED: Final[Mapping[str, Any]] = {
    "group_id": "orders",
    "bootstrap_servers": "localhost:9092",
    "topics": ["orders"],
}
SECONDS: Final = (-1.0, 0, 0.0005, LONGEST_DURATION + 1, 10**400, float("nan"), float("inf"))
NO_NUMBERS: Final = ("1", None, True, [1.0])
LONG: Final = "x" * 32768
NO_UTF8: Final = "\ud800"


class Halves:
    """A custom assignor."""

    name = "halves"

    def assign(self, _topics: object, _members: object) -> dict[str, list[Any]]:
        """Assign nothing."""
        return {}


class Nameless(Halves):
    """An assignor without a name."""

    name = ""


class NoAssign:
    """Has a name and no ``assign``."""

    name = "none"


def _durations(*fields: str) -> dict[str, tuple[object, ...]]:
    return dict.fromkeys(fields, (*SECONDS, *NO_NUMBERS))


#: For every field, values that it refuses.
REFUSED: Final[Mapping[str, tuple[object, ...]]] = {
    "group_id": ("", " \t", "a\0b", None, 5, b"orders", LONG, NO_UTF8),
    "bootstrap_servers": (
        "",
        [],
        None,
        5,
        b"localhost:9092",
        {"localhost:9092": 1},
        "localhost",
        "localhost:",
        ":9092",
        "localhost:0",
        "localhost:65536",
        "localhost:123456",
        "local host:9092",
        "::1:9092",
        "PLAINTEXT://localhost:9092",
        [9092],
        ["localhost:9092", ""],
    ),
    "topics": (
        [],
        None,
        5,
        "orders",
        b"orders",
        re.compile("orders"),
        {"orders": 1},
        [""],
        ["."],
        [".."],
        ["a b"],
        ["ä"],
        ["x" * 250],
        [5],
        [re.compile(b"orders")],
        ["orders", "orders"],
        [re.compile("a"), re.compile("a")],
    ),
    "assignors": (
        [],
        None,
        "range",
        ["sticky of ours"],
        [5],
        [Nameless()],
        [NoAssign()],
        ["range", "range"],
        [Halves(), Halves()],
    ),
    **_durations(
        "heartbeat_interval",
        "session_timeout",
        "rebalance_timeout",
        "partition_watch_interval",
        "rejoin_backoff",
        "rejoin_backoff_max",
        "close_timeout",
        "request_timeout",
        "commit_timeout",
    ),
    "drain_timeout": (-1.0, LONGEST_DURATION + 1, 10**400, float("nan"), *NO_NUMBERS),
    "watch_partition_changes": (1, None, "yes"),
    "starts": (0, "earliest", {}, [len]),
    "commit_initial_position": (1, None, "yes"),
    "auto_offset_reset": ("beginning", "EARLIEST", None, 5, [], IsolationLevel.READ_COMMITTED),
    "isolation_level": ("committed", None, 1, {}, AutoOffsetReset.LATEST),
    "group_instance_id": ("", "a b", "ä", ".", "..", "x" * 250, 5, b"one"),
    "security": (None, {"protocol": "SSL"}, "SSL"),
    "client_id": ("", " ", "\0", None, 5, LONG, NO_UTF8),
    "rack_id": ("", " ", "\0", 5, b"a", LONG, NO_UTF8),
    "max_buffered_bytes": (1023, 2**41 + 1, 1e6, True, None, "1"),
    "max_buffered_records": (0, -1, 10_000_001, 1.0, True, None),
    "max_processing_time": (*SECONDS, "1", True, [1.0]),
    "offset_retention": (*SECONDS, "1", True, [1.0]),
    "startup_timeout": (*SECONDS, "1", True, [1.0]),
    "events_to": ("", " ", "a\0b", 7, b"events", True),
}


def config(**settings: Any) -> GroupConfig:
    """A configuration with these settings and otherwise the usual ones."""
    return GroupConfig(**{**REQUIRED, **settings})


def test_the_tables_know_every_field() -> None:
    """Every setting has refused values in the table above, and a documented reason."""
    names = [field.name for field in FIELDS]
    assert sorted(REFUSED) == sorted(names)
    assert all(field.metadata["reason"].endswith((".", ".)")) for field in FIELDS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{value!r:.30}")
        for field, values in REFUSED.items()
        for value in values
    ],
)
def test_a_wrong_value_is_refused(field: str, value: object) -> None:
    """The error names the field, the value (or the wrong part of it), and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        config(**{field: value})
    error = caught.value
    assert error.field == field
    parts = value if isinstance(value, list | tuple) else [value]
    as_given = [repr(value), repr(()), repr(tuple(parts)), *(repr(part) for part in parts)]
    assert repr(error.value) in as_given
    assert len(error.allowed) > 10
    assert str(error) == f"{field}={short_repr(error.value)} is refused: {error.allowed}"


def test_a_config_error_is_a_usage_a_type_and_a_value_error() -> None:
    """A handler of ConfigError, UsageError, KgroupError, TypeError or ValueError catches it."""
    assert issubclass(ConfigError, UsageError | KgroupError)
    assert issubclass(ConfigError, TypeError)
    with pytest.raises(
        ValueError, match=r"group_id='' is refused: it must be a str that is not blank"
    ):
        config(group_id="")


@pytest.mark.parametrize("field", list(REQUIRED))
def test_three_fields_have_no_default(field: str) -> None:
    """The group, the brokers and the topics have no defaults."""
    with pytest.raises(TypeError, match=field):
        GroupConfig(**{name: value for name, value in REQUIRED.items() if name != field})


def test_an_unknown_setting_is_refused() -> None:
    """A setting that does not exist is a ConfigError that names it and the nearest one."""
    with pytest.raises(ConfigError, match="sesion_timeout=.*did you mean 'session_timeout'"):
        config(sesion_timeout=10.0)
    with pytest.raises(ConfigError, match="did you mean 'topics'"):
        GroupConfig.from_properties({"group.id": "g"}, topic="orders")


DURATIONS: Final = [
    field.name for field in FIELDS if "number of seconds" in getattr(field.validator, "allowed", "")
]
MEANT: Final = "durations are in seconds, not milliseconds: did you mean"


@pytest.mark.parametrize("field", DURATIONS)
def test_a_duration_in_milliseconds_is_recognised(field: str) -> None:
    """One that is too long, and would not be in milliseconds, is refused with this remark."""
    with pytest.raises(ConfigError, match=f"{field}=30000000 is refused: .*{MEANT} 30000.0?"):
        config(**{field: 30_000_000})
    with pytest.raises(ConfigError) as caught:
        config(**{field: 10**400})
    assert MEANT not in str(caught.value)


def test_a_duration_of_too_many_days_is_not_taken_for_milliseconds() -> None:
    """The error for 30 days gives the longest duration in days."""
    with pytest.raises(ConfigError, match=r"this is 30 days, and the longest is 24\.9 days"):
        config(offset_retention=30 * 86_400)


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"heartbeat_interval": 3000}, "3.0"),
        ({"heartbeat_interval": 3000, "session_timeout": 45000}, "3.0"),
        ({"rejoin_backoff": 100}, "0.1"),
    ],
)
def test_a_duration_in_milliseconds_beside_others(settings: dict[str, Any], meant: str) -> None:
    """The rules between settings find those that are within their own bounds."""
    with pytest.raises(ConfigError, match=f"{MEANT} {meant}"):
        config(**settings)


@pytest.mark.parametrize("field", DURATIONS)
@pytest.mark.parametrize("value", [5_000, 6_000, 30_000, 45_000, 300_000, 900_000, 1_800_000])
def test_a_duration_that_makes_sense_only_in_milliseconds(field: str, value: int) -> None:
    """An int as Kafka's settings have it is refused, within the bounds too."""
    with pytest.raises(ConfigError, match=f"{field}={value} is refused: .*{MEANT} {value / 1000}"):
        config(**{field: value})


HOURS_AND_DAYS: Final = [
    60,
    900,
    1_000,
    3_600,
    4_500,
    7_200,
    30_000.0,
    86_400,
    172_800,
    604_800,
    1_728_000,
]


@pytest.mark.parametrize("field", ["session_timeout", "rebalance_timeout", "max_processing_time"])
@pytest.mark.parametrize("value", HOURS_AND_DAYS)
def test_a_duration_of_hours_or_days_is_accepted(field: str, value: float) -> None:
    """Whole hours and days are durations, and any float is; so is what properties say."""
    assert getattr(config(**{field: value}), field) == value
    assert config(offset_retention=float(value)).offset_retention == value
    read = GroupConfig.from_properties(
        {
            "bootstrap.servers": "h:1",
            "group.id": "g",
            "max.poll.interval.ms": "10000000",
            "session.timeout.ms": "30000000",
        },
        topics=["t"],
    )
    assert (read.max_processing_time, read.session_timeout) == (10_000.0, 30_000.0)


@pytest.mark.parametrize("field", ["rejoin_backoff_max", "request_timeout", "close_timeout"])
def test_a_second_given_in_milliseconds(field: str) -> None:
    """Nobody waits for 1000 seconds between two requests, or for a response."""
    with pytest.raises(ConfigError, match=f"{field}=1000 is refused: .*{MEANT} 1.0"):
        config(**{field: 1000})


def test_a_duration_that_is_a_little_too_long() -> None:
    """Nobody means 15 ms by 15."""
    with pytest.raises(ConfigError) as caught:
        config(heartbeat_interval=15, session_timeout=30)
    assert MEANT not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (OffsetResetName, AutoOffsetReset),
        (IsolationLevelName, IsolationLevel),
        (ProtocolName, SecurityProtocol),
        (MechanismName, SaslMechanism),
        (TlsVersionName, TlsVersion),
    ],
)
def test_the_names_that_editors_offer(names: object, kind: type[enum.Enum]) -> None:
    """They are the values of the setting, in their order."""
    assert get_args(names) == tuple(one.value for one in kind)


def test_editors_see_the_names() -> None:
    """The parameters of the classes have them, for type checkers and at run time."""
    hints = get_type_hints(GroupConfig.__init__)
    assert {"earliest", "read_committed", "sticky"} <= literals(hints)
    assert {"SASL_SSL", "PLAIN", "TLSv1.3"} <= literals(get_type_hints(Security.__init__))


def literals(hints: dict[str, Any]) -> set[object]:
    """The values of all Literals in annotations."""
    found: set[object] = set()
    pending = list(hints.values())
    while pending:
        hint = pending.pop()
        if get_origin(hint) is Literal:
            found.update(get_args(hint))
        else:
            pending.extend(get_args(hint))
    return found


def test_the_defaults() -> None:
    """The settings of a program that gives only the group, the brokers and the topics."""
    defaults = {
        name: value
        for name, value in attrs.asdict(config(), recurse=False).items()
        if name not in REQUIRED
    }
    assert defaults == {
        "assignors": DEFAULT_ASSIGNORS,
        "heartbeat_interval": 1.0,
        "session_timeout": 30.0,
        "rebalance_timeout": 30.0,
        "watch_partition_changes": True,
        "partition_watch_interval": 1.0,
        "rejoin_backoff": 0.1,
        "rejoin_backoff_max": 5.0,
        "drain_timeout": 25.0,
        "close_timeout": 5.0,
        "auto_offset_reset": AutoOffsetReset.EARLIEST,
        "starts": None,
        "commit_initial_position": True,
        "isolation_level": IsolationLevel.READ_UNCOMMITTED,
        "group_instance_id": None,
        "security": Security(),
        "client_id": "kgroup",
        "rack_id": None,
        "request_timeout": 10.0,
        "commit_timeout": 30.0,
        "max_buffered_bytes": 64 * 1024 * 1024,
        "max_buffered_records": 100_000,
        "max_processing_time": None,
        "offset_retention": None,
        "startup_timeout": None,
        "events_to": None,
    }


@pytest.mark.parametrize(
    ("given_", "servers"),
    [
        ("a:1", ("a:1",)),
        (" a:1 , b:65535 ,", ("a:1", "b:65535")),
        (["a:1", "[::1]:9092"], ("a:1", "[::1]:9092")),
        (iter(["10.0.0.1:9092"]), ("10.0.0.1:9092",)),
    ],
)
def test_brokers_are_given_as_text_or_as_a_list(given_: object, servers: tuple[str, ...]) -> None:
    """A text is split at its commas; any other iterable gives one broker with each item."""
    assert config(bootstrap_servers=given_).bootstrap_servers == servers


def test_lists_become_tuples_in_their_order() -> None:
    """Topics and assignors keep their order, in tuples that the program cannot change later."""
    pattern = re.compile("orders-.*")
    mine = Halves()
    made = config(topics=["b", pattern, "a"], assignors=[mine, "roundrobin"])
    assert made.topics == ("b", pattern, "a")
    assert made.assignors == (mine, "roundrobin")


@pytest.mark.parametrize("kind", list(AutoOffsetReset))
def test_a_reset_may_be_given_by_its_value(kind: AutoOffsetReset) -> None:
    """A member of the enumeration and its value mean the same."""
    assert config(auto_offset_reset=kind.value).auto_offset_reset is kind
    assert config(auto_offset_reset=kind).auto_offset_reset is kind


@pytest.mark.parametrize("kind", list(IsolationLevel))
def test_an_isolation_level_may_be_given_by_its_value(kind: IsolationLevel) -> None:
    """A member of the enumeration and its value mean the same."""
    assert config(isolation_level=kind.value).isolation_level is kind
    assert config(isolation_level=kind).isolation_level is kind


def test_the_heartbeat_interval_is_at_most_a_third_of_the_session() -> None:
    """Exactly a third is allowed, more is refused."""
    assert config(heartbeat_interval=10, session_timeout=30).heartbeat_interval == 10
    with pytest.raises(ConfigError, match=r"heartbeat_interval=10.1 .* session_timeout \(30 s\)"):
        config(heartbeat_interval=10.1, session_timeout=30)


def test_the_longest_back_off_is_not_below_the_first() -> None:
    """A longest back-off below the first is refused; the two may be equal."""
    assert config(rejoin_backoff=2, rejoin_backoff_max=2).rejoin_backoff_max == 2
    with pytest.raises(ConfigError, match=r"rejoin_backoff_max=1 .* rejoin_backoff \(2 s\)"):
        config(rejoin_backoff=2, rejoin_backoff_max=1)


def test_a_static_member_cannot_commit_with_a_retention() -> None:
    """The two settings exclude each other: OffsetCommit v4 carries no static identity."""
    assert config(offset_retention=60).offset_retention == 60
    with pytest.raises(ConfigError, match="offset_retention=60 .*group_instance_id"):
        config(offset_retention=60, group_instance_id="one")


def test_a_config_is_a_value() -> None:
    """It is frozen, equal to one with the same settings, and ``attrs.evolve`` changes a setting."""
    made = config()
    assert made == config()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.group_id = "other"  # type: ignore[misc]
    assert attrs.evolve(made, group_id="other").group_id == "other"


def test_a_member_learns_of_a_rebalance_in_time() -> None:
    """An interval over two thirds of the rebalance time-out is refused."""
    assert config(heartbeat_interval=4.0, rebalance_timeout=6.0).heartbeat_interval == 4.0
    with pytest.raises(ConfigError, match=r"two thirds of rebalance_timeout \(5 s\)"):
        config(heartbeat_interval=4.0, rebalance_timeout=5.0)


@given(seconds=st.floats() | st.integers())
def test_every_duration_fits_the_wire(seconds: float) -> None:
    """A duration of 1 to INT32_MAX milliseconds is accepted; any other is a ConfigError."""
    try:
        made = config(rebalance_timeout=seconds, heartbeat_interval=0.001)
    except ConfigError:
        in_milliseconds = isinstance(seconds, int) and seconds >= 5000 and seconds % 1000 == 0
        allowed = 0.0015 <= seconds <= LONGEST_DURATION  # by the heartbeat interval
        assert in_milliseconds or not allowed
    else:
        assert 1 <= round(made.rebalance_timeout * 1000) <= INT32_MAX


@given(
    field=st.sampled_from(sorted(REFUSED)),
    value=st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.lists(st.none() | st.integers() | st.text(), max_size=3),
)
def test_a_setting_is_accepted_or_refused_by_name(field: str, value: object) -> None:
    """Any value is accepted, or is refused by a ConfigError that names the field."""
    refused: ConfigError | None = None
    try:
        config(**{field: value})
    except ConfigError as error:
        refused = error
    assert refused is None or refused.field in {field, "heartbeat_interval", "rejoin_backoff_max"}


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 1.0 + 25.0 + 5.0 + 2.0),
        ({"drain_timeout": 0.0, "close_timeout": 1.0}, 1.0 + 1.0 + 2.0),
        ({"rebalance_timeout": 10.0}, 1.0 + 9.0 + 5.0 + 2.0),
        ({"rebalance_timeout": 0.75, "heartbeat_interval": 0.5}, 0.5 + 5.0 + 2.0),
    ],
)
def test_the_longest_close_is_made_of_the_wait_the_drain_and_the_leave(
    settings: Mapping[str, Any], seconds: float
) -> None:
    """One heartbeat interval, the longest drain allowed, ``close_timeout``, then 2 s."""
    assert GroupConfig(**REQUIRED, **settings).longest_close == seconds


def test_help_says_what_each_field_is_for() -> None:
    """The docstring has the reason of every field, and still says what the class raises."""
    words = " ".join((GroupConfig.__doc__ or "").split())
    for field in FIELDS:
        assert f"{field.name}: {' '.join(field.metadata['reason'].split())}" in words
    assert words.index("Attributes:") < words.index("Raises: ConfigError")
