"""``Properties``: the properties of another client, and the settings that they give.

INVARIANT: a value is a `Secret` from the moment it was read, so that no error, traceback or repr
shows it. Functions that hold plain texts raise no error to the program; `_attempt` turns their
failures into values first.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, final

from kgroup import bounds
from kgroup.errors import ConfigError, short_repr
from kgroup.security.config_providers import resolve
from kgroup.security.jaas import LoginModule, parse_jaas
from kgroup.security.other_logins import instead_of
from kgroup.security.pem import FILE, form_of
from kgroup.security.properties_file import decode, parse
from kgroup.security.property_errors import FieldNames
from kgroup.security.property_table import BY_NAME, Property, PropertyKind
from kgroup.security.secret import Hidden, Secret
from kgroup.security.token_properties import token_provider

PropertySource = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a properties file, or names and values."""
T = TypeVar("T")
_LOGGER: Final = logging.getLogger("kgroup.security.properties")
_PROVIDER_SETTINGS: Final = "config.providers."
_STORES: Final = {"truststore": "ca", "keystore": "certificate"}
_LONGEST_NAME: Final = 1000
_EVENTS: Final = "on_event= takes a function that is called with every event (docs/events.md)"
_LOG: Final = "librdkafka's messages go to the logger 'kgroup.librdkafka'"
_LOGIN: Final = "give GroupConfig.from_properties(..., security=Security(..., token=function))"
_LOOP: Final = "each rebalance ends a generation, and begins another one (docs/coming_from.md)"
_PRODUCER: Final = "it is a producer's"
_OBJECTS: Final[Mapping[str, str]] = {
    "on_commit": f"{_EVENTS}, Committed and CommitRefused among them",
    "offset_commit_cb": f"{_EVENTS}, Committed and CommitRefused among them",
    "error_cb": f"{_EVENTS}, RequestFailed and RecordSourceFailed among them",
    "background_event_cb": _EVENTS,
    "throttle_cb": "kgroup slows down by itself where a broker throttles it",
    "stats_cb": "kgroup has metrics of its own (docs/metrics.md)",
    "oauth_cb": _LOGIN,
    "oauthbearer_token_refresh_cb": _LOGIN,
    "logger": _LOG,
    "log_cb": _LOG,
    "on_assign": _LOOP,
    "on_revoke": _LOOP,
    "on_lost": _LOOP,
    "rebalance_cb": _LOOP,
    "on_delivery": _PRODUCER,
    "dr_cb": _PRODUCER,
    "dr_msg_cb": _PRODUCER,
    "default.topic.config": "give its properties beside the others, without this name",
}
"""What confluent-kafka takes as objects, and what there is in place of each."""
_OAUTHBEARER_MODULE: Final = "OAuthBearerLoginModule"
_PASSWORD_MODULES: Final = {"PlainLoginModule": "PLAIN", "ScramLoginModule": "SCRAM"}


@final
class Properties:
    """Names and values that were read from a file or a mapping.

    Args:
        source: the path of a properties file, or names and values.

    Raises:
        ConfigError: the file cannot be read, a name is unknown, or a value is not a text.
    """

    def __init__(self, source: Any) -> None:
        self._values: dict[str, Secret] = {}
        file = ""
        if isinstance(source, Mapping):
            pairs, fault = _of_mapping(source)
            place = "the mapping"
        else:
            place = "?"
            if isinstance(source, str | os.PathLike):
                file = os.fsdecode(source)
                place = short_repr(file)
            pairs, fault = _of_file(source)
        del source
        if fault:
            raise ConfigError("properties", Hidden(place), fault)
        for name, value in pairs:
            if name not in BY_NAME and not name.startswith(_PROVIDER_SETTINGS):
                raise ConfigError(name, Hidden("..."), _unknown(name), file)
            if self._values.setdefault(name, value) != value:
                raise ConfigError(name, Hidden("..."), "it is given twice; leave one out", file)
        self._names = FieldNames(self._values.keys(), file)

    def __repr__(self) -> str:
        return f"<properties {', '.join(self._values)}>"

    @contextmanager
    def naming_errors(self, given: Collection[str] = ()) -> Iterator[None]:
        """Let errors about settings name the property, and the file.

        Args:
            given: the names of fields that the program gives itself; errors about them stay.

        Raises:
            ConfigError: one was raised inside; this one says it in terms of the properties.
        """
        try:
            yield
        except ConfigError as error:
            if error.field in given:
                raise
            translated = self._names.translated(error)
        else:
            return
        raise translated from None

    def settings(self, part: PropertyKind, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that properties of one part set.

        Args:
            part: the part.
            given: the names of fields that the program gives itself; their properties are not used.

        Raises:
            ConfigError: a property's value is not allowed, or two properties contradict each other.
        """
        fields: dict[str, Any] = {}
        origins: dict[str, str] = {}
        ignored = []
        for name, value in self._values.items():
            row = BY_NAME.get(name)
            if row is None or row.part is not part:
                continue
            if row.without in given or (row.field is None and row.read is str.strip):
                ignored.append(name)
                continue
            if row.field is None:
                _read(name, row, value)
                continue
            if row.field not in given:
                _set(fields, origins, row.field, name, _read(name, row, value))
        if ignored:
            _LOGGER.info("these properties have no effect in kgroup: %s", ", ".join(ignored))
        return fields

    def setting(self, field: str) -> Any:
        """The value of one field; None if no property sets it. Other properties are not read.

        Raises:
            ConfigError: the property's value is not allowed, or two properties contradict.
        """
        fields: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name, value in self._values.items():
            row = BY_NAME.get(name)
            if row is not None and row.field == field:
                _set(fields, origins, field, name, _read(name, row, value))
        return fields.get(field)

    def security(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of ``Security``, without those that the program gives itself."""
        fields = self.settings(PropertyKind.SECURITY, given)
        stores = self.settings(PropertyKind.STORE, given)
        for store, field in _STORES.items():
            if store in stores and field not in given:
                place = _pem_store(store, stores[store], stores.get(f"{store}_type"))
                if fields.setdefault(field, place) != place:
                    raise ConfigError(
                        f"ssl.{store}.location", place, f"another property gives {field}, too"
                    )
        if {"token", "credentials"} & given.keys():
            return fields
        module = None
        if "jaas" in stores:
            module, fault = _attempt(parse_jaas, stores["jaas"])
            if module is None:
                raise ConfigError("sasl.jaas.config", Hidden("<secret>"), fault)
            _add_login(fields, module, given)
        mechanism = given.get("mechanism", fields.get("mechanism"))
        if str(getattr(mechanism, "value", mechanism)).upper() == "OAUTHBEARER" or (
            module is not None and module.name == _OAUTHBEARER_MODULE
        ):
            fields["token"] = token_provider(self.settings(PropertyKind.TOKEN, given), module)
        return fields


def _set(
    fields: dict[str, Any], origins: dict[str, str], field: str, name: str, value: Any
) -> None:
    """Set a field, unless another property has given it another value.

    Raises:
        ConfigError: one has.
    """
    if fields.setdefault(field, value) != value:
        raise ConfigError(name, Hidden("..."), f"{origins[field]} says otherwise; leave one out")
    origins[field] = name


def _attempt(function: Callable[[str], T], value: Secret) -> tuple[T | None, str]:
    """Call a function with a secret: its result, or else what is wrong."""
    try:
        return function(value.reveal()), ""
    except ValueError as error:
        return None, str(error)


def _of_file(source: Any) -> tuple[list[tuple[str, Secret]], str]:
    try:
        data = Path(source).read_bytes()
        if form := form_of(data):
            return [], f"it is {form}, and no property file: give one that names it"
        pairs = parse(decode(data))
    except OSError as error:
        return [], f"the file cannot be read: {error.strerror}"
    except (TypeError, ValueError) as error:
        if isinstance(source, str | os.PathLike):
            return [], str(error)
        return [], "it must be the path of a properties file, or a mapping"
    if fault := next(filter(None, (_name_fault(name) for name, _ in pairs)), ""):
        return [], f"it is no property file: it has {fault}"
    return [(name, Secret(value)) for name, value in pairs], ""


def _name_fault(name: str) -> str:
    """Why a text is the name of no property at all; empty if it may be one."""
    if len(name) > _LONGEST_NAME:
        return f"a name of {len(name)} characters"
    return "" if name.isprintable() else "a name with control characters"


def _of_mapping(source: Mapping[Any, Any]) -> tuple[list[tuple[str, Secret]], str]:
    pairs = []
    for name, value in source.items():
        if not isinstance(name, str):
            return [], f"the name {short_repr(name)} must be a str"
        if isinstance(value, Secret):
            pairs.append((name, value))
        elif isinstance(value, bool):
            pairs.append((name, Secret(str(value).lower())))
        elif isinstance(value, str | int | float | Path):
            pairs.append((name, Secret(str(value))))
        elif value is not None:
            return [], _object_fault(name)
    return pairs, ""


def _object_fault(name: str) -> str:
    """Why a value that is no plain one is refused, and what to do."""
    if instead := _OBJECTS.get(name):
        return f"{name!r} is no property of kgroup; leave it out: {instead}"
    return f"the value of {short_repr(name)} must be a text, a number, True or False"


def _read(name: str, row: Property, value: Secret) -> Any:
    """The value of a property's field; that of a secret one is still a `Secret`."""
    resolved, fault = _attempt(resolve, value)
    if resolved is None:
        raise ConfigError(name, Hidden("..."), fault)
    value = Secret(resolved)
    del resolved
    if row.secret:
        read, fault = _attempt(lambda text: Secret(row.read(text)), value)
    else:
        read, fault = _attempt(row.read, value)
    if fault:
        shown, instead = "<secret>", ""
        if not row.secret:
            shown, instead = repr(value.reveal()), instead_of(value.reveal())
        reason = f"{fault}: {row.reason}" if row.reason else fault
        raise ConfigError(name, Hidden(shown), instead or reason)
    return read


def _unknown(name: object) -> str:
    words = (
        "neither Kafka's Java client nor librdkafka has such a property; remove it, or correct its"
        " name"
    )
    return words + bounds.did_you_mean(name, BY_NAME)


def _pem_store(store: str, place: str, kind: str | None) -> str:
    """The path of a store in PEM.

    Raises:
        ConfigError: it is no path of a file; or it is of a kind that only Java reads, and the error
            has the command to convert it.
    """
    name = f"ssl.{store}.location"
    FILE.check(name, place)
    if not Path(place).name:
        raise ConfigError(name, place, "it is a folder; give the path of a file")
    if (kind or "").upper() == "PEM":
        return place
    suffix = Path(place).suffix.lower()
    if suffix == ".pem":
        raise ConfigError(
            name,
            place,
            f"without a type it is a store that only Java reads; for a file that is PEM give"
            f" ssl.{store}.type=PEM too",
        )
    is_pkcs12 = (kind or "").upper() == "PKCS12" or (kind is None and suffix in (".p12", ".pfx"))
    new = Path(place).with_suffix(".pem")
    old, pem = shlex.quote(place), shlex.quote(str(new))
    written = str(new).replace("\\", "\\\\")  # as a property file has it
    pkcs12 = shlex.quote(str(Path(place).with_suffix(".p12")))
    if store == "truststore":
        command = f"keytool -list -rfc -keystore {old} > {pem}"
        after = f"ssl.ca.location={written}"
    else:
        command = f"openssl pkcs12 -in {old if is_pkcs12 else pkcs12} -out {pem}"
        if not is_pkcs12:
            command = (
                f"keytool -importkeystore -srckeystore {old} -destkeystore {pkcs12}"
                f" -deststoretype PKCS12 && {command}"
            )
        after = f"ssl.certificate.location={written} and ssl.key.password"
    raise ConfigError(
        name,
        place,
        f"only Java reads a store of type {kind or 'JKS or PKCS12'}; convert it with `{command}`,"
        f" then give {after} (a file that is PEM already needs ssl.{store}.type=PEM)",
    )


def _add_login(fields: dict[str, Any], module: LoginModule, given: Mapping[str, Any]) -> None:
    """Add the user and password of a login module, unless it is one that makes tokens."""
    name, hidden = "sasl.jaas.config", Hidden("<secret>")
    mechanism = str(fields.get("mechanism", "")).upper()
    if module.name == _OAUTHBEARER_MODULE:
        if mechanism in {"", "OAUTHBEARER"}:
            return
        raise ConfigError(name, hidden, f"{module.name} does not fit sasl.mechanism={mechanism}")
    if module.name not in _PASSWORD_MODULES:
        known = ", ".join((*_PASSWORD_MODULES, _OAUTHBEARER_MODULE))
        why = instead_of(module.name) or f"it must be one of {known}"
        raise ConfigError(name, hidden, f"its module is {module.name}: {why}")
    if mechanism and not mechanism.startswith(_PASSWORD_MODULES[module.name]):
        raise ConfigError(name, hidden, f"{module.name} does not fit sasl.mechanism={mechanism}")
    if module.options.get("tokenauth", "").lower() == "true":
        raise ConfigError(name, hidden, "logins with delegation tokens are not supported")
    for option in ("username", "password"):
        if option in module.options and option not in given:
            value: Any = module.options[option]
            value = Secret(value) if option == "password" else value
            if fields.setdefault(option, value) != value:
                raise ConfigError(name, hidden, f"sasl.{option} says otherwise; leave one out")
