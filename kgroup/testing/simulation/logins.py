"""The users of a simulated cluster: one for each member, with a password that can change.

INVARIANT: without logins in the plan there are no users, and nothing here has an effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from kgroup.broker import BrokerSecurity, EmbeddedCluster
from kgroup.broker.security.acls import ANY, Acl, Operation, ResourceType
from kgroup.security.credentials import Credentials
from kgroup.security.settings import Security, SecurityProtocol
from kgroup.testing.simulation.plan import Plan

SECOND: Final = "-second"
"""The end of the name of a second program with a member's instance id; it has the same user."""
_ALLOWED: Final = tuple(
    Acl(ANY, Operation.ALL, kind, ANY) for kind in (ResourceType.GROUP, ResourceType.TOPIC)
)


def user_of(program: str) -> str:
    """The user as which a program logs in."""
    return program.removesuffix(SECOND)


@final
class SimulatedLogins:
    """The users, their passwords and their rights.

    Args:
        plan: says whether there are logins, and by which mechanism.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan.logins
        self._passwords = {member.name: f"{member.name} 0" for member in plan.members}
        self._known = dict(self._passwords)
        """The passwords by which programs log in; they learn late that one has changed."""
        self._changes = 0
        self._revoked: list[str] = []

    @property
    def of_brokers(self) -> BrokerSecurity | None:
        """The security of the cluster."""
        if self._plan is None:
            return None
        return BrokerSecurity(
            users=self._passwords,
            mechanisms=[self._plan.mechanism],
            acls=_ALLOWED,
            session_lifetime=self._plan.session_lifetime,
        )

    def of_program(self, name: str) -> Security:
        """The security with which a program logs in."""
        if self._plan is None:
            return Security()
        user = user_of(name)
        return Security(
            protocol=SecurityProtocol.SASL_PLAINTEXT,
            mechanism=self._plan.mechanism,
            credentials=lambda: Credentials(user, self._known[user]),
        )

    @contextmanager
    def user_revoked(self, cluster: EmbeddedCluster, user: str) -> Iterator[None]:
        """Remove a user and end its sessions; create it again at the end."""
        if self._plan is None:
            yield
            return
        self._revoked.append(user)
        cluster.remove_user(user)
        cluster.end_sessions(user)
        yield
        self._revoked.remove(user)
        self._restore(cluster, user)

    @contextmanager
    def password_changes(self, cluster: EmbeddedCluster, user: str) -> Iterator[None]:
        """Change a user's password at the brokers; its programs learn of it at the end."""
        if self._plan is None:
            yield
            return
        if user in self._passwords:
            self._changes += 1
            self._passwords[user] = f"{user} {self._changes}"
        self._restore(cluster, user)
        yield
        if user in self._passwords:
            self._known[user] = self._passwords[user]

    @contextmanager
    def right_revoked(
        self, cluster: EmbeddedCluster, user: str, resource_type: str
    ) -> Iterator[None]:
        """Forbid a user to read the group, or the topics; allow it again at the end."""
        if self._plan is None:
            yield
            return
        denial = Acl(user, Operation.READ, resource_type, ANY, deny=True)
        cluster.add_acl(denial)
        yield
        cluster.remove_acl(denial)

    def _restore(self, cluster: EmbeddedCluster, user: str) -> None:
        password = self._passwords.get(user)  # None if the member was removed from the plan
        if password is not None and user not in self._revoked:
            cluster.set_user(user, password)
