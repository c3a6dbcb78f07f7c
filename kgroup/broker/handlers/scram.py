"""DescribeUserScramCredentials and AlterUserScramCredentials: what proves the users' passwords.

A client that changes a password sends what proves it, and never the password. So a user whose
password is changed in this way logs in by the new one with SCRAM, and by the old one with PLAIN, as
in Kafka, whose users of PLAIN are in its configuration.

Source: KIP-554; Kafka's ``ScramControlManager``, ``ScramImage``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError, shortened
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.users import ITERATIONS, Users, Verifier
from kgroup.error_codes import ErrorCode
from kgroup.security.settings import SaslMechanism

_NUMBERS: Final = {1: SaslMechanism.SCRAM_SHA_256, 2: SaslMechanism.SCRAM_SHA_512}
_MOST_ITERATIONS: Final = 16384
_LONGEST_TEXT: Final = 1024
"""Bytes of a user's name, a salt or a salted password; the last has 32 or 64, and is hashed."""


async def describe_user_scram_credentials(context: RequestContext) -> ResponseFields:
    """Answer DescribeUserScramCredentials: each user once, without the credentials themselves."""
    users = context.cluster.security.users
    times = Counter(user.name for user in context.request.users or ())
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [
            await _described(context, name, times[name])
            async for name in context.work.each(tuple(times or users.with_verifiers()))
        ],
    }


async def _described(context: RequestContext, name: str, times: int) -> ResponseFields:
    users = context.cluster.security.users
    infos = [
        {"mechanism": number, "iterations": verifier.iterations}
        for number, mechanism in _NUMBERS.items()
        if (verifier := users.verifier(name, mechanism)) is not None
    ]
    code, message = ErrorCode.NONE, None
    if times > 1:
        code, infos = ErrorCode.DUPLICATE_RESOURCE, []
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    await context.work.include(1 + len(infos))
    await context.work.include_bytes(len(name))
    return {
        "user": name,
        "error_code": code,
        "error_message": message and shortened(message),
        "credential_infos": infos,
    }


async def alter_user_scram_credentials(context: RequestContext) -> ResponseFields:
    """Answer AlterUserScramCredentials: deletions, then new verifiers; each user once."""
    users, most = context.cluster.security.users, context.cluster.settings.max_scram_users
    changes = [*context.request.deletions, *context.request.upsertions]
    times = Counter(change.name for change in changes)
    results: dict[str, ResponseFields] = {}
    async for change in context.work.each(changes):
        if change.name not in results:
            results[change.name] = _altered(users, change, times[change.name], most)
    return {"results": list(results.values())}


def _altered(users: Users, change: Any, times: int, most: int) -> ResponseFields:
    code, message = ErrorCode.NONE, None
    try:
        _alter(users, change, times, most)
    except RequestError as error:
        code, message = error.code, error.message
    return {"user": change.name, "error_code": code, "error_message": message}


def _alter(users: Users, change: Any, times: int, most: int) -> None:
    """Change one credential.

    Raises:
        RequestError: it cannot be changed so, the request changes the user twice, or there are
            too many users.
    """
    mechanism = _NUMBERS.get(change.mechanism)
    if not change.name:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    deletes = not hasattr(change, "iterations")
    if deletes and users.verifier(change.name, mechanism) is None:
        raise RequestError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    if not deletes and change.iterations < ITERATIONS:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if not deletes and change.iterations > _MOST_ITERATIONS:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if times > 1:
        raise RequestError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if not deletes and not change.salted_password:
        # Java's HMAC takes no empty key.
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if deletes:
        users.remove_verifier(change.name, mechanism)
    else:
        _check_size(users, change, most)
        verifier = Verifier.of(mechanism, change.salted_password, change.salt, change.iterations)
        users.put_verifier(change.name, verifier)


def _check_size(users: Users, change: Any, most: int) -> None:
    """Check that a new credential does not take too much memory.

    Raises:
        RequestError: it does, or it would be that of one user too many.
    """
    if max(map(len, (change.name.encode(), change.salt, change.salted_password))) > _LONGEST_TEXT:
        raise RequestError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a name, a salt and a salted password have at most {_LONGEST_TEXT} bytes each",
        )
    names = users.with_verifiers()
    if len(names) >= most and change.name not in names:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"there are {most} users with SCRAM passwords (kgroup.max.scram.users)",
        )
