"""kgroup: a Kafka consumer group whose generations are values you hold.

What users import; nobody inside does. See README.md for the fifteen lines to start with.
"""

from kgroup.config import GroupConfig
from kgroup.errors import (
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

__all__ = (
    "Assignment",
    "Assignor",
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
