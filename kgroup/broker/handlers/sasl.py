"""SaslHandshake and SaslAuthenticate: the connection's ``LoginSession`` decides.

On a listener without logins both are answered ILLEGAL_SASL_STATE, as in Kafka. Failures are
answered late, so that passwords cannot be tried quickly.

Source: Kafka's ``SaslServerAuthenticator``, ``KafkaApis.handleSaslHandshakeRequest``.
"""

from __future__ import annotations

from typing import Final

import trio

from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.request_context import RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.session import LoginSession
from kgroup.error_codes import ErrorCode

_FAILURE_DELAY: Final = 0.1
"""Seconds; the default of connection.failed.authentication.delay.ms."""
_UNFRAMED: Final = 0
"""After this version of SaslHandshake messages come without a request around them."""


async def sasl_handshake(context: RequestContext) -> ResponseFields:
    """Answer SaslHandshake."""
    login = context.login
    if login is None:
        return ERROR_RESPONSES[context.api](context.request, ErrorCode.ILLEGAL_SASL_STATE)
    mechanism, now = context.request.mechanism, trio.current_time()
    answer = login.handshake(mechanism, now, framed=context.version != _UNFRAMED)
    if answer is None:
        raise ConnectionAbortedError("a login may not be renewed by an unknown mechanism")
    return await _delayed(answer)


async def sasl_authenticate(context: RequestContext) -> ResponseFields:
    """Answer SaslAuthenticate."""
    login = context.login
    if login is None:
        return ERROR_RESPONSES[context.api](context.request, ErrorCode.ILLEGAL_SASL_STATE)
    answer = login.authenticate(context.request.auth_bytes, trio.current_time())
    if answer is None:
        raise ConnectionAbortedError("a login may not be renewed by another mechanism")
    return await _delayed(answer)


async def unframed(login: LoginSession, message: bytes) -> bytes:
    """Answer a message that came without a request; the answer has none either."""
    answer = login.authenticate(message, trio.current_time())
    if answer is None or answer["error_code"]:
        await trio.sleep(_FAILURE_DELAY)
        raise ConnectionAbortedError("a login without requests was refused")
    return bytes(answer["auth_bytes"])


async def _delayed(answer: ResponseFields) -> ResponseFields:
    if answer["error_code"]:
        await trio.sleep(_FAILURE_DELAY)
    return answer
