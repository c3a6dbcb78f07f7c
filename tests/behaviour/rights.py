"""What the users of a secured Kafka may do."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

ANY: Final = "*"
_ANYTHING: Final[Any] = None  # the stubs do not know that it is allowed
_EVERY: Final = AclBindingFilter(
    ResourceType.ANY,
    _ANYTHING,
    ResourcePatternType.ANY,
    _ANYTHING,
    _ANYTHING,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
_PAUSE: Final = 0.02
_PATIENCE: Final = 150.0


def right(
    kind: ResourceType,
    resource: str,
    user: str,
    operation: AclOperation = AclOperation.READ,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """A user's right to a topic or a group; ``ANY`` stands for all resources, or all users."""
    literal = ResourcePatternType.LITERAL
    return AclBinding(kind, resource, literal, f"User:{user}", ANY, operation, permission)


EVERYONE_READS: Final = (
    right(ResourceType.TOPIC, ANY, ANY),
    right(ResourceType.GROUP, ANY, ANY),
)


def grant(bootstrap_servers: str, *rights: AclBinding) -> None:
    """Give these rights; returns when they hold.

    Kafka answers once its controller has written them; the broker learns of them after that.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for given in admin.create_acls(list(rights)).values():
        given.result(_PATIENCE)
    deadline = time.monotonic() + _PATIENCE
    while not set(rights) <= set(admin.describe_acls(_EVERY).result(_PATIENCE)):
        assert time.monotonic() < deadline, "the broker does not know the rights"
        time.sleep(_PAUSE)
