"""Which rules of access a request is about, and the numbers by which requests name them.

Source: KIP-140, KIP-290 (patterns); Kafka's ``ResourcePatternFilter``,
``AccessControlEntryFilter``.
"""

from __future__ import annotations

import enum
from typing import Final, TypeVar, final

import attrs

from kgroup.broker.security.acls import ANY, Acl, Operation, ResourceType

EVERY: Final = 1
"""The number that leaves a field of a filter open."""
_E = TypeVar("_E", bound=enum.Enum)


@final
class PatternType(enum.Enum):
    """How a filter's or a rule's name is meant; the values are Kafka's numbers."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@final
class PermissionType(enum.Enum):
    """What a rule does; the values are Kafka's numbers."""

    DENY = 2
    ALLOW = 3


class UnknownNumberError(ValueError):
    """A number without a meaning; the message is the name of its field."""


@final
@attrs.frozen(kw_only=True)
class AclFilter:
    """Which rules are meant; None means any.

    Attributes:
        resource_type: of the rules.
        name: of the resource. With MATCH, a resource's name: the rules that are about it.
        pattern_type: LITERAL and PREFIXED are about rules of this kind only.
        principal: as in requests, ``User:alice``.
        host: an address, or ``*`` for the rules about any address.
        operation: of the rules.
        permission_type: of the rules.
    """

    resource_type: ResourceType | None
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation | None
    permission_type: PermissionType | None

    def matches(self, acl: Acl) -> bool:
        """Whether a rule is meant."""
        wanted = (
            (self.resource_type, acl.resource_type),
            (self.principal, acl.principal),
            (self.host, acl.host),
            (self.operation, acl.operation),
            (self.permission_type, permission_type(acl)),
        )
        return all(one is None or one == other for one, other in wanted) and self._names(acl)

    def _names(self, acl: Acl) -> bool:
        exact = self.pattern_type in {PatternType.ANY, pattern_type(acl)}
        if not exact and self.pattern_type is not PatternType.MATCH:
            return False
        if self.name is None:
            return True
        if exact:
            return self.name == acl.name
        return self.name.startswith(acl.name) if acl.prefix else acl.name in {self.name, ANY}


def pattern_type(acl: Acl) -> PatternType:
    """How a rule's name is meant."""
    return PatternType.PREFIXED if acl.prefix else PatternType.LITERAL


def permission_type(acl: Acl) -> PermissionType:
    """What a rule does."""
    return PermissionType.DENY if acl.deny else PermissionType.ALLOW


def member(kind: type[_E], number: int, field: str) -> _E:
    """What a number means.

    Raises:
        UnknownNumberError: it means nothing.
    """
    try:
        return kind(number)
    except ValueError:
        raise UnknownNumberError(field) from None


def member_or_any(kind: type[_E], number: int, field: str) -> _E | None:
    """What a number of a filter means; None for any.

    Raises:
        UnknownNumberError: it means nothing.
    """
    return None if number == EVERY else member(kind, number, field)
