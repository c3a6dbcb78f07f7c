"""``kgroup broker``: runs the embedded broker from a shell, until a signal.

Here are its options, its one line on standard output, and its signals; the broker itself is in
``kgroup.broker``.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio

from kgroup.addresses import split_address
from kgroup.bounds import did_you_mean
from kgroup.broker import Acl, BrokerSecurity, BrokerSettings, serve_cluster
from kgroup.broker.broker_settings import BROKERS, MOST_PARTITIONS, PARTITIONS
from kgroup.broker.security.acls import ANY
from kgroup.broker.security.settings import ANONYMOUS, SESSION_LIFETIME
from kgroup.broker.server import check_listener
from kgroup.cli.options import FilePath, Number, WholeNumber
from kgroup.errors import ConfigError, UsageError, short_repr
from kgroup.security.settings import SecurityProtocol
from kgroup.types import topic_fault

__all__ = ["broker"]

_DEFAULT_ADDRESS: Final = "127.0.0.1:9092"
_ANYTHING: Final = "*"
_DENIES: Final = "deny:"
_OPTIONS: Final = {
    "tls": "--tls",
    "certificate": "--certificate",
    "key": "--key",
    "session_lifetime": "--session-lifetime",
}
"""Fields of ``BrokerSecurity``, and the options that give them."""
_USERS_VARIABLE: Final = "KGROUP_BROKER_USERS"


def _address(context: click.Context, option: click.Parameter, value: str) -> tuple[str, int]:
    del context, option
    try:
        return split_address(value, least_port=0)
    except ValueError as error:
        raise click.BadParameter(
            f"{short_repr(value)} is not HOST:PORT, such as {_DEFAULT_ADDRESS}: {error}"
        ) from error


def _settings(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> BrokerSettings:
    del context, option
    properties: dict[str, object] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not (separator and name):
            raise click.BadParameter(f"{short_repr(value)} is not KEY=VALUE")
        properties[name] = text
    try:
        return BrokerSettings.from_properties(properties)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def _topics(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> Mapping[str, int]:
    del context, option
    topics: dict[str, int] = {}
    for value in values:
        name, colon, partitions = value.partition(":")
        if not (name and colon):
            raise click.BadParameter(
                f"{short_repr(value)} is not NAME:PARTITIONS, such as orders:6"
            )
        if fault := topic_fault(name):
            raise click.BadParameter(f"the topic name {short_repr(name)} {fault}")
        if name in topics:
            raise click.BadParameter(f"the topic {name!r} is given twice")
        try:
            topics[name] = PARTITIONS.read(partitions)
        except ValueError as error:
            raise click.BadParameter(
                f"{short_repr(value)} is not NAME:PARTITIONS, such as orders:6: {error}"
            ) from error
    return topics


def _users(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> Mapping[str, str]:
    del context, option
    users: dict[str, str] = {}
    for value in values:
        name, colon, password = value.partition(":")
        if not (name and colon and password):
            # The text is not shown: it may be a password.
            raise click.BadParameter("a user is NAME:PASSWORD, such as alice:secret")
        if name in users:
            raise click.BadParameter(f"the user {short_repr(name)} is given twice")
        users[name] = password
    return users


def _acls(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> tuple[Acl, ...]:
    del context, option
    found = []
    for value in values:
        permission = value.removeprefix(_DENIES)
        parts = permission.split(":", 3)
        user, operation, resource_type, name = (*parts, *("",) * (4 - len(parts)))
        prefix = len(name) > 1 and name.endswith(_ANYTHING)
        more = {"name": name.removesuffix(_ANYTHING) if prefix else name} if name else {}
        try:
            if not user:
                raise ConfigError("user", user, "it must be a name, or * for all users")
            deny = permission != value
            acl = Acl(user, operation, resource_type, **more, prefix=prefix, deny=deny)
            found.append(acl)
        except ConfigError as error:
            raise click.BadParameter(
                f"{short_repr(value)} is not USER:OPERATION:TYPE[:NAME], such as"
                f" alice:read:topic:orders: {error}"
            ) from error
    return tuple(found)


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_DEFAULT_ADDRESS,
    show_default=True,
    callback=_address,
    help="The address to listen on; port 0 takes a free port. Several brokers use consecutive"
    " ports.",
)
@click.option(
    "--brokers",
    type=WholeNumber(BROKERS),
    default=1,
    show_default=True,
    help="How many brokers to run; topics and groups are spread over them.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    help="A broker property, by Kafka's name; may be given more than once.",
)
@click.option(
    "--topic",
    "topics",
    metavar="NAME:PARTITIONS",
    multiple=True,
    callback=_topics,
    help=f"A topic to create, with 1 to {MOST_PARTITIONS} partitions; may be given more than once.",
)
@click.option(
    "--user",
    "users",
    metavar="NAME:PASSWORD",
    multiple=True,
    callback=_users,
    envvar=_USERS_VARIABLE,
    help="A user; may be given more than once. With users, every client has to log in by PLAIN or"
    " SCRAM. Other users of the machine can read command lines: the environment variable"
    f" {_USERS_VARIABLE} has the same, separated by spaces.",
)
@click.option(
    "--acl",
    "acls",
    metavar="USER:OPERATION:TYPE[:NAME]",
    multiple=True,
    callback=_acls,
    help="A rule of access, such as alice:read:topic:orders; may be given more than once. With"
    " rules, users may do only what one of them allows. The user is one of --user, or * for all;"
    f" without --user all clients are {ANONYMOUS}. Only a rule about the cluster needs no"
    f" name. A name may end with {_ANYTHING} for all that begin so, and {_DENIES} before a rule"
    " forbids.",
)
@click.option(
    "--super-user",
    "super_users",
    metavar="NAME",
    multiple=True,
    help="A user who may do everything, also change rules by kafka-acls; may be given more than"
    " once. Others may do only what rules allow.",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Encrypt connections. Without --certificate a certificate is made, which needs trustme;"
    " --write-ca says where clients find its authority.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    help="The broker's certificate and, unless --key names it, its private key, in PEM.",
)
@click.option("--key", metavar="FILE", help="The private key of the certificate, not encrypted.")
@click.option(
    "--write-ca",
    metavar="FILE",
    type=FilePath(dir_okay=False, writable=True, path_type=Path),
    help="Where to write the authority of the certificate that is made with --tls, in PEM.",
)
@click.option(
    "--session-lifetime",
    type=Number(SESSION_LIFETIME),
    help="Seconds after which clients have to log in again.",
)
def broker(
    listen: tuple[str, int],
    brokers: int,
    settings: BrokerSettings,
    topics: Mapping[str, int],
    write_ca: Path | None,
    acls: Sequence[Acl],
    super_users: Sequence[str],
    **security: Any,
) -> None:
    """Run the embedded broker, or several, until SIGTERM or SIGINT.

    It keeps nothing on disk: topics, records and groups are lost when it ends.
    """
    host, port = listen
    _refuse_without_effect(
        write_ca=write_ca, tls=security["tls"], certificate=security["certificate"]
    )
    if security["session_lifetime"] is not None and not security["users"]:
        raise click.UsageError("--session-lifetime has no effect: without --user no client logs in")
    _refuse_unknown_users(security["users"], acls, super_users)
    try:
        check_listener(host, port, brokers)
        settings.check_brokers(brokers)
        secured = BrokerSecurity(
            **security,
            acls=acls if acls or super_users else None,
            super_users=super_users,
        )
    except ConfigError as error:
        raise click.UsageError(_by_options(error)) from error
    trio.run(
        partial(
            _run,
            host,
            port,
            brokers,
            settings=settings,
            topics=topics,
            security=secured,
            write_ca=write_ca,
        )
    )


def _by_options(error: ConfigError) -> str:
    """An error about settings of the broker's security, in terms of the options."""
    option = _OPTIONS.get(error.field)
    if option is None:
        return str(error)
    given = option if error.value is True else f"{option} {short_repr(error.value)}"
    return f"{given} is refused: {error.allowed.replace('tls=True', '--tls')}"


def _refuse_without_effect(*, write_ca: Path | None, tls: bool, certificate: str | None) -> None:
    """Refuse an option that clients would wait for in vain.

    Raises:
        UsageError: there will be no authority to write.
    """
    if write_ca is None or (tls and certificate is None):
        return
    why = "with --certificate no certificate is made" if tls else "it needs --tls"
    raise click.UsageError(
        f"--write-ca {write_ca} has no effect: {why}, so there is no authority to write"
    )


def _refuse_unknown_users(
    users: Mapping[str, str], acls: Sequence[Acl], super_users: Sequence[str]
) -> None:
    """Refuse rights of users who cannot log in: a misspelt name would leave another without.

    Raises:
        UsageError: a rule or a superuser names an unknown user.
    """
    known = [*users] or [ANONYMOUS]
    named = [("--acl", acl.user) for acl in acls] + [("--super-user", one) for one in super_users]
    for option, user in named:
        if user in known or (option == "--acl" and user == ANY):
            continue
        clients = "" if users else f"; without --user every client is the user {ANONYMOUS}"
        raise click.UsageError(
            f"{option} names the user {short_repr(user)}, but there is no --user of that name"
            f"{clients}{did_you_mean(user, known)}"
        )


async def _run(
    host: str,
    port: int,
    brokers: int,
    *,
    settings: BrokerSettings,
    topics: Mapping[str, int],
    security: BrokerSecurity,
    write_ca: Path | None,
) -> None:
    where = f"{host}:{port}" if brokers == 1 else f"{host}:{port} to {port + brokers - 1}"
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            serving = serve_cluster(brokers, host, port, settings=settings, security=security)
            async with serving as running:
                if write_ca is not None and running.ca is not None:
                    await _write(write_ca, running.ca)
                for name, partitions in topics.items():
                    await running.create_topic(name, partitions)
                _print(
                    f"kgroup broker is ready at {running.bootstrap_servers};"
                    f" it keeps nothing on disk{_spoken(security)}"
                )
                await anext(signals)
        except OSError as error:
            raise click.ClickException(
                f"cannot listen on {where}: {error.strerror or error}"
            ) from error
        except ConfigError as error:
            raise click.ClickException(_by_options(error)) from error
        except UsageError as error:
            raise click.ClickException(str(error)) from error


def _print(line: str) -> None:
    try:
        click.echo(line)
    except OSError as error:
        raise click.ClickException(
            f"the output cannot be written: {error.strerror or error}"
        ) from error


async def _write(file: Path, text: str) -> None:
    try:
        await trio.Path(file).write_text(text)
    except OSError as error:
        raise click.ClickException(
            f"--write-ca {file} cannot be written: {error.strerror or error}"
        ) from error


def _spoken(security: BrokerSecurity) -> str:
    """The protocol of clients, if it is not the usual one."""
    secured = security.protocol is not SecurityProtocol.PLAINTEXT
    return f"; clients need security.protocol={security.protocol.value}" if secured else ""
