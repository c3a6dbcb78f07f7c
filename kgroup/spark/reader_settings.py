"""``ReaderSettings``: how executors read ranges, as a value that is safe to ship.

It is part of every task, so it contains no live object and no secret: a secret is given as a
reference, which the executor resolves when it creates a consumer. Executors import this module, so
it imports nothing heavy.

INVARIANTS: no secret is an attribute of anything in this module; no error and no repr shows a value
that was given in ``client``, because a secret may have been given there by mistake.
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
from kgroup.bounds import did_you_mean
from kgroup.errors import ConfigError
from kgroup.security.secret import has_private_key
from kgroup.types import INT32_MAX, INT64_MAX, IsolationLevel, IsolationLevelName, text_fault

if TYPE_CHECKING:
    from kgroup.config import GroupConfig  # it imports trio, which executors lack
else:  # so that typing.get_type_hints finds the names without the imports
    GroupConfig = Any

Value = str | int | float | bool

READER_GROUP: Final = "kgroup-spark-reader"
"""The default group id: librdkafka requires one, although the readers neither join nor commit."""
FIXED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "an offset out of range is an error, never a skip",
    "bootstrap.servers": "it is the field bootstrap_servers",
    "check.crcs": "kgroup always checks records; a damaged one is an error",
    "client.id": "it is the field client_id",
    "enable.auto.commit": "the driver commits",
    "enable.auto.offset.store": "the driver commits",
    "enable.partition.eof": "it shows that a range is complete",
    "group.id": "it is the field group_id",
    "group.instance.id": "executors join no group",
    "isolation.level": "it is the field isolation_level",
    "metadata.broker.list": "it is the field bootstrap_servers",
    "statistics.interval.ms": "it follows from no_progress_timeout",
    **dict.fromkeys(
        (
            "background_event_cb",
            "consume_cb",
            "error_cb",
            "log_cb",
            "logger",
            "on_commit",
            "opaque",
            "rebalance_cb",
            "socket_cb",
            "ssl.certificate.verify_cb",
            "stats_cb",
            "throttle_cb",
        ),
        "it is an object of one process, which cannot be shipped",
    ),
}
"""librdkafka's settings that cannot be given in ``client`` or ``secrets``, and why."""
SECRET: Final = (
    "password",
    "passphrase",
    "secret",
    "key.pem",
    "sasl.oauthbearer.config",
    "token",
)
"""A setting whose name contains one of these is accepted in ``secrets`` only."""
HIDDEN: Final = "..."
"""What an error shows in place of a value."""
REFERENCES: Final = "it must be 'env:NAME', 'file:/path' or 'call:module:function'"
CLIENT: Final = (
    "each must be a text without NUL, True, False, or a number from -(2**63-1) to 2**63-1, and not"
    " a secret"
)
MAX_PAIRS: Final = 1000
"""The most settings in ``client``, and in ``secrets``."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
CALLBACK: Final = "oauth_cb"
"""confluent-kafka's setting that is a function: ``call:module:function`` passes the function."""
_NO_SETTING: Final = "kgroup.no.setting"
"""A name that librdkafka refuses."""
_UNKNOWN: Final = "No such configuration property:"
"""How librdkafka's text about such a name begins."""


def _isolation(value: IsolationLevelName | str | IsolationLevel) -> IsolationLevel:
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
        return tuple(sorted(dict(bounds.listed(field, items, MAX_PAIRS)).items()))
    except Exception:  # noqa: BLE001 # a caller's object may raise anything when it is read
        # The error shows neither the values nor the cause: a secret may be among them.
        raise ConfigError(
            field, HIDDEN, f"it must be a mapping of at most {MAX_PAIRS} names to values"
        ) from None


def _names(pairs: Iterable[tuple[str, Any]]) -> str:
    return "<" + ", ".join(name for name, _ in pairs) + ">"


def _is_secret(name: str) -> bool:
    return name == CALLBACK or any(word in name.lower() for word in SECRET)


def _plain(_: Any, attribute: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, value in pairs:
        _check_name(attribute.name, name)
        # A certificate's text may have its private key too.
        if _is_secret(name) or has_private_key(value):
            raise ConfigError(
                f"{attribute.name}[{name!r}]",
                HIDDEN,
                "it may be a secret, which is never shipped; give a reference to it in secrets,"
                " such as 'env:NAME' or 'file:/path'",
            )
        if name in FIXED:
            raise ConfigError(f"{attribute.name}[{name!r}]", HIDDEN, FIXED[name])
        if not _is_value(value):
            raise ConfigError(f"{attribute.name}[{name!r}]", HIDDEN, CLIENT)
        fault = _fault(name, value)
        if f'"{name}"' in fault:  # others may be of this machine, such as a missing library
            why = f"librdkafka says: {_without_value(fault, value)}"
            raise ConfigError(f"{attribute.name}[{name!r}]", HIDDEN, why)


def _check_name(field: str, name: object) -> None:
    """Refuse names that no setting can have."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            field,
            name,
            "the name of a librdkafka setting has 1 to 100 ASCII letters, digits, '.', '_', '-'",
        )


def _fault(name: str, value: Value) -> str:
    """What librdkafka says of a setting; about another one if it accepts it.

    It reads settings in their order and makes no Consumer if one is wrong, as the last one is here.
    """
    from confluent_kafka import Consumer, KafkaException

    try:
        Consumer({"group.id": READER_GROUP, name: value, _NO_SETTING: ""})
    except KafkaException as error:
        return str(error.args[0].str()).strip()
    return ""


def _without_value(fault: str, value: Value) -> str:
    """What librdkafka says, without the value; of a list it repeats one item."""
    quoted = re.sub(r'^Invalid value ".*" for', "Invalid value for", fault, flags=re.DOTALL)
    return (
        re.sub(rf"(?<![\w.]){re.escape(str(value))}(?![\w.])", HIDDEN, quoted) if value else quoted
    )


def _is_value(value: object) -> bool:
    if isinstance(value, str):
        return "\0" not in value and text_fault(value) is None
    return isinstance(value, int | float) and -INT64_MAX <= value <= INT64_MAX


def _references(_: Any, __: attrs.Attribute[Any], pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, reference in pairs:
        _check_name("secrets", name)
        text = reference if isinstance(reference, str) else ""
        kind, _sep, rest = text.partition(":")
        if kind not in _LOOKUPS or not rest or (kind == "call" and ":" not in rest):
            # The value is not shown: it may be the secret itself, given by mistake.
            raise ConfigError(
                f"secrets[{name!r}]",
                HIDDEN,
                REFERENCES,
            )
        if name in FIXED:
            raise ConfigError(f"secrets[{name!r}]", HIDDEN, FIXED[name])
        if name != CALLBACK and (fault := _fault(name, "")).startswith(f'{_UNKNOWN} "{name}"'):
            raise ConfigError(f"secrets[{name!r}]", HIDDEN, f"librdkafka says: {fault}")
        if name == CALLBACK and kind != "call":
            raise ConfigError(f"secrets[{name!r}]", HIDDEN, "it must be 'call:module:function'")


_FIELDS_OF_READERS: Final = (
    "no_progress_timeout",
    "batch_records",
    "batch_bytes",
    "max_buffered_bytes",
)
"""The fields of `ReaderSettings` that neither a member's settings nor other arguments give."""


@final
@attrs.frozen(kw_only=True)
class ReaderSettings:
    """How executors read ranges; durations are float seconds. Hashable and picklable.

    Attributes:
        bootstrap_servers: the first brokers to connect to, ``host:port``, in a list or joined by
            commas.
        isolation_level: whether records of open and aborted transactions are read.
        client: further librdkafka settings, none of them a secret.
        secrets: references to librdkafka settings that the executor resolves: ``env:NAME`` (an
            environment variable), ``file:/path`` (a file's text without the line end) or
            ``call:module:function`` (what the function returns; for ``oauth_cb`` the function).
        group_id: librdkafka sends it when it looks up a coordinator, which it then does not use.
            With a group that the client may describe, brokers log no authorization error.
        client_id: the readers' name in the brokers' logs and quotas.
        no_progress_timeout: a task fails after so long without a record or a change of position.
        batch_records: the most rows of an Arrow batch.
        batch_bytes: about the most bytes of records (keys, values and headers) in an Arrow batch;
            a larger record is a batch of its own.
        max_buffered_bytes: how much one worker fetches ahead while Spark processes a batch.

    Raises:
        ConfigError: a value is not allowed; the text names the field and the bounds.
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
        default=(),
        converter=_client,
        validator=_plain,
        repr=_names,
        metadata={"allowed": CLIENT},
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
    no_progress_timeout: float = attrs.field(default=60.0, validator=bounds.timeout())
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
        """Make settings with a member's brokers, isolation level, group id, client id and rack.

        Args:
            config: the member's settings.
            client: further librdkafka settings.
            secrets: references to librdkafka settings that are secrets.
            fields: any other field of this class.

        Raises:
            ConfigError: the member's connections have TLS or a login, and no settings for the
                executors' are given; a field does not exist or is the member's; or a value is
                not allowed.
        """
        for name in fields:
            if name not in _FIELDS_OF_READERS:
                raise ConfigError(
                    f"reader[{name!r}]",
                    HIDDEN,
                    f"it must be one of {', '.join(_FIELDS_OF_READERS)}; brokers, isolation level,"
                    " group id and client id are those of the group's settings, and client and"
                    f" secrets are arguments of their own{did_you_mean(name, _FIELDS_OF_READERS)}",
                )
        if config.security.protocol.value != "PLAINTEXT" and not any(
            "security.protocol" in given for given in (client or {}, secrets or {})
        ):
            raise ConfigError(
                "client",
                HIDDEN,
                f"the group's connections are {config.security.protocol.value}, and executors are"
                " sent no secret of GroupConfig; give them client={'security.protocol': ...} and"
                " secrets={'sasl.password': 'env:NAME'}, as docs/spark.md shows",
            )
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
        """Look up the values of the secrets, in this process.

        Raises:
            ConfigError: a reference cannot be resolved; the text names the reference, never a
                value.
        """
        return {name: _resolve(name, reference) for name, reference in self.secrets}


def _resolve(name: str, reference: str) -> Any:
    kind, _, rest = reference.partition(":")
    try:
        found = _LOOKUPS[kind](rest)
        return found if name == CALLBACK or kind != "call" else found()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function raises
        failure = _failure(kind, error)
    # Out here it has no context, whose text may contain the secret. If a variable is not set, a
    # function in the context has the whole environment as a local variable.
    raise ConfigError(
        f"secrets[{name!r}]",
        reference,
        f"this executor cannot resolve the reference ({failure})",
    )


def _failure(kind: str, error: BaseException) -> str:
    """Why a reference cannot be resolved, in words that hold no secret."""
    if kind == "env" and isinstance(error, KeyError):
        return "the environment variable is not set there"
    if kind == "file" and isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


_LOOKUPS: Final[Mapping[str, Callable[[str], Any]]] = {
    "env": lambda name: os.environ[name],
    "file": lambda path: Path(path).read_text(encoding="utf-8").removesuffix("\n"),
    "call": _function,
}
"""How each kind of reference is resolved."""
