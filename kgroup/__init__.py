"""kgroup: a Kafka consumer group whose generations are values you hold.

These are the names that programs import; no module of kgroup imports them from here. The quick
start of README.md is a complete program. The modules are imported on first use (``kgroup.lazy``).
"""

import typing

import kgroup.lazy

if typing.TYPE_CHECKING:
    from kgroup.config import GroupConfig
    from kgroup.dead_letters import DeadLetters
    from kgroup.errors import (
        ArgumentError,
        AssignorTimeoutError,
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        CommitFailedError,
        CommitUnknownError,
        ConfigError,
        ConnectionLostError,
        DeadLetterError,
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
        OffsetBehindCommitError,
        OffsetBeyondReadError,
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
    from kgroup.interfaces import Assignor, Batch, Message
    from kgroup.retries import retrying
    from kgroup.security.credentials import Credentials, Token
    from kgroup.security.oidc import OidcClientCredentials
    from kgroup.security.settings import Security
    from kgroup.types import (
        Assignment,
        AutoOffsetReset,
        Cause,
        End,
        IsolationLevel,
        MemberSubscription,
        OffsetAndMetadata,
        TopicInfo,
        TopicPartition,
    )
    from kgroup.worker import run, serve

__all__ = (
    "ArgumentError",
    "Assignment",
    "Assignor",
    "AssignorTimeoutError",
    "AuthenticationError",
    "AuthorizationError",
    "AutoOffsetReset",
    "Batch",
    "BrokerError",
    "Cause",
    "CommitFailedError",
    "CommitUnknownError",
    "ConfigError",
    "ConnectionLostError",
    "ConsumerGroup",
    "Credentials",
    "DeadLetterError",
    "DeadLetters",
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
    "OffsetBehindCommitError",
    "OffsetBeyondReadError",
    "OffsetOutOfRangeError",
    "OidcClientCredentials",
    "ProtocolError",
    "RecordStream",
    "RequestTimeoutError",
    "Security",
    "StaleGenerationError",
    "State",
    "Token",
    "TopicInfo",
    "TopicPartition",
    "TransportError",
    "UnsupportedVersionError",
    "UsageError",
    "retrying",
    "run",
    "serve",
)

if not typing.TYPE_CHECKING:  # a type checker would take every name for one of kgroup
    __getattr__, __dir__ = kgroup.lazy.lazy_names(
        __name__,
        __all__,
        (
            "types",
            "errors",
            "interfaces",
            "security.credentials",
            "security.oidc",
            "security.settings",
            "config",
            "generation.states",
            "generation.streams",
            "generation.generation",
            "group",
            "dead_letters",
            "worker",
            "retries",
        ),
    )
