"""``ReaderSettings``: what an executor needs to read ranges, as a value that is safe to ship.

It travels with every task, so it holds no live object and no secret: a secret goes by a reference
that the executor resolves when it makes a consumer. Imported by executors: nothing heavy here.

INVARIANT: no secret is an attribute of anything in this module.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import INT32_MAX, INT64_MAX, IsolationLevel, text_fault

if TYPE_CHECKING:
    from kgroup.config import GroupConfig  # it imports the event loop, which executors lack

Value = str | int | float | bool

READER_GROUP: Final = "kgroup-spark-reader"
"""librdkafka takes no Consumer without a group id; this one never joins and never commits."""
DECIDED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "an offset out of range is an error, never a skip",
    "bootstrap.servers": "it is the field bootstrap_servers",
    "client.id": "it is the field client_id",
    "enable.auto.commit": "the driver commits",
    "enable.auto.offset.store": "the driver commits",
    "enable.partition.eof": "it tells that a range is over",
    "group.id": "it is the field group_id",
    "group.instance.id": "executors join no group",
    "isolation.level": "it is the field isolation_level",
    "statistics.interval.ms": "it follows from no_progress_timeout",
}
"""librdkafka's settings that cannot be given in ``client``, and why."""
SECRET: Final = ("password", "secret", "ssl.key.pem", "sasl.oauthbearer.config", "token")
"""A setting whose name has one of these in it is taken in ``secrets`` only."""
REFERENCES: Final = "it must be 'env:NAME', 'file:/path' or 'call:module:function'"
CLIENT: Final = (
    "each must be a text without NUL, True, False, or a number from -(2**63-1) to 2**63-1, and not"
    " a secret"
)
MOST_PAIRS: Final = 1000
"""Settings in ``client``, and in ``secrets``."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
CALLBACK: Final = "oauth_cb"
"""confluent-kafka's setting that is a function; ``call:module:function`` gives it uncalled."""


def _isolation(value: str | IsolationLevel) -> IsolationLevel:
    return bounds.member_of(IsolationLevel, value)


def _client(value: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return _pairs("client", value)


def _secrets(value: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return _pairs("secrets", value)


def _pairs(
    field: str, value: Mapping[str, Any] | Iterable[tuple[str, Any]]
) -> tuple[tuple[str, Any], ...]:
    items = value.items() if isinstance(value, Mapping) else value
    try:
        return tuple(sorted(dict(bounds.listed(field, items, MOST_PAIRS)).items()))
    except Exception:  # noqa: BLE001 # a caller's object may raise anything when it is read
        # Neither values nor cause are shown: a secret may be among them.
        raise ConfigError(
            field, "...", f"it must be a mapping of at most {MOST_PAIRS} names to values"
        ) from None


def _names(pairs: Iterable[tuple[str, Any]]) -> str:
    return "<" + ", ".join(name for name, _ in pairs) + ">"


def _is_secret(name: str) -> bool:
    return name == CALLBACK or any(word in name for word in SECRET)


def _plain(_: Any, attribute: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, value in pairs:
        _check_name(attribute.name, name)
        if _is_secret(name):
            raise ConfigError(
                f"{attribute.name}[{name!r}]",
                "...",
                "it may be a secret, which never travels; give a reference to it in secrets,"
                " such as 'env:NAME' or 'file:/path'",
            )
        if name in DECIDED:
            raise ConfigError(f"{attribute.name}[{name!r}]", value, DECIDED[name])
        _VALUE.check(f"{attribute.name}[{name!r}]", value)


def _check_name(field: str, name: object) -> None:
    """Whether librdkafka could have a setting of that name; it says itself which it has."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            field, name, "a name of librdkafka's has 1 to 100 ASCII letters, digits, '.', '_', '-'"
        )


def _is_value(value: object) -> bool:
    if isinstance(value, str):
        return "\0" not in value and text_fault(value) is None
    return isinstance(value, int | float) and -INT64_MAX <= value <= INT64_MAX


_VALUE: Final = bounds.Bound(_is_value, CLIENT)


def _references(_: Any, __: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, reference in pairs:
        _check_name("secrets", name)
        kind, _sep, rest = str(reference).partition(":")
        if kind not in _LOOKUPS or not rest or (kind == "call" and ":" not in rest):
            # Not shown: who mistakes this field for the secret itself has put it there.
            raise ConfigError(
                f"secrets[{name!r}]",
                "...",
                REFERENCES,
            )
        if name in DECIDED:
            raise ConfigError(f"secrets[{name!r}]", "...", DECIDED[name])
        if name == CALLBACK and kind != "call":
            raise ConfigError(f"secrets[{name!r}]", "...", "it must be 'call:module:function'")


@final
@attrs.frozen(kw_only=True)
class ReaderSettings:
    """How executors read; durations are float seconds. Hashable, and can be pickled.

    Attributes:
        bootstrap_servers: brokers to ask first, ``host:port``, in a list or joined by commas.
        isolation_level: whether records of open and aborted transactions are read.
        client: further settings of librdkafka by its names, none of them a secret.
        secrets: settings of librdkafka whose values are looked up in the executor: ``env:NAME``
            (an environment variable), ``file:/path`` (a file's text without the line end) or
            ``call:module:function`` (what the function returns; for ``oauth_cb`` the function).
        group_id: is sent only where librdkafka looks up a coordinator that it then does not use;
            one that the client is allowed to describe keeps the broker's log quiet.
        client_id: how brokers' logs and quotas name the readers.
        no_progress_timeout: without a record or a change of position for so long a task fails.
        batch_records: the most rows of an Arrow batch.
        batch_bytes: about how many bytes of values an Arrow batch has at most; a larger record
            still comes whole.
        max_buffered_bytes: how much one worker fetches ahead while Spark works on what it has.

    Raises:
        ConfigError: a value is not allowed; it names the field, the value and what is.
    """

    bootstrap_servers: tuple[str, ...] = attrs.field(
        converter=bounds.servers,
        validator=bounds.check_servers,
        metadata={"allowed": bounds.SERVERS},
    )
    isolation_level: IsolationLevel = attrs.field(
        default=IsolationLevel.READ_UNCOMMITTED,
        converter=_isolation,
        validator=bounds.one_of(IsolationLevel),
    )
    client: tuple[tuple[str, Value], ...] = attrs.field(
        default=(), converter=_client, validator=_plain, metadata={"allowed": CLIENT}
    )
    secrets: tuple[tuple[str, str], ...] = attrs.field(
        default=(),
        converter=_secrets,
        validator=_references,
        repr=_names,
        metadata={"allowed": REFERENCES},
    )
    group_id: str = attrs.field(default=READER_GROUP, validator=bounds.text())
    client_id: str = attrs.field(default="kgroup-spark", validator=bounds.text())
    no_progress_timeout: float = attrs.field(default=60.0, validator=bounds.seconds())
    batch_records: int = attrs.field(default=10_000, validator=bounds.whole(1, 10_000_000))
    # 2**31-1 is also as much as an Arrow array of binary values holds.
    batch_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=bounds.whole(1, INT32_MAX))
    max_buffered_bytes: int = attrs.field(
        default=64 * 1024 * 1024, validator=bounds.whole(1024, bounds.MOST_BUFFERED)
    )

    @classmethod
    def from_config(
        cls,
        config: GroupConfig,
        *,
        client: Mapping[str, Value] | None = None,
        secrets: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> ReaderSettings:
        """Those of a group's member: its brokers, isolation level, group and client id.

        Args:
            config: the member's settings.
            client: further settings of librdkafka.
            secrets: references to those of its settings that are secrets.
            fields: any other field of this class.
        """
        rack = {} if config.rack_id is None else {"client.rack": config.rack_id}
        return cls(
            bootstrap_servers=config.bootstrap_servers,
            isolation_level=config.isolation_level,
            group_id=config.group_id,
            client_id=config.client_id,
            client={**rack, **(client or {})},
            secrets=secrets or {},
            **fields,
        )

    def resolve(self) -> dict[str, Any]:
        """The values of the secrets, looked up here and now.

        Raises:
            ConfigError: a reference leads nowhere; it names the reference, never a value.
        """
        return {name: _looked_up(name, reference) for name, reference in self.secrets}


def _looked_up(name: str, reference: str) -> Any:
    kind, _, rest = reference.partition(":")
    try:
        found = _LOOKUPS[kind](rest)
        return found if name == CALLBACK or kind != "call" else found()
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        # Without the cause: its text may hold what the lookup found.
        raise ConfigError(
            f"secrets[{name!r}]",
            reference,
            f"nothing is found there on this executor ({type(error).__name__})",
        ) from None


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


_LOOKUPS: Final[Mapping[str, Callable[[str], Any]]] = {
    "env": lambda name: os.environ[name],
    "file": lambda path: Path(path).read_text(encoding="utf-8").removesuffix("\n"),
    "call": _function,
}
"""Where a reference of each kind leads."""
