"""What the users of a secured Kafka may do."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

ANY: Final = "*"
_PATIENCE: Final = 60.0


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
    """Give these rights."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for given in admin.create_acls(list(rights)).values():
        given.result(_PATIENCE)
