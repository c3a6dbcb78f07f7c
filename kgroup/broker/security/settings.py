"""``BrokerSecurity``: who may connect to an embedded broker, and how.

Source: KIP-12 (TLS and SASL), KIP-368 (the session's lifetime); Kafka's ``SecurityConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.broker.security.acls import Acl, rules
from kgroup.errors import ConfigError
from kgroup.init_hints import typed_init
from kgroup.security import pem
from kgroup.security.secret import Secret, secret
from kgroup.security.settings import SaslMechanism, SecurityProtocol

_BY_PASSWORD: Final = (
    SaslMechanism.PLAIN,
    SaslMechanism.SCRAM_SHA_256,
    SaslMechanism.SCRAM_SHA_512,
)
_LONGEST_LIFETIME: Final = 2**31 - 1
SESSION_LIFETIME: Final = bounds.number(bounds.SHORTEST_DURATION, _LONGEST_LIFETIME)
ANONYMOUS: Final = "ANONYMOUS"
"""The user of a client that neither logs in nor shows a certificate."""


_PROTOCOLS: Final = {(one.sasl, one.tls): one for one in SecurityProtocol}
"""Whether clients log in, whether connections are encrypted -> the protocol."""


def _names(given: object) -> Any:
    names = tuple(given) if isinstance(given, list | tuple | set | frozenset) else None
    if names is None or not all(bounds.text().holds(name) for name in names):
        raise ConfigError("super_users", given, "it must be a list of user names")
    return names


def _users(given: object) -> Mapping[str, Secret]:
    if not isinstance(given, Mapping):
        raise ConfigError("users", type(given), "it must map user names to passwords")
    return {name: secret(password) for name, password in given.items()}


def _check_users(_: object, __: object, users: Mapping[Any, Secret]) -> None:
    for name, password in users.items():
        check_user(name, password)


def check_user(name: object, password: Secret | None) -> None:
    """Check a user's name and password.

    Raises:
        ConfigError: one of them cannot be used; the error does not show the password.
    """
    bounds.text().check("users", name)
    if password is None or not password.usable:
        raise ConfigError("users", password, "a password must be a str without NUL, not empty")


def _mechanisms(given: object) -> Any:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError("mechanisms", given, "it must be a list of SASL mechanisms")
    return tuple(bounds.member_of(SaslMechanism, one) for one in given)


def _check_mechanisms(_: object, __: object, given: Any) -> None:
    for one in given if isinstance(given, tuple) else ():
        if not isinstance(one, SaslMechanism):
            names = ", ".join(mechanism.value for mechanism in SaslMechanism)
            raise ConfigError("mechanisms", one, f"it must be one of {names}")


@final
@typed_init(Path=Path)
@attrs.frozen(kw_only=True)
class BrokerSecurity:
    """The security of an embedded broker or cluster.

    >>> BrokerSecurity(users={"alice": "secret"}).protocol
    <SecurityProtocol.SASL_PLAINTEXT: 'SASL_PLAINTEXT'>

    Attributes:
        users: passwords by user name. With users, every client has to log in.
        mechanisms: how clients may log in; by default PLAIN and SCRAM if there are users.
            OAUTHBEARER accepts any token without a signature that has ``sub`` and ``exp``, from
            any client: it is for tests only.
        acls: the rules of access; by default everything is allowed. With rules, even none, only
            what one of them allows.
        super_users: users that may do everything, as Kafka's `super.users`.
        tls: whether connections are encrypted. Without a certificate one is made for the broker's
            addresses; ``EmbeddedBroker.ca`` is what clients have to trust then.
        certificate: the file with the broker's certificate, in PEM.
        key: the file with its private key, which may not be encrypted; by default it is in the same
            file as the certificate.
        client_ca: the file with the authorities whose client certificates are accepted, in PEM.
            Then every client must show one; without a login its CN is the name of the user.
        session_lifetime: the seconds after which a client has to log in again; None for never. A
            session ends with its token in any case.
    """

    users: Mapping[str, Secret] = attrs.field(
        factory=dict, converter=_users, validator=_check_users
    )
    mechanisms: tuple[SaslMechanism, ...] | None = attrs.field(
        default=None, converter=_mechanisms, validator=_check_mechanisms
    )
    acls: tuple[Acl, ...] | None = attrs.field(default=None, converter=rules)
    super_users: tuple[str, ...] = attrs.field(default=(), converter=_names)
    tls: bool = attrs.field(default=False, validator=bounds.flag())
    certificate: str | None = attrs.field(default=None, converter=pem.place, validator=pem.FILE)
    key: str | None = attrs.field(default=None, converter=pem.place, validator=pem.FILE)
    client_ca: str | None = attrs.field(default=None, converter=pem.place, validator=pem.FILE)
    session_lifetime: float | None = attrs.field(
        default=None,
        validator=bounds.optional(SESSION_LIFETIME),
    )

    def __attrs_post_init__(self) -> None:
        """Refuse what would have no effect."""
        for name in ("certificate", "client_ca"):
            if getattr(self, name) is not None and not self.tls:
                raise ConfigError(name, getattr(self, name), "it has no effect without tls=True")
        if self.key is not None and self.certificate is None:
            raise ConfigError("key", self.key, "it has no effect without certificate")

    @property
    def enabled_mechanisms(self) -> tuple[SaslMechanism, ...]:
        """The mechanisms by which clients can log in; empty if they need not."""
        if self.mechanisms is not None:
            return self.mechanisms
        return _BY_PASSWORD if self.users else ()

    @property
    def protocol(self) -> SecurityProtocol:
        """The ``security.protocol`` of clients."""
        return _PROTOCOLS[bool(self.enabled_mechanisms), self.tls]
