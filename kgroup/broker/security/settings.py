"""``BrokerSecurity``: who may connect to an embedded broker, and how.

Source: KIP-12 (TLS and SASL), KIP-368 (the session's lifetime); Kafka's ``SecurityConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.security.secret import Secret, secret
from kgroup.security.settings import SaslMechanism, SecurityProtocol

_BY_PASSWORD: Final = (
    SaslMechanism.PLAIN,
    SaslMechanism.SCRAM_SHA_256,
    SaslMechanism.SCRAM_SHA_512,
)
_LONGEST_LIFETIME: Final = 2**31 - 1
ANONYMOUS: Final = "ANONYMOUS"
"""The user of a client that neither logs in nor shows a certificate."""


def _users(given: object) -> Mapping[str, Secret]:
    if not isinstance(given, Mapping):
        raise ConfigError("users", type(given), "it must map user names to passwords")
    return {name: secret(password) for name, password in given.items()}


def _check_users(_: object, __: object, users: Mapping[Any, Secret]) -> None:
    for name, password in users.items():
        check_user(name, password)


def check_user(name: object, password: Secret) -> None:
    """Check a user's name and password.

    Raises:
        ConfigError: one of them cannot be used; the error does not show the password.
    """
    bounds.text().check("users", name)
    if not password.usable:
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
@attrs.frozen(kw_only=True)
class BrokerSecurity:
    """The security of an embedded broker or cluster.

    >>> BrokerSecurity(users={"alice": "secret"}).protocol
    <SecurityProtocol.SASL_PLAINTEXT: 'SASL_PLAINTEXT'>

    Attributes:
        users: passwords by user name. With users, every client has to log in.
        mechanisms: how clients may log in; by default PLAIN and SCRAM if there are users.
            OAUTHBEARER accepts any token without a signature that has ``sub`` and ``exp``, from
            anybody: it is for tests only.
        session_lifetime: the seconds after which a client has to log in again; None for never. A
            session ends with its token in any case.
    """

    users: Mapping[str, Secret] = attrs.field(
        factory=dict, converter=_users, validator=_check_users
    )
    mechanisms: tuple[SaslMechanism, ...] | None = attrs.field(
        default=None, converter=_mechanisms, validator=_check_mechanisms
    )
    session_lifetime: float | None = attrs.field(
        default=None,
        validator=bounds.optional(bounds.number(bounds.SHORTEST_DURATION, _LONGEST_LIFETIME)),
    )

    @property
    def enabled_mechanisms(self) -> tuple[SaslMechanism, ...]:
        """The mechanisms by which clients can log in; empty if they need not."""
        if self.mechanisms is not None:
            return self.mechanisms
        return _BY_PASSWORD if self.users else ()

    @property
    def protocol(self) -> SecurityProtocol:
        """The ``security.protocol`` of clients."""
        return (
            SecurityProtocol.SASL_PLAINTEXT
            if self.enabled_mechanisms
            else SecurityProtocol.PLAINTEXT
        )
