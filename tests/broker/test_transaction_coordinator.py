"""The transaction coordinator: ids, epochs, fencing, outcomes, time-outs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from kgroup.broker.request_error import RequestError
from kgroup.broker.transaction_coordinator import LAST_EPOCH, TransactionCoordinator
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
MANY = 100


class Outcomes:
    """Records the outcomes of transactions."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(
        self,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        shards: Collection[int],
        *,
        committed: bool,
    ) -> None:
        """Record the outcome of a transaction that has ended."""
        self.seen.append((producer_id, epoch, tuple(partitions), tuple(shards), committed))


@pytest.fixture
def outcomes() -> Outcomes:
    """A recorder without outcomes."""
    return Outcomes()


@pytest.fixture
def transactions(outcomes: Outcomes) -> TransactionCoordinator:
    """A coordinator without transactional ids."""
    return TransactionCoordinator(900.0, MANY, outcomes)


def timer(transactions: TransactionCoordinator) -> float | None:
    """The time of the next time-out."""
    return transactions.next_timer


def code(act: Callable[[], object]) -> ErrorCode:
    """The error code with which a call is refused."""
    with pytest.raises(RequestError) as refused:
        act()
    return refused.value.code


def test_idempotent_producers_have_ids_of_their_own(transactions: TransactionCoordinator) -> None:
    """Each InitProducerId without a transactional id gets another id, at epoch 0."""
    assert transactions.init_producer(None, 60) == (0, 0)
    assert transactions.init_producer(None, 60) == (1, 0)


def test_a_transactional_id_keeps_its_producer_and_raises_the_epoch(
    transactions: TransactionCoordinator,
) -> None:
    """A second InitProducerId fences the first producer."""
    assert transactions.init_producer("x", 60) == (0, 0)
    assert transactions.init_producer("x", 60) == (0, 1)
    assert code(lambda: transactions.add_partitions(0, "x", 0, 0, [TP])) is (
        ErrorCode.PRODUCER_FENCED
    )
    transactions.add_partitions(0, "x", 0, 1, [TP])


def test_requests_that_are_refused(transactions: TransactionCoordinator) -> None:
    """An empty id and a time-out out of range are refused."""
    assert code(lambda: transactions.init_producer("", 60)) is ErrorCode.INVALID_REQUEST
    for timeout in (0, 900.1):
        requested = code(partial(transactions.init_producer, "x", timeout))
        assert requested is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_commit_ends_all_that_was_added(
    transactions: TransactionCoordinator, outcomes: Outcomes
) -> None:
    """Its partitions and groups end together, and those of other transactions do not."""
    transactions.init_producer("x", 60)
    transactions.add_partitions(0, "x", 0, 0, [TP])
    transactions.add_group(0, "x", 0, 0, 1)
    transactions.add_partitions(0, "x", 0, 0, [OTHER, TP])
    transactions.end("x", 0, 0, committed=True)
    transactions.add_group(0, "x", 0, 0, 2)
    transactions.end("x", 0, 0, committed=False)
    assert outcomes.seen == [(0, 0, (TP, OTHER), (1,), True), (0, 0, (), (2,), False)]


@pytest.mark.parametrize("committed", [True, False])
def test_an_outcome_can_be_repeated_but_not_changed(
    transactions: TransactionCoordinator, outcomes: Outcomes, committed: bool
) -> None:
    """A repeated EndTxn succeeds and does nothing; the opposite one is INVALID_TXN_STATE."""
    transactions.init_producer("x", 60)
    assert code(lambda: transactions.end("x", 0, 0, committed=committed)) is (
        ErrorCode.INVALID_TXN_STATE
    )
    transactions.add_partitions(0, "x", 0, 0, [TP])
    transactions.end("x", 0, 0, committed=committed)
    transactions.end("x", 0, 0, committed=committed)
    assert code(lambda: transactions.end("x", 0, 0, committed=not committed)) is (
        ErrorCode.INVALID_TXN_STATE
    )
    assert len(outcomes.seen) == 1


def test_unknown_ids_are_refused(transactions: TransactionCoordinator) -> None:
    """An unknown transactional id, or another producer's id, has no transaction."""
    transactions.init_producer("x", 60)
    for name, producer in (("y", 0), ("x", 5)):
        requested = code(partial(transactions.add_group, 0, name, producer, 0, 1))
        assert requested is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code(lambda: transactions.end("", 0, 0, committed=True)) is ErrorCode.INVALID_REQUEST


def test_init_aborts_an_open_transaction_first(
    transactions: TransactionCoordinator, outcomes: Outcomes
) -> None:
    """The first call gets CONCURRENT_TRANSACTIONS and fences, the second succeeds (KIP-98)."""
    transactions.init_producer("x", 60)
    transactions.add_partitions(0, "x", 0, 0, [TP])
    assert code(lambda: transactions.init_producer("x", 60)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert outcomes.seen == [(0, 1, (TP,), (), False)]
    assert transactions.init_producer("x", 60) == (0, 2)


def test_a_producer_can_raise_its_own_epoch(transactions: TransactionCoordinator) -> None:
    """With its id and epoch it gets the next epoch (KIP-360), again if the response was lost."""
    transactions.init_producer("x", 60)
    assert transactions.init_producer("x", 60, 0, 0) == (0, 1)
    assert transactions.init_producer("x", 60, 0, 0) == (0, 1)
    transactions.init_producer("x", 60)
    for producer, epoch in ((0, 0), (7, 2)):
        requested = code(partial(transactions.init_producer, "x", 60, producer, epoch))
        assert requested is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("ended_by", ["a time-out", "its own request", "another producer"])
def test_a_producer_goes_on_after_its_transaction_was_aborted(
    transactions: TransactionCoordinator, ended_by: str
) -> None:
    """It gets the epoch of the abort, unless another producer has got an epoch meanwhile."""
    transactions.init_producer("x", 60)
    transactions.add_partitions(0, "x", 0, 0, [TP])
    own = partial(transactions.init_producer, "x", 60, 0, 0)
    if ended_by == "a time-out":
        transactions.expire(60)
    else:
        first = own if ended_by == "its own request" else partial(own.func, "x", 60)
        assert code(first) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert own() == own() == (0, 1)
    ending = partial(transactions.end, "x", 0, 1, committed=False)
    assert code(ending) is ErrorCode.INVALID_TXN_STATE
    assert transactions.init_producer("x", 60) == (0, 2)
    assert code(own) is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_epoch_gives_a_new_producer_id(transactions: TransactionCoordinator) -> None:
    """After the last epoch the transactional id continues with another producer."""
    for _ in range(LAST_EPOCH):
        transactions.init_producer("x", 60)
    assert transactions.init_producer("x", 60) == (0, LAST_EPOCH)
    assert transactions.init_producer("x", 60) == (1, 0)


def test_a_producer_past_the_last_epoch_gets_a_new_id_once(
    transactions: TransactionCoordinator,
) -> None:
    """A producer that raises its own epoch gets the same new id again if the response was lost."""
    transactions.init_producer("x", 60)
    transactions.find("x").epoch = LAST_EPOCH
    assert transactions.init_producer("x", 60, 0, LAST_EPOCH) == (1, 0)
    assert transactions.init_producer("x", 60, 0, LAST_EPOCH) == (1, 0)
    for epoch in (LAST_EPOCH - 1, LAST_EPOCH + 1):
        old = partial(transactions.init_producer, "x", 60, 0, epoch)
        assert code(old) is ErrorCode.PRODUCER_FENCED
    assert transactions.init_producer("x", 60, 1, 0) == (1, 1)
    old = partial(transactions.init_producer, "x", 60, 0, LAST_EPOCH)
    assert code(old) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("ended_by", ["a time-out", "InitProducerId"])
def test_the_fencing_epoch_is_refused_everywhere(
    transactions: TransactionCoordinator, outcomes: Outcomes, ended_by: str
) -> None:
    """After an abort with the epoch past the last one, only a new producer id can follow."""
    transactions.init_producer("x", 60)
    transactions.find("x").epoch = LAST_EPOCH
    transactions.add_partitions(0, "x", 0, LAST_EPOCH, [TP])
    if ended_by == "a time-out":
        transactions.expire(60)
    else:
        again = partial(transactions.init_producer, "x", 60)
        assert code(again) is ErrorCode.CONCURRENT_TRANSACTIONS
    fencing = LAST_EPOCH + 1
    assert outcomes.seen == [(0, fencing, (TP,), (), False)]
    for act, refusal in (
        (lambda: transactions.init_producer("x", 60, 0, LAST_EPOCH), ErrorCode.PRODUCER_FENCED),
        (lambda: transactions.init_producer("x", 60, 0, fencing), ErrorCode.PRODUCER_FENCED),
        (
            lambda: transactions.add_partitions(0, "x", 0, fencing, [TP]),
            ErrorCode.PRODUCER_FENCED,
        ),
        (lambda: transactions.add_group(0, "x", 0, fencing, 1), ErrorCode.PRODUCER_FENCED),
        (
            lambda: transactions.end("x", 0, fencing, committed=False),
            ErrorCode.PRODUCER_FENCED,
        ),
        (
            lambda: transactions.check_partition("x", 0, fencing, TP),
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
    ):
        assert code(act) is refusal
    assert timer(transactions) is None
    assert transactions.init_producer("x", 60) == (1, 0)


def test_a_producer_id_needs_an_epoch_and_the_reverse(
    transactions: TransactionCoordinator,
) -> None:
    """InitProducerId with one of the two is refused, and raises no epoch."""
    transactions.init_producer("x", 60)
    for name in ("x", None):
        for producer_id, epoch in ((0, -1), (-1, 0)):
            half = partial(transactions.init_producer, name, 60, producer_id, epoch)
            assert code(half) is ErrorCode.INVALID_REQUEST
    assert transactions.find("x").epoch == 0


def test_writing_needs_an_added_partition_or_group(transactions: TransactionCoordinator) -> None:
    """Batches and offsets are accepted only for what was added to the open transaction."""
    transactions.init_producer("x", 60)
    transactions.init_producer("x", 60)
    check = transactions.check_partition

    def group(
        name: str, producer_id: int, epoch: int, group_id: str, *, is_open: bool = False
    ) -> None:
        transactions.check_group(
            name,
            producer_id,
            epoch,
            group_id,
            shard=ord(group_id[0]),
            is_open=is_open,
        )

    assert code(lambda: check(None, 0, 1, TP)) is (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert code(lambda: check("x", 0, 1, TP)) is ErrorCode.TRANSACTION_ABORTABLE
    assert code(lambda: group("x", 0, 1, "g")) is ErrorCode.TRANSACTION_ABORTABLE
    transactions.add_partitions(0, "x", 0, 1, [TP])
    transactions.add_group(0, "x", 0, 1, ord("g"))
    check("x", 0, 1, TP)
    group("x", 0, 1, "g")
    assert code(lambda: check("x", 0, 1, OTHER)) is ErrorCode.TRANSACTION_ABORTABLE
    assert code(lambda: group("x", 0, 1, "h")) is ErrorCode.TRANSACTION_ABORTABLE
    group("x", 0, 1, "g in the same partition of the offsets topic")
    group("another", 0, 1, "h", is_open=True)
    for epoch in (0, 2):
        old = partial(group, "x", 0, epoch, "h", is_open=True)
        assert code(old) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(lambda: check("x", 0, 0, TP)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(lambda: check("x", 3, 1, TP)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_slow_transaction_is_aborted_and_fenced(
    transactions: TransactionCoordinator, outcomes: Outcomes
) -> None:
    """After its time-out the transaction is aborted, and its producer's epoch is old."""
    transactions.init_producer("x", 60)
    assert timer(transactions) is None
    transactions.add_partitions(100, "x", 0, 0, [TP])
    transactions.add_partitions(130, "x", 0, 0, [OTHER])
    assert timer(transactions) == 160
    transactions.expire(159)
    assert outcomes.seen == []
    transactions.expire(160)
    assert outcomes.seen == [(0, 1, (TP, OTHER), (), False)]
    assert timer(transactions) is None
    assert code(lambda: transactions.end("x", 0, 0, committed=True)) is ErrorCode.PRODUCER_FENCED


def test_slow_transactions_are_aborted_one_at_a_time(
    transactions: TransactionCoordinator, outcomes: Outcomes
) -> None:
    """Each call aborts one, and the next timer says at once that there is another one."""
    for producer_id, name in enumerate("xy"):
        transactions.init_producer(name, 60)
        transactions.add_partitions(100, name, producer_id, 0, [TP])
    for number in (1, 2):
        assert timer(transactions) == 160
        transactions.expire(161)
        assert len(outcomes.seen) == number
    assert timer(transactions) is None


def test_a_transaction_without_a_coordinator(outcomes: Outcomes) -> None:
    """Nothing new can be added; partitions with an open transaction can be written."""
    led = True
    transactions = TransactionCoordinator(900.0, MANY, outcomes, has_coordinator=lambda _: led)
    transactions.init_producer("x", 60)
    transactions.add_partitions(0, "x", 0, 0, [TP])
    transactions.add_group(0, "x", 0, 0, 1)
    check = partial(transactions.check_partition, "x", 0, 0, TP)
    group = partial(transactions.check_group, "x", 0, 0, "g", shard=1)
    check()
    group(is_open=False)
    led = False
    assert code(check) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(partial(group, is_open=False)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    check(is_open=True)
    group(is_open=True)
