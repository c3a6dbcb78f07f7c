"""What a generation of ``kgroup.threaded`` and one of ``kgroup.aio`` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kgroup import arguments
from kgroup.background.event_loop import LoopEndedError
from kgroup.errors import StaleGenerationError
from kgroup.generation.generation import Generation, MembershipView
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.types import Assignment, End, TopicPartition


class GenerationTwin(MembershipView):
    """The part of such a generation that any thread may read.

    Args:
        generation: the trio generation, in the background thread.

    Attributes:
        assignment: the partitions, a sorted collection.
        start_offsets: for each partition its start offset, if it was found before the hand-over.
    """

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation._membership)  # noqa: SLF001
        self.assignment: Assignment = generation.assignment
        self.start_offsets: Mapping[TopicPartition, int] = generation.start_offsets
        self._generation = generation

    @property
    def state(self) -> State:
        """Running, draining or ended."""
        return self._generation.state

    @property
    def end(self) -> End | None:
        """Why it ended, or None while it runs."""
        return self._generation.end

    @property
    def lease(self) -> float:
        """The seconds for which no other member can own the partitions; 0 if there are none left.

        A handler can check it before a side effect that must not happen twice.
        """
        return self._generation.lease

    def lag(self) -> Mapping[TopicPartition, int | None]:
        """For each partition, how far its reader is behind the end of the log; None if unknown."""
        return self._generation.lag()

    def transaction_metadata(self) -> bytes:
        """This generation's identity, as ``Producer.send_offsets_to_transaction`` takes it.

        See `kgroup.Generation.transaction_metadata`.

        Raises:
            StaleGenerationError: the generation has ended; abort the transaction.
            UsageError: the installed librdkafka uses another format.
        """
        return self._generation.transaction_metadata()

    def __repr__(self) -> str:
        return repr(self._generation)

    # In the loop.

    def _hold_again(self, group: ConsumerGroup) -> bool:
        """Count the body as work again; False if the generation does not run any more."""
        life = self._generation._lifecycle  # noqa: SLF001
        if life.state is not State.RUNNING:
            return False
        group._hold(life)  # noqa: SLF001
        return True

    async def _wait_ended_in_body(self) -> End:
        # The trio generation does the same for the task that runs the body, which here is outside.
        with self._generation._lifecycle.body_waits():  # noqa: SLF001
            return await self._generation.wait_ended()

    # Outside.

    @contextmanager
    def _loop_end_as_stale(self) -> Iterator[None]:
        try:
            yield
        except LoopEndedError:
            why = f" ({self.end})" if self.end is not None else ""
            raise StaleGenerationError(
                f"{self._membership}: the generation has ended{why}, so that nothing was done; its"
                " group is closed and gives no other one",
                self.end,
            ) from None


def listed(
    partitions: TopicPartition | Iterable[TopicPartition] | None,
) -> frozenset[TopicPartition] | None:
    """The partitions, read in the caller's thread: an iterable may run the program's code."""
    return arguments.partitions("partitions", partitions)
