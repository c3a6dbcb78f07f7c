"""Access control: rules, and whether they allow an operation. Decisions without I/O.

Source: KIP-11, KIP-290 (prefixes); Kafka's ``AclOperation``, ``StandardAuthorizer``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import text_fault

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
ANY: Final = "*"
"""As a name, a user or a host of a rule: all of them."""
_USER: Final = "User"
"""The type of all principals that log in."""


@final
class ResourceType(enum.Enum):
    """What a rule is about; the values are Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@final
class Operation(enum.Enum):
    """What a user may do; the values are Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> those whose permission includes it; a denial includes nothing else."""


_TEXT: Final = bounds.Bound(
    lambda value: isinstance(value, str) and text_fault(value) is None,
    "it must be a str of at most 32767 bytes in UTF-8",
)
"""Kafka keeps rules about any user and host, also about empty ones, who never come."""


def _operation(value: object) -> Any:
    return Operation.__members__.get(value.upper(), value) if isinstance(value, str) else value


def _resource_type(value: object) -> Any:
    return ResourceType.__members__.get(value.upper(), value) if isinstance(value, str) else value


@final
@attrs.frozen
class Acl:
    """One rule.

    >>> Acl("alice", "read", "topic", "orders")
    Acl(alice may READ TOPIC orders)

    Attributes:
        user: the name of a user, or ``*`` for everybody.
        operation: an `Operation` or its name. READ, WRITE, DELETE and ALTER include DESCRIBE.
        resource_type: a `ResourceType` or its name.
        name: of the resource, or ``*`` for all. The cluster is ``kafka-cluster``.
        prefix: whether the name is only the beginning of the resources' names.
        deny: whether the rule forbids; that counts more than any permission.
        host: the address of the client, or ``*`` for any.
        principal_type: the type of the principal; Kafka keeps rules of any, but only users log in.
    """

    user: str = attrs.field(validator=_TEXT)
    operation: Operation = attrs.field(
        converter=_operation, validator=bounds.instance(Operation, "an AclOperation's name")
    )
    resource_type: ResourceType = attrs.field(
        converter=_resource_type,
        validator=bounds.instance(
            ResourceType,
            "topic, group, cluster, transactional_id, delegation_token or user",
        ),
    )
    name: str = attrs.field(default=CLUSTER_NAME, validator=bounds.text())
    prefix: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())
    deny: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())
    host: str = attrs.field(default=ANY, kw_only=True, validator=_TEXT)
    principal_type: str = attrs.field(default=_USER, kw_only=True, validator=_TEXT)

    def __repr__(self) -> str:
        may = "may not" if self.deny else "may"
        name = f"{self.name}..." if self.prefix else self.name
        who = self.user if self.principal_type == _USER else self.principal
        here = "" if self.host == ANY else f" from {self.host}"
        what = f"{self.operation.name} {self.resource_type.name} {name}"
        return f"Acl({who} {may} {what}{here})"

    @property
    def principal(self) -> str:
        """The principal as in requests: ``User:alice``."""
        return f"{self.principal_type}:{self.user}"

    def is_about(self, user: str, host: str) -> bool:
        """Whether the rule is about a client, whatever it wants."""
        return (
            self.principal_type == _USER and self.user in (ANY, user) and self.host in (ANY, host)
        )


def rules(given: object) -> Any:
    """A converter: rules as a tuple, or None.

    Raises:
        ConfigError: something else was given.
    """
    if given is None:
        return None
    if not isinstance(given, Collection) or not all(isinstance(one, Acl) for one in given):
        raise ConfigError("acls", given, "it must be a list of Acl")
    return tuple(given)


_Key = tuple[ResourceType, str | None]
"""A type, and the name of a resource or None for all rules about prefixes."""


def _key(acl: Acl) -> _Key:
    return acl.resource_type, None if acl.prefix else acl.name


def _covered(acl: Acl, denied: Collection[tuple[str, bool]]) -> bool:
    """Whether denials leave nothing of a permission."""
    if not acl.prefix and (acl.name, False) in denied:
        return True
    return any(prefix and acl.name.startswith(name) for name, prefix in denied)


@final
class Authorizer:
    """The rules of a running cluster.

    Args:
        acls: the rules at the start; None allows everything to everybody.
        super_users: users that may do everything, as Kafka's `super.users`.
    """

    def __init__(self, acls: Collection[Acl] | None, super_users: Collection[str]) -> None:
        self.enabled: Final = acls is not None
        self._super_users = frozenset(super_users)
        self._acls: Final[dict[Acl, None]] = {}
        self._by_name: Final[dict[_Key, dict[Acl, None]]] = {}
        """The rules once more, so that a decision does not look at all of them."""
        for acl in acls or ():
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        """All rules, the oldest first."""
        return iter(tuple(self._acls))

    def add(self, acl: Acl) -> None:
        """Add a rule; one that exists remains."""
        self._acls[acl] = None
        self._by_name.setdefault(_key(acl), {})[acl] = None

    def remove(self, acl: Acl) -> bool:
        """Remove a rule; return whether there was one."""
        if acl not in self._acls:
            return False
        del self._acls[acl]
        same = self._by_name[_key(acl)]
        del same[acl]
        if not same:
            del self._by_name[_key(acl)]
        return True

    def about(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """The rules about a resource, whosoever uses it."""
        for literal in dict.fromkeys((name, ANY)):
            yield from self._by_name.get((resource_type, literal), ())
        for acl in self._by_name.get((resource_type, None), ()):
            if name.startswith(acl.name):
                yield acl

    def allows(
        self, user: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a user may do this, with a client at this address."""
        if not self.enabled or user in self._super_users:
            return True
        found = [acl for acl in self.about(resource_type, name) if acl.is_about(user, host)]
        forbidding = (Operation.ALL, operation)
        if any(acl.deny and acl.operation in forbidding for acl in found):
            return False
        permitting = {*forbidding, *_IMPLIED_BY.get(operation, ())}
        return any(not acl.deny and acl.operation in permitting for acl in found)

    def allows_somewhere(
        self, user: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether a user may do this with any resource of a type, whether it exists or not.

        Source: Kafka's ``Authorizer.authorizeByResourceType`` (KIP-679).
        """
        if not self.enabled or user in self._super_users:
            return True
        found = [
            acl
            for acl in self._acls
            if acl.resource_type is resource_type
            and acl.operation in (Operation.ALL, operation)
            and acl.is_about(user, host)
        ]
        denied = {(acl.name, acl.prefix) for acl in found if acl.deny}
        if (ANY, False) in denied:
            return False
        return any(
            not acl.deny and ((acl.name, acl.prefix) == (ANY, False) or not _covered(acl, denied))
            for acl in found
        )
