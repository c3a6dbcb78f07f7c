"""Requests that are offered and then refused, as by a Kafka cluster with the same configuration.

Without rules of access, requests about ACLs are answered SECURITY_DISABLED. With ``group.version``
0, requests of the new group protocol (KIP-848) are answered UNSUPPORTED_VERSION. ApiVersions lists
them all the same, as in Kafka: without them librdkafka looks for another coordinator forever, with
them it reports the error.

Source: Kafka's ``AclApis``, ``KafkaApis.handleConsumerGroupHeartbeat``.
"""

from __future__ import annotations

from typing import Final

from kgroup.broker.error_responses import ERROR_RESPONSES, with_message
from kgroup.broker.request_context import RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode

_NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


async def without_authorizer(context: RequestContext) -> ResponseFields:
    """Refuse a request about ACLs with Kafka's text: to librdkafka, no text means success."""
    refused = ERROR_RESPONSES[context.api](context.request, ErrorCode.SECURITY_DISABLED)
    answer: ResponseFields = with_message(refused, _NO_AUTHORIZER)
    return answer


async def without_new_groups(context: RequestContext) -> ResponseFields:
    """Refuse a request of the new group protocol."""
    return ERROR_RESPONSES[context.api](context.request, ErrorCode.UNSUPPORTED_VERSION)
