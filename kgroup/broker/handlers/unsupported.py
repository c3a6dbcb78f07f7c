"""What Kafka offers and then refuses, as a cluster does that is set up like this one.

No authorizer: the calls about ACLs are answered SECURITY_DISABLED. ``group.version`` 0: the calls
of the new group protocol (KIP-848) are answered UNSUPPORTED_VERSION. They are offered all the
same, as by Kafka: a client that is told nothing of them (librdkafka) would look for another
coordinator for ever, one that is refused says why.

Source: Kafka's ``AclApis``, ``KafkaApis.handleConsumerGroupHeartbeat``.
"""

from __future__ import annotations

from typing import Final

from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.request_context import RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode

_NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"
_EACH: Final = {"create_acls": "results", "delete_acls": "filter_results"}
"""Where the answers are that have one entry for each thing asked."""


async def without_authorizer(context: RequestContext) -> ResponseFields:
    """Refuse a call about ACLs, in Kafka's words: librdkafka takes no text for no error."""
    refused = ERROR_RESPONSES[context.api](context.request, ErrorCode.SECURITY_DISABLED)
    told = {"error_message": _NO_AUTHORIZER}
    entries = _EACH.get(context.api)
    if entries is None:
        return {**refused, **told}
    return {entries: [{**one, **told} for one in refused[entries]]}


async def without_new_groups(context: RequestContext) -> ResponseFields:
    """Refuse a call of the new group protocol."""
    return ERROR_RESPONSES[context.api](context.request, ErrorCode.UNSUPPORTED_VERSION)
