"""``ReaderSettings``: what an executor needs to read ranges, as a value that is safe to ship.

It travels with every task, so it holds no live object and no secret: a secret goes by a reference
that the executor resolves when it makes a consumer. Imported by executors: nothing heavy here.

INVARIANT: no secret is an attribute of anything in this module.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from kgroup.errors import ConfigError
from kgroup.model import IsolationLevel

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
CALLBACK: Final = "oauth_cb"
"""confluent-kafka's setting that is a function; ``call:module:function`` gives it uncalled."""


def _servers(value: str | Iterable[str]) -> tuple[str, ...]:
    pieces = value.split(",") if isinstance(value, str) else value
    return tuple(piece.strip() for piece in pieces if piece.strip())


def _pairs(value: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(dict(value).items()))


def _names(pairs: Iterable[tuple[str, Any]]) -> str:
    return "<" + ", ".join(name for name, _ in pairs) + ">"


def _one_or_more(least: float) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool) or value < least:
            raise ConfigError(attribute.name, value, f"it must be a number, {least:g} or more")

    return check


def _is_secret(name: str) -> bool:
    return name == CALLBACK or any(word in name for word in SECRET)


def _some_servers(_: Any, attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    if not value:
        raise ConfigError(attribute.name, value, "it must name brokers as 'host:port'")


def _plain(_: Any, attribute: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, value in pairs:
        if _is_secret(name):
            raise ConfigError(
                f"{attribute.name}[{name!r}]",
                "...",
                "it may be a secret, which never travels; give a reference to it in secrets,"
                " such as 'env:NAME' or 'file:/path'",
            )
        if name in DECIDED:
            raise ConfigError(f"{attribute.name}[{name!r}]", value, DECIDED[name])
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{attribute.name}[{name!r}]", value, "it must be text or number")


def _references(_: Any, __: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, reference in pairs:
        kind, _sep, rest = str(reference).partition(":")
        if kind not in _LOOKUPS or not rest or (kind == "call" and ":" not in rest):
            # Not shown: who mistakes this field for the secret itself has put it there.
            raise ConfigError(
                f"secrets[{name!r}]",
                "...",
                "it must be 'env:NAME', 'file:/path' or 'call:module:function'",
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

    bootstrap_servers: tuple[str, ...] = attrs.field(converter=_servers, validator=_some_servers)
    isolation_level: IsolationLevel = attrs.field(
        default=IsolationLevel.READ_UNCOMMITTED, converter=IsolationLevel
    )
    client: tuple[tuple[str, Value], ...] = attrs.field(
        default=(), converter=_pairs, validator=_plain
    )
    secrets: tuple[tuple[str, str], ...] = attrs.field(
        default=(), converter=_pairs, validator=_references, repr=_names
    )
    group_id: str = READER_GROUP
    client_id: str = "kgroup-spark"
    no_progress_timeout: float = attrs.field(default=60.0, validator=_one_or_more(0.001))
    batch_records: int = attrs.field(default=10_000, validator=_one_or_more(1))
    batch_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=_one_or_more(1))
    max_buffered_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_one_or_more(1024))

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
