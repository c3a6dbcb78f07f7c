from . import (
    aio as aio,
    errors as errors,
    events as events,
    health as health,
    monitors as monitors,
    threaded as threaded,
)
from .config import GroupConfig as GroupConfig
from .dead_letters import DeadLetters as DeadLetters
from .errors import (
    ArgumentError as ArgumentError,
    AssignorTimeoutError as AssignorTimeoutError,
    AuthenticationError as AuthenticationError,
    AuthorizationError as AuthorizationError,
    BrokerError as BrokerError,
    CommitFailedError as CommitFailedError,
    CommitUnknownError as CommitUnknownError,
    ConfigError as ConfigError,
    ConnectionLostError as ConnectionLostError,
    DeadLetterError as DeadLetterError,
    FatalGroupError as FatalGroupError,
    FencedInstanceError as FencedInstanceError,
    FetchError as FetchError,
    GroupClosedError as GroupClosedError,
    GroupFullError as GroupFullError,
    InconsistentProtocolError as InconsistentProtocolError,
    InvalidAssignmentError as InvalidAssignmentError,
    KgroupError as KgroupError,
    LeaseExpiredError as LeaseExpiredError,
    NoOffsetError as NoOffsetError,
    NotOwnedError as NotOwnedError,
    OffsetBehindCommitError as OffsetBehindCommitError,
    OffsetBeyondReadError as OffsetBeyondReadError,
    OffsetOutOfRangeError as OffsetOutOfRangeError,
    ProtocolError as ProtocolError,
    RequestTimeoutError as RequestTimeoutError,
    StaleGenerationError as StaleGenerationError,
    StartupTimeoutError as StartupTimeoutError,
    TransportError as TransportError,
    UnsupportedVersionError as UnsupportedVersionError,
    UsageError as UsageError,
)
from .generation.generation import Generation as Generation
from .generation.record_stream import RecordStream as RecordStream
from .generation.states import State as State
from .group import ConsumerGroup as ConsumerGroup
from .interfaces import Assignor as Assignor, Batch as Batch, Message as Message
from .record_headers import headers_of as headers_of
from .retries import retrying as retrying
from .security.credentials import Credentials as Credentials, Token as Token
from .security.oidc import OidcClientCredentials as OidcClientCredentials
from .security.settings import Security as Security
from .types import (
    Assignment as Assignment,
    AutoOffsetReset as AutoOffsetReset,
    Cause as Cause,
    End as End,
    IsolationLevel as IsolationLevel,
    MemberSubscription as MemberSubscription,
    OffsetAndMetadata as OffsetAndMetadata,
    TopicInfo as TopicInfo,
    TopicPartition as TopicPartition,
)
from .worker import run as run, serve as serve

__version__: str
