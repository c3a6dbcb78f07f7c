"""``SecurityState``: the users and settings of a running cluster, shared by all its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from kgroup.broker.security.acls import Authorizer
from kgroup.broker.security.mechanisms import (
    OauthBearerServer,
    PlainServer,
    ScramServer,
    ServerLogin,
)
from kgroup.broker.security.settings import BrokerSecurity
from kgroup.broker.security.tls import server_tls
from kgroup.broker.security.users import Users
from kgroup.interfaces import Random
from kgroup.security.settings import SaslMechanism

_NONCE_BITS: Final = 128


@final
class SecurityState:
    """What the connections of a cluster log in by.

    Attributes:
        users: every user.
        authorizer: the rules of access.
        mechanisms: those that are enabled.
        session_lifetime: seconds; None for no end.
        protocol: the ``security.protocol`` of clients.
        tls: the TLS of every broker, or None.

    Args:
        security: the settings.
        hosts: the names under which clients reach the brokers.
        random: makes salts and nonces.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        security: BrokerSecurity,
        random: Random,
        wall_clock: Callable[[], float],
        hosts: Iterable[str] = (),
    ) -> None:
        self.protocol: Final = security.protocol
        self.tls: Final = server_tls(security, hosts)
        self._random = random
        self.seconds_since_1970: Final = wall_clock
        self.mechanisms: Final = security.enabled_mechanisms
        self.session_lifetime = security.session_lifetime
        self.authorizer: Final = Authorizer(security.acls, security.super_users)
        self.users: Final = Users(random)
        for name, password in security.users.items():
            self.users.put(name, password.reveal())

    @property
    def logs_in(self) -> bool:
        """Whether clients must log in."""
        return bool(self.mechanisms)

    def begin_login(self, mechanism: SaslMechanism) -> ServerLogin:
        """The broker's side of a new login."""
        if mechanism is SaslMechanism.PLAIN:
            return PlainServer(self.users)
        if mechanism is SaslMechanism.OAUTHBEARER:
            return OauthBearerServer(self.seconds_since_1970)
        nonce = f"{self._random.getrandbits(_NONCE_BITS):032x}"
        return ScramServer(mechanism, self.users, nonce)
