"""DescribeAcls, CreateAcls and DeleteAcls: the rules of access, for admin clients.

Without rules of access (``BrokerSecurity.acls``) they are answered SECURITY_DISABLED. A request
with the number 0 for a type is not answered, and its connection closes.

Source: KIP-140; Kafka's ``AclApis``, ``AclControlManager``, ``DescribeAclsResponse``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.handlers.unsupported import without_authorizer
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acl_filters import (
    EVERY,
    AclFilter,
    PatternType,
    PermissionType,
    UnknownNumberError,
    member,
    member_or_any,
    pattern_type,
    permission_type,
)
from kgroup.broker.security.acls import CLUSTER_NAME, Acl, Authorizer, Operation, ResourceType
from kgroup.error_codes import ErrorCode
from kgroup.errors import ConfigError

_NOTHING: Final = 0
_FILTERED: Final = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
_CREATED: Final = ("resource_type", "resource_pattern_type", "operation", "permission_type")
_LONGEST_TEXT: Final = 1024
"""Bytes of a principal, a host or a name. Rules stay in memory, and responses list many."""
_SUCCESS: Final = {"error_code": ErrorCode.NONE, "error_message": ""}
_DELETED: Final = {"error_code": ErrorCode.NONE, "error_message": None}
"""Of these, Kafka's message is null."""


async def describe_acls(context: RequestContext) -> ResponseFields:
    """Answer DescribeAcls."""
    authorizer = context.cluster.security.authorizer
    if not authorizer.enabled:
        return await without_authorizer(context)
    _refuse_nothing([context.request], _FILTERED)
    try:
        found = await _matching(context, tuple(authorizer), _filter(context.request))
    except UnknownNumberError:
        found = []
    resources: dict[tuple[ResourceType, str, bool], list[Acl]] = {}
    async for acl in context.work.each(found):
        resources.setdefault((acl.resource_type, acl.name, acl.prefix), []).append(acl)
    return {
        **_SUCCESS,
        "resources": [_resource(acls) async for acls in context.work.each(resources.values())],
    }


async def create_acls(context: RequestContext) -> ResponseFields:
    """Answer CreateAcls: rules that are wrong are refused, the others added."""
    authorizer = context.cluster.security.authorizer
    if not authorizer.enabled:
        return await without_authorizer(context)
    _refuse_nothing(context.request.creations, _CREATED)
    if any(_is_open(creation) for creation in context.request.creations):
        return ERROR_RESPONSES[context.api](context.request, ErrorCode.UNKNOWN_SERVER_ERROR)
    results: list[ResponseFields] = []
    async for creation in context.work.each(context.request.creations):
        try:
            _add(authorizer, _rule(creation), context.cluster.settings.max_acls)
        except RequestError as error:
            results.append({"error_code": error.code, "error_message": error.message})
        else:
            results.append(_SUCCESS)
    return {"results": results}


async def delete_acls(context: RequestContext) -> ResponseFields:
    """Answer DeleteAcls: a rule that several filters mean is in the result of each."""
    authorizer = context.cluster.security.authorizer
    if not authorizer.enabled:
        return await without_authorizer(context)
    _refuse_nothing(context.request.filters, _FILTERED)
    results: list[ResponseFields] = []
    removed: set[Acl] = set()
    acls = tuple(authorizer)
    async for one in context.work.each(context.request.filters):
        try:
            found = await _matching(context, acls, _filter(one))
        except UnknownNumberError as error:
            unknown = "patternFilter" if "type_filter" in str(error) else "entryFilter"
            refusal = {"error_message": f"Unknown {unknown}.", "matching_acls": ()}
            results.append({"error_code": ErrorCode.INVALID_REQUEST, **refusal})
        else:
            removed.update(found)
            results.append({**_DELETED, "matching_acls": [_deleted(acl) for acl in found]})
    for acl in removed:
        authorizer.remove(acl)
    return {"filter_results": results}


def _is_open(creation: Any) -> bool:
    """Whether a rule has a number that only filters may have; Kafka fails on it."""
    return creation.resource_pattern_type == PatternType.MATCH.value or any(
        getattr(creation, field) == EVERY for field in _CREATED
    )


def _refuse_nothing(items: Iterable[Any], fields: Iterable[str]) -> None:
    """Close the connection, as Kafka does, if a number is 0."""
    if any(getattr(item, field) == _NOTHING for item in items for field in fields):
        raise ConnectionAbortedError("a request about ACLs has the number 0 for a type")


async def _matching(context: RequestContext, acls: Iterable[Acl], wanted: AclFilter) -> list[Acl]:
    """The rules that a filter means; they count as items of the response.

    Raises:
        RequestError: the response would have too many.
    """
    found = []
    async for acl in context.work.each(acls):
        if wanted.matches(acl):
            await context.work.include(1)
            await context.work.include_bytes(len(acl.principal) + len(acl.host) + len(acl.name))
            found.append(acl)
    return found


def _add(authorizer: Authorizer, acl: Acl, most: int) -> None:
    """Add a rule that a client wants.

    Raises:
        RequestError: there are too many.
    """
    if len(authorizer) >= most and acl not in authorizer:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"there are {most} rules of access (kgroup.max.acls)"
        )
    authorizer.add(acl)


def _filter(given: Any) -> AclFilter:
    return AclFilter(
        resource_type=member_or_any(
            ResourceType, given.resource_type_filter, "resource_type_filter"
        ),
        name=given.resource_name_filter,
        pattern_type=member(PatternType, given.pattern_type_filter, "pattern_type_filter"),
        principal=given.principal_filter,
        host=given.host_filter,
        operation=member_or_any(Operation, given.operation, "operation"),
        permission_type=member_or_any(PermissionType, given.permission_type, "permission_type"),
    )


def _rule(given: Any) -> Acl:
    """The rule that a client wants to create.

    Raises:
        RequestError: it is wrong.
    """
    cluster = given.resource_type == ResourceType.CLUSTER.value
    if cluster and given.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not given.resource_name:
        raise _invalid("Invalid empty resource name")
    for text in (given.resource_name, given.principal, given.host):
        if len(text.encode()) > _LONGEST_TEXT:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"a text of a rule has {len(text)} characters; {_LONGEST_TEXT} bytes are allowed",
            )
    try:
        resource_type = member(ResourceType, given.resource_type, "resourceType")
        pattern = member(PatternType, given.resource_pattern_type, "patternType")
        operation = member(Operation, given.operation, "operation")
        permission = member(PermissionType, given.permission_type, "permissionType")
    except UnknownNumberError as error:
        raise _invalid(f"Invalid {error} UNKNOWN") from None
    principal_type, colon, user = given.principal.partition(":")
    if not colon:
        raise _invalid(
            f"Could not parse principal from `{given.principal}` (no colon is present separating"
            " the principal type from the principal name)"
        )
    try:
        return Acl(
            user,
            operation,
            resource_type,
            given.resource_name,
            prefix=pattern is PatternType.PREFIXED,
            deny=permission is PermissionType.DENY,
            host=given.host,
            principal_type=principal_type,
        )
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)


def _resource(acls: list[Acl]) -> ResponseFields:
    (first, *_) = acls
    return {
        "resource_type": first.resource_type.value,
        "resource_name": first.name,
        "pattern_type": pattern_type(first).value,
        "acls": [_entry(acl) for acl in acls],
    }


def _entry(acl: Acl) -> ResponseFields:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.value,
        "permission_type": permission_type(acl).value,
    }


def _deleted(acl: Acl) -> ResponseFields:
    return {
        **_DELETED,
        "resource_type": acl.resource_type.value,
        "resource_name": acl.name,
        "pattern_type": pattern_type(acl).value,
        **_entry(acl),
    }
