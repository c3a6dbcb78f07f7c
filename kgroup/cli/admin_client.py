"""``AdminConnection``: blocking requests to a cluster for commands, through librdkafka.

A request has one deadline. Until then an error that passes, such as a coordinator that moves, is
retried; a login that is refused ends the command at once, because librdkafka would retry it for
ever. What cannot be done is a ``ClusterError`` of one line, which says what was tried.

Not here: committed offsets of a group (``kgroup.cli.groups.committed`` says why).

Source: librdkafka 2.16's admin API; the error codes are Kafka's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar, final

import attrs
import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kgroup import bounds
from kgroup.cli.options import one_line, secrets_given
from kgroup.cli.own_connection import why_not_connected
from kgroup.cli.signals import run_whole
from kgroup.error_codes import code_name
from kgroup.errors import AuthenticationError
from kgroup.permissions import to_grant
from kgroup.security.credentials import Credentials, Token
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.secret import without_locals
from kgroup.security.settings import Security
from kgroup.types import IsolationLevel, TopicPartition
from kgroup.wire.librdkafka_login import login_settings, look_up
from kgroup.wire.librdkafka_texts import address_in, explained, text_of
from kgroup.wire.login_advice import CHECK_PASSWORD

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_OFFSET",
    "AdminConnection",
    "ClusterError",
    "Refusal",
    "as_librdkafka",
    "client_settings",
    "passes",
    "unanswered",
]

CLIENT_ID: Final = "kgroup-cli"
EARLIEST: Final = -2
LATEST: Final = -1
"""The first offset of a log, and its end, as ListOffsets requests them."""
NO_OFFSET: Final = -1
_POLL: Final = 0.05
"""Seconds between two calls of librdkafka's ``error_cb`` while a request is under way."""
_RETRY_PAUSE: Final = 0.2
_LEAST_TIMEOUT: Final = 0.1
"""Seconds of the shortest request; librdkafka refuses 0."""
_FIRST_ATTEMPT: Final = 0.25
"""The part of the time-out after which a request is sent once more. What any broker can answer, as
which broker is a coordinator, librdkafka may have sent to one that hangs."""
_NO_LEADER: Final = KafkaError._NOENT  # noqa: SLF001 # the names of librdkafka's own codes
"""None of the partitions of a ListOffsets has a leader. A client goes on to answer this from its
cache when they have one again."""
_TRANSIENT: Final = frozenset(
    {
        _NO_LEADER,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._TRANSPORT,  # noqa: SLF001 # the names of librdkafka's own codes
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)
"""Errors that pass: a broker that fails over, a coordinator that moves or loads."""
_TIMED_OUT: Final = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    }
)
_CONNECT_AGAIN: Final = _TIMED_OUT | {_NO_LEADER}
"""After these, what follows is sent on new connections."""
_NO_ANSWER: Final = _TIMED_OUT | {KafkaError._TRANSPORT}  # noqa: SLF001
_REFUSED_LOGIN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
_STATE: Final = re.compile(r" \(after \d+ms in state [^)]*\)")
"""librdkafka's remark on a connection, which says nothing to a user."""

T = TypeVar("T")
K = TypeVar("K")
_Send: TypeAlias = Callable[[AdminClient, Collection[K], float], Mapping[K, Future[T]]]


class ClusterError(Exception):
    """The cluster cannot do what a command needs; the text is one line, for the user."""


@final
class LoginRefusedError(ClusterError):
    """A broker refused the login or the TLS handshake."""


@final
@attrs.frozen
class Refusal:
    """A broker's error about one thing of a request: a group, a partition.

    Attributes:
        code: Kafka's number of the error; librdkafka's own are negative.
        text: librdkafka's sentence.
        outcome: what may have become of the thing all the same, for a change that may have been
            made.
    """

    code: int
    text: str
    outcome: str = ""

    @property
    def name(self) -> str:
        """Kafka's name of the error, or librdkafka's sentence for one of its own."""
        if self.code == _NO_LEADER:
            return code_name(KafkaError.LEADER_NOT_AVAILABLE)
        return code_name(self.code) if self.code >= 0 else self.text

    def explained(
        self, operation: str, *, topic: str = "", group: str = "", may_be_missing: bool = False
    ) -> str:
        """The error's name, and if a permission is missing, what to grant, and the outcome.

        Args:
            operation: what the request needs.
            topic: the topic that it is about.
            group: the group that it is about.
            may_be_missing: whether nothing shows that this one exists.
        """
        grant = to_grant(
            self.code, operation, topic=topic, group=group, may_be_missing=may_be_missing
        )
        return self.with_outcome(f"{self.name}: {grant}" if grant else self.name)

    def with_outcome(self, why: str) -> str:
        """A reason, and after it the outcome, if there is one."""
        return f"{why}; {self.outcome}" if self.outcome else why

    @classmethod
    def of(cls, error: KafkaError) -> Refusal:
        """The error as librdkafka reports it."""
        return cls(error.code(), one_line_of(error))


def one_line_of(error: KafkaError) -> str:
    """The sentence of an error, in one line; where librdkafka's own misleads, a better one."""
    return explained(_STATE.sub("", " ".join(text_of(error).split())))


@without_locals()
def client_settings(bootstrap_servers: str, security: Security) -> dict[str, Any]:
    """The settings of a client of librdkafka: its brokers, TLS and login.

    Raises:
        ClusterError: there is nothing to log in with, because the token's provider fails.
    """
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": CLIENT_ID,
        "log_level": 0,
        **librdkafka_settings(security),
        **login_settings(security, _look_up),
    }


def _look_up(security: Security) -> Token | Credentials:
    try:
        return run_whole(lambda: look_up(security))
    except AuthenticationError as error:
        raise ClusterError(one_line(error)) from error


@final
class ConnectionErrors:
    """The errors of a client's connections, as librdkafka reports them by ``error_cb``.

    Args:
        bootstrap_servers: the cluster.
        security: how connections are encrypted, and how the client logs in.
        timeout: the most seconds to find a reason that librdkafka does not report.
    """

    def __init__(self, bootstrap_servers: str, security: Security, timeout: float) -> None:
        self._servers = bootstrap_servers
        self._security = security
        self._timeout = timeout
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """The ``error_cb``; that all brokers are down says less than why one is."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last = error

    def raise_refusal(self) -> None:
        """Raise if a login was refused.

        Raises:
            LoginRefusedError: it was; a retry cannot help.
        """
        if self._last is not None and self._last.code() in _REFUSED_LOGIN:
            said = one_line_of(self._last)
            # A login is not repeated: librdkafka's text has what the broker said.
            found = self._found() if self._last.code() == KafkaError._SSL else ""  # noqa: SLF001
            text = f"the connection was refused: {found or said}{self._overridden()}"
            raise LoginRefusedError(text)

    def _overridden(self) -> str:
        """Which environment variables give what a refused login was made with."""
        assert self._last is not None  # a login was refused
        names = secrets_given("username", "password")
        if not names or CHECK_PASSWORD not in one_line_of(self._last):
            return ""
        return f" ({' and '.join(names)} of the environment took precedence over --config)"

    def reason(self) -> str:
        """Why there is no answer, as far as it can be found out; otherwise empty."""
        return self._found() or ("" if self._last is None else one_line_of(self._last))

    def _found(self) -> str:
        """What another connection to the broker with the last error fails with."""
        address = "" if self._last is None else address_in(one_line_of(self._last))
        addresses = [address] if address else bounds.servers(self._servers)
        return why_not_connected(addresses, self._security, self._timeout, CLIENT_ID)


@final
class AdminConnection:
    """Requests of a command to a cluster. All calls block, and none is for two threads at a time.

    Args:
        bootstrap_servers: the cluster.
        security: how connections are encrypted, and how the client logs in.
        timeout: seconds for each request, the connection included.

    Raises:
        ClusterError: no broker can be reached, or the login is refused.
    """

    def __init__(self, bootstrap_servers: str, security: Security, timeout: float) -> None:
        self._servers = bootstrap_servers
        self._security = security
        self._timeout = timeout
        self._errors = ConnectionErrors(bootstrap_servers, security, timeout)
        self.connect_again()
        # A first request whose failure can be explained: that of the topics blocks without errors.
        self.one(
            "the cluster", lambda client, limit: client.describe_cluster(request_timeout=limit)
        )

    def connect_again(self) -> None:
        """Send what follows on new connections, not behind a request that gets no answer.

        librdkafka keeps a connection for seconds after a request on it has timed out, and may send
        on it what any broker can answer, such as which broker is a coordinator.

        Raises:
            ClusterError: librdkafka refuses the settings.
        """
        try:
            self._client = self._new_client()
        except KafkaException as error:
            raise ClusterError(one_line_of(error.args[0])) from error

    @without_locals()
    def _new_client(self) -> AdminClient:
        settings = client_settings(self._servers, self._security)
        settings["error_cb"] = self._errors.note
        return AdminClient(settings)

    def topics(self) -> Mapping[str, int]:
        """The topics that the user may see, with their numbers of partitions.

        Raises:
            ClusterError: no broker answered.
        """
        return {
            name: len(topic.partitions)
            for name, topic in sorted(self._metadata().items())
            if topic.error is None
        }

    def topic_names(self) -> frozenset[str]:
        """The topics that there are, and that the user may see, whatever state they are in.

        Raises:
            ClusterError: no broker answered.
        """
        return frozenset(self._metadata())

    def _metadata(self) -> Mapping[str, Any]:
        for part in (_FIRST_ATTEMPT, 1 - _FIRST_ATTEMPT):
            try:
                return self._client.list_topics(timeout=self._timeout * part).topics
            except KafkaException as error:
                refusal = Refusal.of(error.args[0])
                self._client.poll(0)  # calls the error_cb with what may explain it
                self.connect_again()
        raise self._no_answer(refusal)

    def offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int | Refusal]:
        """The offset of each partition at `EARLIEST`, `LATEST` or a time.

        Args:
            wanted: the partitions; a time is in milliseconds since 1970.
            isolation: whether `LATEST` includes records of open transactions.

        Returns:
            for each partition its offset, `NO_OFFSET` if no record has the time or a later one, or
            the broker's error, or that its leader has not answered.

        Raises:
            ClusterError: no broker answered.
        """

        def send(
            client: AdminClient, partitions: Collection[TopicPartition], limit: float
        ) -> Mapping[TopicPartition, Future[Any]]:
            sent = client.list_offsets(
                {as_librdkafka(one): _SPECIFICATION(wanted[one]) for one in partitions},
                isolation_level=_ISOLATION[isolation],
                request_timeout=limit,
            )
            return {TopicPartition(one.topic, one.partition): it for one, it in sent.items()}

        found = self._each(send, wanted, again=True, read=_offset)
        return self._answered(found)

    def one(
        self, what: str, send: Callable[[AdminClient, float], Future[T]], *, of_all: bool = False
    ) -> T:
        """Wait for one request.

        Args:
            what: what is requested, for the error.
            send: sends the request by a client, given its time-out in seconds.
            of_all: whether all brokers have to answer it: then each has the whole time-out.

        Raises:
            ClusterError: a broker refused it, or none answered.
        """
        found: T | Refusal = self._answered(
            self._each(
                lambda client, _, limit: {what: send(client, limit)}, [what], again=not of_all
            )
        )[what]
        if isinstance(found, Refusal):
            raise ClusterError(f"{what} cannot be requested: {found.explained('DESCRIBE')}")
        return found

    def each(
        self,
        send: _Send[K, T],
        keys: Iterable[K],
    ) -> dict[K, T | Refusal]:
        """Wait for a request about several things, and repeat it for those whose error passes.

        Args:
            send: sends the request about some of them by a client, given its time-out in seconds.
            keys: the things.

        Returns:
            for each of them the answer, or the broker's error, or that its broker has not
            answered, sorted as the keys are.

        Raises:
            ClusterError: no broker answered.
        """
        return self._answered(self._each(send, keys, again=True))

    def _answered(self, found: Mapping[K, T | Refusal]) -> dict[K, T | Refusal]:
        """One broker that hangs hides nothing of what the others have answered."""
        silent = {key: answer for key, answer in found.items() if unanswered(answer)}
        if silent and len(silent) == len(found):
            raise self._no_answer(next(iter(silent.values())))
        text = f"no answer within {self._timeout:g} s"
        return {**found, **{key: attrs.evolve(one, text=text) for key, one in silent.items()}}

    def change(
        self,
        send: _Send[K, T],
        keys: Iterable[K],
        outcome: str,
        read: Callable[[T], T | Refusal] = lambda answer: answer,
    ) -> dict[K, T | Refusal]:
        """As `each`, for a request that changes something.

        Each thing has its own outcome. One that got no answer, or an error that passes, may have
        been changed all the same, and its `Refusal` says so: a coordinator whose replicas do not
        confirm a write in time has written it. If so, another attempt may be refused because of
        that, as a group is not found that was deleted.

        Args:
            send: as for `each`.
            keys: the things.
            outcome: what may have become of such a thing.
            read: returns what an answer says; a `Refusal` whose error passes is retried.

        Raises:
            ClusterError: the login was refused.
        """
        attempts: list[Collection[K]] = []

        def send_noted(
            client: AdminClient, left: Collection[K], limit: float
        ) -> Mapping[K, Future[T]]:
            attempts.append(left)
            return send(client, left, limit)

        found: dict[K, T | Refusal] = self._each(send_noted, keys, again=False, read=read)
        repeated = {key for left in attempts[1:] for key in left}
        reason = ""
        for key, answer in found.items():
            if unanswered(answer):
                reason = reason or str(self._no_answer(answer))
                found[key] = attrs.evolve(answer, text=reason, outcome=outcome)
            elif isinstance(answer, Refusal) and (key in repeated or passes(answer)):
                found[key] = attrs.evolve(answer, outcome=outcome)
        return found

    def _each(
        self,
        send: _Send[K, Any],
        keys: Iterable[K],
        *,
        again: bool,
        read: Callable[[Any], T | Refusal] = lambda answer: answer,
    ) -> dict[K, T | Refusal]:
        """Wait for a request about several things, and repeat it for those whose error passes.

        Args:
            send: as for `each`.
            keys: the things.
            again: whether a request without an answer is sent once more. Not one that changes
                something.
            read: returns what an answer says.
        """
        wanted = list(keys)
        found: dict[K, T | Refusal] = {}
        left = wanted
        deadline = time.monotonic() + self._timeout
        first = again
        while left:
            limit = max(_LEAST_TIMEOUT, deadline - time.monotonic())
            if first:
                limit = max(_LEAST_TIMEOUT, self._timeout * _FIRST_ATTEMPT)
            until = time.monotonic() + limit
            try:
                sent = send(self._client, left, limit)
            except KafkaException as error:
                raise ClusterError(one_line_of(error.args[0])) from error
            useless = False
            for key, future in sent.items():
                answer = self._wait(future, until)
                useless |= isinstance(answer, Refusal) and answer.code in _CONNECT_AGAIN
                # The last attempt has only what is left of the time: the answer before it counts.
                if not (_timed_out(answer) and passes(found.get(key))):
                    found[key] = answer if isinstance(answer, Refusal) else read(answer)
            left = [key for key in left if passes(found[key]) or (first and unanswered(found[key]))]
            first = False
            if useless:
                self.connect_again()
            if time.monotonic() + _RETRY_PAUSE > deadline:
                break
            if left:
                time.sleep(_RETRY_PAUSE)
        return {key: found[key] for key in wanted}

    def _wait(self, future: Future[Any], deadline: float) -> Any | Refusal:
        while True:
            self._client.poll(0)  # calls the error_cb
            self._errors.raise_refusal()
            try:
                return future.result(_POLL)
            except KafkaException as error:
                return Refusal.of(error.args[0])
            except TimeoutError:
                if time.monotonic() > deadline + _RETRY_PAUSE:
                    return Refusal(KafkaError._TIMED_OUT, "no answer")  # noqa: SLF001

    def _no_answer(self, refusal: Refusal) -> ClusterError:
        self._client.poll(0)
        self._errors.raise_refusal()
        reason = self._errors.reason() or refusal.text
        return ClusterError(f"no answer from {self._servers} within {self._timeout:g} s: {reason}")


_SPECIFICATION: Final[Any] = confluent_kafka.admin.OffsetSpec  # type: ignore[attr-defined]
"""Typed as any, because its class is abstract and makes objects of other classes."""
_ISOLATION: Final = {
    IsolationLevel.READ_COMMITTED: confluent_kafka.IsolationLevel.READ_COMMITTED,
    IsolationLevel.READ_UNCOMMITTED: confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
}


def as_librdkafka(
    partition: TopicPartition, offset: int | None = None
) -> confluent_kafka.TopicPartition:
    """A partition, and maybe an offset, as librdkafka's calls take it."""
    if offset is None:
        return confluent_kafka.TopicPartition(partition.topic, partition.partition)
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)


def _offset(found: Any) -> int | Refusal:
    """The offset in an answer of librdkafka, which marks what a leader has not answered."""
    if found.offset < NO_OFFSET:
        return Refusal(KafkaError._TIMED_OUT, "no answer")  # noqa: SLF001
    return int(found.offset)


def passes(answer: object) -> TypeGuard[Refusal]:
    """Whether an answer is an error that passes."""
    return isinstance(answer, Refusal) and answer.code in _TRANSIENT


def _timed_out(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code in _TIMED_OUT


def unanswered(answer: object) -> TypeGuard[Refusal]:
    """Whether a request got no answer."""
    return isinstance(answer, Refusal) and answer.code in _NO_ANSWER
