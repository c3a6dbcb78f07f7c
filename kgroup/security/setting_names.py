"""Names of settings that a class does not have: the error says which setting was probably meant.

Programs that come from another client bring its names: kafka-python and aiokafka write Kafka's
properties with underscores, and some in their own way. ``kgroup.security.property_table`` knows
what each property is here; a name that is none of them is compared with the class's own.

Source: the arguments of kafka-python's (2.2) and aiokafka's (0.12) ``KafkaConsumer``, the fields of
kafka-go's ``ConsumerGroupConfig``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.init_hints import wraps_init
from kgroup.security.property_table import BY_NAME, Property, PropertyKind
from kgroup.security.property_values import kilobytes, milliseconds
from kgroup.security.secret import Hidden

T = TypeVar("T")
_THEIRS: Final[Mapping[str, str]] = {
    "Brokers": "bootstrap.servers",
    "GroupBalancers": "partition.assignment.strategy",
    "GroupID": "group.id",
    "StartOffset": "auto.offset.reset",
    "auto_commit": "enable.auto.commit",
    "brokers": "bootstrap.servers",
    "hosts": "bootstrap.servers",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""Names of other clients that are no property with underscores, and the property."""
_FUNCTIONS: Final[Mapping[str, str]] = {
    "oauth_cb": "token",
    "sasl_oauth_token_provider": "token",
}
"""Names of other clients for what no property sets, and the field of ``Security``."""
_NO_CALLBACK: Final = (
    "a rebalance calls no function of the program, but ends the generation; docs/coming_from.md has"
    " what takes its place"
)
_NO_SETTINGS: Final[Mapping[str, str]] = {
    "commit": "it is an argument of run() and serve()",
    "consumer_timeout_ms": "a stream of records ends only with its generation; next(timeout=...)"
    " of kgroup.threaded's streams waits so many seconds",
    "listener": _NO_CALLBACK,
    "loop": "a group belongs to the event loop in which it is entered",
    "max_records": "it is an argument of records(), run() and serve()",
    "on_assign": _NO_CALLBACK,
    "on_event": "it is an argument of ConsumerGroup() and run()",
    "on_lost": _NO_CALLBACK,
    "on_revoke": _NO_CALLBACK,
    "runtime": "it is an argument of ConsumerGroup() and run()",
    "ssl_context": "kgroup makes it from the files: give Security(protocol=..., ca=...,"
    " certificate=..., key=...)",
    "threads": "it is an argument of kgroup.threaded's run() and serve()",
    "topic_pattern": "give topics=[re.compile(...)]",
}
"""Arguments of other calls, of kgroup's or of another client's, and what to do instead.

The nearest of our own names would be another thing."""
_ALL: Final = "; docs/configuration.md and docs/security.md have all settings"
_UNITS: Final[Mapping[Callable[[str], Any], str]] = {
    milliseconds: ", in seconds",
    kilobytes: ", in bytes",
}
"""The unit of a field, where it is another one than that of its property."""


def names_checked(kind_name: str, security: Collection[str] = ()) -> Callable[[type[T]], type[T]]:
    """A decorator of attrs classes: an argument that the class does not have is a ConfigError.

    So is one without a name. The error does not show the value, because it may be a secret.

    Args:
        kind_name: the class's name.
        security: the fields of ``Security``, if the class has a field for one.
    """

    def decorate(kind: type[T]) -> type[T]:
        init: Callable[..., None] = kind.__init__
        fields = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]

        @wraps_init(init)
        def checking(self: T, *args: Any, **kwargs: Any) -> None:
            if args:
                args = ()
                kwargs.clear()
                wanted = (
                    f"{kind_name} takes its settings by name; {kind_name}.from_properties takes a"
                    " mapping of Kafka's names, or the path of a properties file"
                )
                raise ConfigError("positional argument", Hidden("..."), wanted)
            unknown = sorted(kwargs.keys() - set(fields))
            if unknown:
                # A traceback with local variables would show the values.
                args = ()
                kwargs.clear()
                wanted = f"{kind_name} has no such setting{_meant(unknown[0], fields, security)}"
                raise ConfigError(unknown[0], Hidden("..."), wanted)
            init(self, *args, **kwargs)

        kind.__init__ = checking  # type: ignore[method-assign]
        return kind

    return decorate


def _meant(name: str, fields: Collection[str], security: Collection[str]) -> str:
    """What an error adds about a name that is none of these fields."""
    proper = _THEIRS.get(name, name.replace("_", "."))
    row = BY_NAME.get(proper) or BY_NAME.get(name)
    field = _FUNCTIONS.get(name, name if row is None else row.field)
    if field in fields:
        return f"; did you mean {field!r}{_unit(row)}?"
    if field in security:
        return f"; give security=Security({field}=...)"
    if name in _NO_SETTINGS:
        return f": {_NO_SETTINGS[name]}"
    if row is None:
        return bounds.did_you_mean(name, fields) or _ALL
    return _elsewhere(proper, row)


def _unit(row: Property | None) -> str:
    return "" if row is None else _UNITS.get(row.read, "")


def _elsewhere(proper: str, row: Property) -> str:
    """What an error adds about a property that is no field of the class, nor of ``Security``."""
    if row.field is None:
        return f": {row.reason}"
    if row.part is PropertyKind.GROUP:
        return f"; it is one of GroupConfig: {row.field}{_unit(row)}"
    if row.part is PropertyKind.TOKEN:
        return f"; give Security(token=OidcClientCredentials({row.field}=...))"
    return f"; Security.from_properties reads {proper}"
