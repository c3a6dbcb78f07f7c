"""kgroup: a Kafka consumer group whose generations are values you hold.

What users import; nobody inside does. See README.md for the fifteen lines to start with.

Names are looked up in their modules when they are first asked for, see ``kgroup.lazy``.
"""

import typing

import kgroup.lazy

if typing.TYPE_CHECKING:
    from kgroup.config import GroupConfig
    from kgroup.errors import (
        AssignorTimeoutError,
        AuthorizationError,
        BrokerError,
        CommitFailedError,
        CommitUnknownError,
        ConfigError,
        ConnectionLostError,
        FatalGroupError,
        FencedInstanceError,
        FetchError,
        GroupClosedError,
        GroupFullError,
        InconsistentProtocolError,
        InvalidAssignmentError,
        KgroupError,
        LeaseExpiredError,
        NoOffsetError,
        NotOwnedError,
        OffsetBehindFloorError,
        OffsetOutOfRangeError,
        ProtocolError,
        RequestTimeoutError,
        StaleGenerationError,
        TransportError,
        UnsupportedVersionError,
        UsageError,
    )
    from kgroup.generation.generation import Generation
    from kgroup.generation.states import State
    from kgroup.generation.streams import RecordStream
    from kgroup.group import ConsumerGroup
    from kgroup.model import (
        Assignment,
        Cause,
        End,
        IsolationLevel,
        MemberSubscription,
        OffsetAndMetadata,
        OffsetReset,
        TopicInfo,
        TopicPartition,
    )
    from kgroup.protocols import Assignor, Batch, Message

_HOMES: typing.Final = {
    "GroupConfig": "kgroup.config",
    "AssignorTimeoutError": "kgroup.errors",
    "AuthorizationError": "kgroup.errors",
    "BrokerError": "kgroup.errors",
    "CommitFailedError": "kgroup.errors",
    "CommitUnknownError": "kgroup.errors",
    "ConfigError": "kgroup.errors",
    "ConnectionLostError": "kgroup.errors",
    "FatalGroupError": "kgroup.errors",
    "FencedInstanceError": "kgroup.errors",
    "FetchError": "kgroup.errors",
    "GroupClosedError": "kgroup.errors",
    "GroupFullError": "kgroup.errors",
    "InconsistentProtocolError": "kgroup.errors",
    "InvalidAssignmentError": "kgroup.errors",
    "KgroupError": "kgroup.errors",
    "LeaseExpiredError": "kgroup.errors",
    "NoOffsetError": "kgroup.errors",
    "NotOwnedError": "kgroup.errors",
    "OffsetBehindFloorError": "kgroup.errors",
    "OffsetOutOfRangeError": "kgroup.errors",
    "ProtocolError": "kgroup.errors",
    "RequestTimeoutError": "kgroup.errors",
    "StaleGenerationError": "kgroup.errors",
    "TransportError": "kgroup.errors",
    "UnsupportedVersionError": "kgroup.errors",
    "UsageError": "kgroup.errors",
    "Generation": "kgroup.generation.generation",
    "State": "kgroup.generation.states",
    "RecordStream": "kgroup.generation.streams",
    "ConsumerGroup": "kgroup.group",
    "Assignment": "kgroup.model",
    "Cause": "kgroup.model",
    "End": "kgroup.model",
    "IsolationLevel": "kgroup.model",
    "MemberSubscription": "kgroup.model",
    "OffsetAndMetadata": "kgroup.model",
    "OffsetReset": "kgroup.model",
    "TopicInfo": "kgroup.model",
    "TopicPartition": "kgroup.model",
    "Assignor": "kgroup.protocols",
    "Batch": "kgroup.protocols",
    "Message": "kgroup.protocols",
}

__getattr__, __dir__ = kgroup.lazy.lazily(__name__, _HOMES)

__all__ = (
    "Assignment",
    "Assignor",
    "AssignorTimeoutError",
    "AuthorizationError",
    "Batch",
    "BrokerError",
    "Cause",
    "CommitFailedError",
    "CommitUnknownError",
    "ConfigError",
    "ConnectionLostError",
    "ConsumerGroup",
    "End",
    "FatalGroupError",
    "FencedInstanceError",
    "FetchError",
    "Generation",
    "GroupClosedError",
    "GroupConfig",
    "GroupFullError",
    "InconsistentProtocolError",
    "InvalidAssignmentError",
    "IsolationLevel",
    "KgroupError",
    "LeaseExpiredError",
    "MemberSubscription",
    "Message",
    "NoOffsetError",
    "NotOwnedError",
    "OffsetAndMetadata",
    "OffsetBehindFloorError",
    "OffsetOutOfRangeError",
    "OffsetReset",
    "ProtocolError",
    "RecordStream",
    "RequestTimeoutError",
    "StaleGenerationError",
    "State",
    "TopicInfo",
    "TopicPartition",
    "TransportError",
    "UnsupportedVersionError",
    "UsageError",
)
