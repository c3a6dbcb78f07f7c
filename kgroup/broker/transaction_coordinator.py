"""The transaction coordinator: producer ids and epochs, and the partitions of each transaction.

Decisions without I/O; the time comes in. ``finish``, which the coordinator is given, writes the
markers to logs and applies the offsets of groups at once. So no marker is ever pending, and
CONCURRENT_TRANSACTIONS is answered only to an InitProducerId that had to abort a transaction first.
Transactions are the classic ones, without KIP-890's second version.

A transaction holds partitions by their names, as in Kafka. A partition that is deleted stays in it;
one that is created again under the same name is in it, too, can be written, and gets the marker.

Source: Kafka's ``TransactionCoordinator``, ``TransactionMetadata``, KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from typing import Final, Protocol, final

import attrs

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

NO_EPOCH: Final = -1
NO_PRODUCER: Final = -1
LAST_EPOCH: Final = 2**15 - 2
"""The highest epoch of a producer. The one after it only fences: no client may use it."""


@final
class TransactionState(enum.Enum):
    """The state of a transactional id's transaction."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


@final
@attrs.define(eq=False)
class Transaction:
    """A transactional id, its producer, and its current transaction.

    INVARIANT: while the transaction is ongoing, its epoch is at most ``LAST_EPOCH``, so that there
    is an epoch to abort it with.

    Attributes:
        last: the id and epoch with which the producer can get the current ones, again if the
            response was lost, and after its transaction was aborted (KIP-360); or None.
        started: when its last transaction began, whether or not that has ended; None if there has
            been none since InitProducerId.
        shards: the partitions of the offsets topic that it has added, each for all of its groups.
            Unlike the ids of groups, they are few, whatever a client sends.
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last: tuple[int, int] | None = None
    timeout: float = 0.0
    state: TransactionState = TransactionState.EMPTY
    started: float | None = None
    deadline: float = 0.0
    partitions: dict[TopicPartition, None] = attrs.field(factory=dict)
    shards: set[int] = attrs.field(factory=set)


class Finish(Protocol):
    """Makes the outcome of a transaction visible: markers in logs, offsets of groups."""

    def __call__(
        self,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        shards: Collection[int],
        *,
        committed: bool,
    ) -> None:
        """End the producer's transaction in these partitions, and shards of groups.

        If it raises, the transaction stays open.
        """
        ...


@final
class TransactionLog:
    """The state of all transactions. Every change is written at once, so no failover loses any."""

    def __init__(self) -> None:
        self.transactions: Final[dict[str, Transaction]] = {}
        self._next_producer_id = 0

    def new_producer_id(self) -> int:
        """A producer id that has not been used before."""
        self._next_producer_id += 1
        return self._next_producer_id - 1


def _own(transactional_id: str) -> None:
    del transactional_id


def _always(transactional_id: str) -> bool:
    del transactional_id
    return True


@final
class TransactionCoordinator:
    """The transaction coordinator of one broker: the transactional ids that it leads.

    ``check_partition`` and ``check_group`` work for transactions that any broker coordinates,
    because in Kafka brokers send requests to each other; they fail while no broker does.
    """

    def __init__(
        self,
        max_timeout: float,
        max_ids: int,
        finish: Finish,
        *,
        transaction_log: TransactionLog | None = None,
        coordinator_error: Callable[[str], ErrorCode | None] = _own,
        has_coordinator: Callable[[str], bool] = _always,
    ) -> None:
        """A coordinator.

        Args:
            max_timeout: seconds; the longest time-out that a producer may request.
            max_ids: the most transactional ids.
            finish: makes outcomes visible.
            transaction_log: the state of all transactions, shared by all brokers of a cluster.
            coordinator_error: why this broker does not coordinate a transactional id, or None.
            has_coordinator: whether any broker coordinates a transactional id.
        """
        self._max_timeout = max_timeout
        self._max_ids = max_ids
        self._finish = finish
        self._transaction_log = transaction_log or TransactionLog()
        self._by_id = self._transaction_log.transactions
        self._coordinator_error = coordinator_error
        self._has_coordinator = has_coordinator

    # InitProducerId.

    def init_producer(
        self,
        transactional_id: str | None,
        timeout: float,
        producer_id: int = NO_PRODUCER,
        epoch: int = NO_EPOCH,
    ) -> tuple[int, int]:
        """Give a producer its id and epoch, and fence the last producer of its transactional id.

        Args:
            transactional_id: None for a producer that is only idempotent.
            timeout: seconds that a transaction may take.
            producer_id: the producer's, if it has one and requests a new epoch (KIP-360).
            epoch: its epoch.

        Raises:
            RequestError: INVALID_REQUEST (also for an id without an epoch, or the reverse),
                INVALID_TRANSACTION_TIMEOUT, NOT_COORDINATOR, PRODUCER_FENCED, POLICY_VIOLATION if
                there are too many ids, and CONCURRENT_TRANSACTIONS after an open transaction was
                aborted: the client retries.
        """
        if (producer_id == NO_PRODUCER) is not (epoch == NO_EPOCH):
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"producer {producer_id} at epoch {epoch}: one is missing",
            )
        if transactional_id is None:
            return self._transaction_log.new_producer_id(), 0
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout <= self._max_timeout:
            raise RequestError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction time-out of {timeout} s; it must be more than 0 and at most"
                f" {self._max_timeout} s",
            )
        self._check_coordinator(transactional_id)
        known = self._by_id.get(transactional_id)
        if known is None:
            if len(self._by_id) >= self._max_ids:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    f"there are {self._max_ids} transactional ids (kgroup.max.transactional.ids)",
                )
            known = Transaction(transactional_id, self._transaction_log.new_producer_id())
            self._by_id[transactional_id] = known
        claimed = None if producer_id == NO_PRODUCER else (producer_id, epoch)
        if claimed is not None and known.epoch != NO_EPOCH:
            repeats = claimed == known.last
            if epoch > LAST_EPOCH or (producer_id != known.producer_id and not repeats):
                raise _fenced(known, producer_id, epoch)
        if known.state is TransactionState.ONGOING:
            self._abort_fenced(known)
            raise RequestError(
                ErrorCode.CONCURRENT_TRANSACTIONS, "an open transaction was aborted; try again"
            )
        known.timeout = timeout
        self._advance(known, claimed)
        known.state, known.started = TransactionState.EMPTY, None
        return known.producer_id, known.epoch

    def _advance(self, known: Transaction, claimed: tuple[int, int] | None) -> None:
        current = known.producer_id, known.epoch
        if claimed is not None and known.epoch != NO_EPOCH and claimed != current:
            if claimed == known.last:
                return
            raise _fenced(known, *claimed)
        known.last = current if claimed is not None and known.epoch != NO_EPOCH else None
        if known.epoch >= LAST_EPOCH:
            known.producer_id = self._transaction_log.new_producer_id()
            known.epoch = 0
        else:
            known.epoch += 1

    # Transactions.

    def add_partitions(
        self,
        now: float,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> float:
        """Add partitions to the transaction, which begins if it has not.

        Returns:
            the time at which the transaction is aborted.

        Raises:
            RequestError: INVALID_REQUEST, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING,
                PRODUCER_FENCED.
        """
        known = self._coordinated(transactional_id, producer_id, epoch)
        self._begin(known, now)
        known.partitions.update(dict.fromkeys(partitions))
        return known.deadline

    def add_group(
        self, now: float, transactional_id: str, producer_id: int, epoch: int, shard: int
    ) -> float:
        """Add the offsets of a group, given by its shard, to the transaction: ``add_partitions``.

        Raises:
            RequestError: as ``add_partitions``.
        """
        known = self._coordinated(transactional_id, producer_id, epoch)
        self._begin(known, now)
        known.shards.add(shard)
        return known.deadline

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool) -> None:
        """Commit or abort the transaction; a repetition is no error, the opposite outcome is.

        Raises:
            RequestError: as ``add_partitions``, and INVALID_TXN_STATE.
        """
        known = self._coordinated(transactional_id, producer_id, epoch)
        done = TransactionState.COMMITTED if committed else TransactionState.ABORTED
        if known.state is done:
            return
        if known.state is not TransactionState.ONGOING:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                f"transaction {transactional_id!r} is {known.state.value}",
            )
        self._complete(known, done, known.epoch)

    def check_partition(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        *,
        is_open: bool = False,
    ) -> None:
        """Refuse a transactional batch for a partition that is not in the transaction.

        Args:
            transactional_id: from the request.
            producer_id: from the batch.
            epoch: from the batch.
            partition: the partition of the batch.
            is_open: whether this producer has written there in an open transaction of this epoch;
                then the transaction is not checked.

        Raises:
            RequestError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id,
                COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH,
                TRANSACTION_ABORTABLE.

        Source: KIP-890; Kafka's ``ReplicaManager``, ``UnifiedLog.hasOngoingTransaction``,
        ``TransactionCoordinator.handleVerifyPartitionsInTransaction``.
        """
        if transactional_id is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id"
            )
        if is_open:
            return
        known = self._to_write(transactional_id, producer_id, epoch)
        if known.state is not TransactionState.ONGOING or partition not in known.partitions:
            raise _outside(known, f"partition {partition}")

    def check_group(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group_id: str,
        *,
        shard: int,
        is_open: bool,
    ) -> None:
        """Refuse offsets of a group that is not in the transaction.

        A transaction holds partitions of the offsets topic, not groups: adding one group adds all
        groups of its partition. Once a transaction of this epoch has written there, Kafka checks no
        more.

        Args:
            transactional_id: from the request.
            producer_id: from the request.
            epoch: from the request.
            group_id: the group.
            shard: the partition of the offsets topic that holds it.
            is_open: whether a transaction of this producer is open there.

        Raises:
            RequestError: COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
                INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE.

        Source: KIP-890; Kafka's ``UnifiedLog.hasOngoingTransaction``, ``ProducerAppendInfo``.
        """
        if is_open and self._is_epoch(producer_id, epoch):
            return
        known = self._to_write(transactional_id, producer_id, epoch)
        if known.state is not TransactionState.ONGOING or shard not in known.shards:
            raise _outside(known, f"group {group_id!r}")

    # Queries.

    def has_producer(self, transactional_id: str | None, producer_id: int) -> bool:
        """Whether a producer is that of a transactional id, whichever broker coordinates it."""
        known = None if transactional_id is None else self._by_id.get(transactional_id)
        return known is not None and known.producer_id == producer_id

    def coordinated(self) -> Iterator[Transaction]:
        """Every transaction that this broker coordinates."""
        for known in tuple(self._by_id.values()):
            if self._coordinator_error(known.transactional_id) is None:
                yield known

    def find(self, transactional_id: str) -> Transaction:
        """A transaction that this broker coordinates.

        Raises:
            RequestError: NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND.
        """
        self._check_coordinator(transactional_id)
        known = self._by_id.get(transactional_id)
        if known is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"there is no transactional id {transactional_id!r}",
            )
        return known

    # Timers.

    def expire(self, now: float) -> None:
        """Abort one transaction that is past its time-out, if there is any.

        Each can have tens of thousands of partitions. ``next_timer`` says whether there is another
        one, so that the caller can let requests run in between.
        """
        for known in self._ongoing():
            if known.deadline <= now:
                # Should the abort fail, it is tried again later: the alarm must not spin.
                known.deadline = now + known.timeout
                self._abort_fenced(known)
                return

    @property
    def next_timer(self) -> float | None:
        """When ``expire`` must be called next, or None."""
        return min((known.deadline for known in self._ongoing()), default=None)

    def _ongoing(self) -> list[Transaction]:
        return [known for known in self.coordinated() if known.state is TransactionState.ONGOING]

    # Internal.

    def _check_coordinator(self, transactional_id: str) -> None:
        code = self._coordinator_error(transactional_id)
        if code is not None:
            raise RequestError(
                code, f"another broker coordinates transactional id {transactional_id!r}"
            )

    def _coordinated(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        if transactional_id:
            self._check_coordinator(transactional_id)
        return self._checked(transactional_id, producer_id, epoch)

    def _checked(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        known = self._by_id.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"transactional id {transactional_id!r} is not producer {producer_id}'s",
            )
        if known.epoch != epoch or epoch > LAST_EPOCH:
            raise _fenced(known, producer_id, epoch)
        return known

    def _to_write(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        if not self._has_coordinator(transactional_id):
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"no broker coordinates transactional id {transactional_id!r} now; try again",
            )
        try:
            return self._checked(transactional_id, producer_id, epoch)
        except RequestError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
            raise

    def _is_epoch(self, producer_id: int, epoch: int) -> bool:
        return any(
            (known.producer_id, known.epoch) == (producer_id, epoch)
            for known in self._by_id.values()
        )

    @staticmethod
    def _begin(known: Transaction, now: float) -> None:
        if known.state is not TransactionState.ONGOING:
            known.state, known.started = TransactionState.ONGOING, now
            known.deadline = now + known.timeout

    def _abort_fenced(self, known: Transaction) -> None:
        self._complete(known, TransactionState.ABORTED, known.epoch + 1)

    def _complete(self, known: Transaction, done: TransactionState, epoch: int) -> None:
        # First the logs: if that fails, the transaction is still ongoing and can be ended again.
        self._finish(
            known.producer_id,
            epoch,
            tuple(known.partitions),
            tuple(known.shards),
            committed=done is TransactionState.COMMITTED,
        )
        if epoch != known.epoch:
            # The producer that was fenced may claim the new epoch, until another one gets an epoch.
            # It may not claim the epoch after the last valid one, which only ends a transaction.
            before = known.producer_id, known.epoch
            known.epoch, known.last = epoch, before if epoch <= LAST_EPOCH else None
        known.state = done
        known.partitions.clear()
        known.shards.clear()


def _outside(known: Transaction, what: str) -> RequestError:
    return RequestError(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"{what} is not in the transaction of {known.transactional_id!r}, which is"
        f" {known.state.value}; abort it and begin another one",
    )


def _fenced(known: Transaction, producer_id: int, epoch: int) -> RequestError:
    return RequestError(
        ErrorCode.PRODUCER_FENCED,
        f"transactional id {known.transactional_id!r} has producer {known.producer_id} at epoch"
        f" {known.epoch}; producer {producer_id} at epoch {epoch} is fenced",
    )
