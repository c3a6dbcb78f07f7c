"""Access control: rules, and whether they allow an operation. Decisions without I/O.

Source: KIP-11, KIP-290 (prefixes); Kafka's ``AclOperation``, ``StandardAuthorizer``.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
_ANY_NAME: Final = "*"
_ANY_USER: Final = "*"


@final
class ResourceType(enum.Enum):
    """What a rule is about; the values are Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


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
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> those whose permission includes it; a denial includes nothing else."""


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
    """

    user: str = attrs.field(validator=bounds.text())
    operation: Operation = attrs.field(
        converter=_operation, validator=bounds.instance(Operation, "an AclOperation's name")
    )
    resource_type: ResourceType = attrs.field(
        converter=_resource_type,
        validator=bounds.instance(ResourceType, "topic, group, cluster or transactional_id"),
    )
    name: str = attrs.field(default=CLUSTER_NAME, validator=bounds.text())
    prefix: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())
    deny: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())

    def __repr__(self) -> str:
        may = "may not" if self.deny else "may"
        name = f"{self.name}..." if self.prefix else self.name
        return f"Acl({self.user} {may} {self.operation.name} {self.resource_type.name} {name})"

    def matches(self, user: str, resource_type: ResourceType, name: str) -> bool:
        """Whether the rule is about this user and resource."""
        if self.resource_type is not resource_type or self.user not in (_ANY_USER, user):
            return False
        if self.prefix:
            return name.startswith(self.name)
        return self.name in (_ANY_NAME, name)


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
        self.acls: Final = dict.fromkeys(acls or ())

    def allows(
        self, user: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a user may do this."""
        if not self.enabled or user in self._super_users:
            return True
        found = [acl for acl in self.acls if acl.matches(user, resource_type, name)]
        forbidding = (Operation.ALL, operation)
        if any(acl.deny and acl.operation in forbidding for acl in found):
            return False
        permitting = {*forbidding, *_IMPLIED_BY.get(operation, ())}
        return any(not acl.deny and acl.operation in permitting for acl in found)
