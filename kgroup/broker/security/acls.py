"""Access control: rules, and whether they allow an operation. Decisions without I/O.

Source: KIP-11, KIP-290 (prefixes); Kafka's ``AclOperation``, ``StandardAuthorizer``.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, final

import attrs
from attrs import validators

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.types import text_fault

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
_NO_NAME: Final = ""
ANY: Final = "*"
"""As a name, a user or a host of a rule: all of them."""
_MOST: Final = 1_000_000
"""The most rules that a broker is made with."""
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


def _check_name(acl: Acl, field: attrs.Attribute[str], value: object) -> None:
    if value == _NO_NAME and acl.resource_type is not ResourceType.CLUSTER:
        raise ConfigError(field.name, value, "only a rule about the cluster needs no name")


@final
@attrs.frozen
class Acl:
    """One rule.

    >>> Acl("alice", "read", "topic", "orders")
    Acl(alice may READ TOPIC orders)

    Attributes:
        user: the name of a user, or ``*`` for all users.
        operation: an `Operation` or its name. READ, WRITE, DELETE and ALTER include DESCRIBE.
        resource_type: a `ResourceType` or its name.
        name: of the resource, or ``*`` for all. Only a rule about the cluster needs none; the
            cluster is ``kafka-cluster``.
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
    name: str = attrs.field(validator=validators.and_(_check_name, bounds.text()))
    prefix: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())
    deny: bool = attrs.field(default=False, kw_only=True, validator=bounds.flag())
    host: str = attrs.field(default=ANY, kw_only=True, validator=_TEXT)
    principal_type: str = attrs.field(default=_USER, kw_only=True, validator=_TEXT)

    @name.default
    def _default_name(self) -> str:
        return CLUSTER_NAME if self.resource_type is ResourceType.CLUSTER else _NO_NAME

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
    listed = bounds.listed("acls", given, _MOST) if isinstance(given, Collection) else None
    if not isinstance(listed, tuple) or not all(isinstance(one, Acl) for one in listed):
        raise ConfigError("acls", given, "it must be a list of Acl")
    return listed


_Pattern = tuple[ResourceType, str, bool]
"""A type, a name, and whether it is only the beginning of names."""
_Client = tuple[str, str]
"""A principal and a host."""
_PREFIXES_OF_A_STEP: Final = 20


def _pattern(acl: Acl) -> _Pattern:
    return acl.resource_type, acl.name, acl.prefix


@final
class Authorizer:
    """The rules of a running cluster.

    Args:
        acls: the rules at the start; None allows everything to all users.
        super_users: users that may do everything, as Kafka's `super.users`.
    """

    def __init__(self, acls: Collection[Acl] | None, super_users: Collection[str]) -> None:
        self.enabled: Final = acls is not None
        self._super_users = frozenset(super_users)
        self._acls: Final[dict[Acl, None]] = {}
        self._by_pattern: Final[dict[_Pattern, dict[_Client, dict[Acl, None]]]] = {}
        """The rules once more, so that a decision does not look at all of them."""
        self._lengths: Final[dict[ResourceType, Counter[int]]] = {}
        """How many prefixes there are of each length, by type."""
        for acl in acls or ():
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        """All rules, the oldest first."""
        return iter(tuple(self._acls))

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        """Whether there is this rule."""
        return acl in self._acls

    def add(self, acl: Acl) -> None:
        """Add a rule; one that exists remains."""
        if acl in self._acls:
            return
        self._acls[acl] = None
        pattern = _pattern(acl)
        if acl.prefix and pattern not in self._by_pattern:
            self._lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1
        same = self._by_pattern.setdefault(pattern, {})
        same.setdefault((acl.principal, acl.host), {})[acl] = None

    def remove(self, acl: Acl) -> bool:
        """Remove a rule; return whether there was one."""
        if acl not in self._acls:
            return False
        del self._acls[acl]
        pattern, client = _pattern(acl), (acl.principal, acl.host)
        same = self._by_pattern[pattern]
        del same[client][acl]
        if not same[client]:
            del same[client]
        if not same:
            del self._by_pattern[pattern]
            if acl.prefix:
                lengths = self._lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]
        return True

    def steps(self, resource_type: ResourceType) -> int:
        """What a decision about a resource of a type costs, in steps of a request's work."""
        return 1 + len(self._lengths.get(resource_type, ())) // _PREFIXES_OF_A_STEP

    def _about(self, user: str, host: str, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """The rules about a resource and a client, whatever it wants."""
        patterns = [(resource_type, name, False), (resource_type, ANY, False)]
        lengths = self._lengths.get(resource_type, ())
        prefixes = (
            (resource_type, name[:length], True) for length in lengths if length <= len(name)
        )
        clients = [(f"{_USER}:{one}", where) for one in (ANY, user) for where in (ANY, host)]
        for pattern in (*patterns, *prefixes):
            by_client = self._by_pattern.get(pattern, {})
            for client in clients:
                yield from by_client.get(client, ())

    def allowed(
        self,
        user: str,
        host: str,
        operations: Collection[Operation],
        resource_type: ResourceType,
        name: str,
    ) -> frozenset[Operation]:
        """Those of some operations that a user may do, with a client at this address."""
        if not self.enabled or user in self._super_users:
            return frozenset(operations)
        found = tuple(self._about(user, host, resource_type, name))
        denied = {acl.operation for acl in found if acl.deny}
        permitted = {acl.operation for acl in found if not acl.deny}
        return frozenset(
            one
            for one in operations
            if denied.isdisjoint((Operation.ALL, one))
            and not permitted.isdisjoint((Operation.ALL, one, *_IMPLIED_BY.get(one, ())))
        )

    def allows(
        self, user: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a user may do this, with a client at this address."""
        return bool(self.allowed(user, host, (operation,), resource_type, name))

    def allows_somewhere(
        self, user: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether a user may do this with any resource of a type, whether it exists or not.

        Source: Kafka's ``Authorizer.authorizeByResourceType`` (KIP-679).
        """
        if not self.enabled or user in self._super_users:
            return True
        patterns = {
            (acl.name, not acl.deny, acl.prefix)
            for acl in self._acls
            if acl.resource_type is resource_type
            and acl.operation in (Operation.ALL, operation)
            and acl.is_about(user, host)
        }
        if (ANY, False, False) in patterns:
            return False
        if (ANY, True, False) in patterns:
            return True
        denied_prefix: str | None = None
        # In this order a denial comes before a permission of the same name, and the names that
        # begin with a denied prefix follow it directly.
        for name, permits, prefix in sorted(patterns):
            if denied_prefix is not None and name.startswith(denied_prefix):
                continue
            if permits and (prefix or (name, False, False) not in patterns):
                return True
            if prefix and not permits:
                denied_prefix = name
        return False
