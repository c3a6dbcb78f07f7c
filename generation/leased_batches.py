"""Batches whose records are handed out one by one, each only within the lease.

A stream checks the lease when it hands out a batch. A handler may hold that batch for long. If its
process is suspended meanwhile, it wakes in the middle of the batch, when another member may already
have processed the rest. So the lease is checked again before each record: the process then handles
the one record that each of its handlers had taken, and no further one.

`LeasedBatches.bind` gives the lease to a batch just before a stream returns it. A record source
therefore knows nothing of leases; the program may have written it.

**What a check costs.** One reading of the clock and one comparison with `Lease.ends`, which covers
the end of the generation as well. Everything else happens only when a check has failed. The
iteration is put together from iterators of the standard library, because a class of its own would
need twice as long for each record; it is no generator, because threads cannot share one.

**Threads.** A program may go through a batch in any thread: in the event loop's, in one of
`kgroup.threaded`, or in one of ``trio.to_thread``. The check needs no lock: `Lease.ends` is one
attribute, which only the event loop writes, and ``next()`` of a tuple's iterator gives each record
to one thread only, because of Python's interpreter lock. The process can be suspended between the
check and the hand-over; that record is the one that the handler had taken.

**A failed check ends the generation.** Otherwise a program that catches the error, or whose
`Generation.scope` does, would go on to the next generation while this one still runs: after a
suspension that the coordinator did not notice, the next heartbeat would extend the lease, and the
partitions would have an owner that does not read them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from operator import length_hint
from typing import final

import trio

from kgroup.errors import LeaseExpiredError, StaleGenerationError
from kgroup.generation.lifecycle import Lifecycle
from kgroup.interfaces import Batch, Clock, Message
from kgroup.types import Cause, End
from kgroup.worker_thread import post_to


@final
class LeasedBatches:
    """Gives the lease of one generation to the batches of a stream. Made in the event loop.

    Args:
        lifecycle: the generation's.
        clock: the clock of its lease.
    """

    def __init__(self, lifecycle: Lifecycle, clock: Clock) -> None:
        self._lifecycle = lifecycle
        self._clock = clock
        self._token = trio.lowlevel.current_trio_token()
        self._loop_thread = threading.get_ident()

    def bind(self, batch: Batch, seeks: int) -> Batch:
        """The same batch, with an iteration that checks the lease before each record.

        Args:
            batch: as the record source returned it.
            seeks: how often the program has sought in its partition.
        """
        return Batch(
            partition=batch.partition,
            messages=tuple(batch.messages),  # no program can remove what is to be processed
            next_offset=batch.next_offset,
            start_offset=batch.start_offset,
            epoch=batch.epoch,
            high_watermark=batch.high_watermark,
            iterate=self._iterate,
            seeks=seeks,
        )

    def refusal(self, batch: Batch, left: int) -> StaleGenerationError:
        """End the generation, unless it has ended, and return the error for the program.

        Args:
            batch: the batch that the program goes through.
            left: how many of its records are not handed out.
        """
        lifecycle = self._lifecycle
        rest = f"{left} of the {len(batch)} messages of a batch of {batch.partition}"
        if (end := lifecycle.final_end) is not None:
            return StaleGenerationError(
                f"{lifecycle.membership}: the generation has ended ({end}), so that {rest} were not"
                " handed out. The next owner of the partition reads the records after the last"
                " commit again; continue with the next generation",
                end,
            )
        end = End(
            Cause.COORDINATOR_LOST,
            f"the lease ended while the program processed a batch of {batch.partition}",
        )
        if threading.get_ident() == self._loop_thread:
            lifecycle.end(end)
        else:
            post_to(self._token, partial(lifecycle.end, end))
        return LeaseExpiredError(
            f"{lifecycle.membership}: the lease has ended, so that {rest} were not handed out:"
            " another member may own the partition by now. The generation ends; its next owner"
            " reads the records after the last commit again. Continue with the next generation",
            lifecycle.recorded_end,
        )

    def _iterate(self, batch: Batch) -> Iterator[Message]:
        messages: Sequence[Message] = batch.messages
        # The iterators of lists and tuples can be shared by threads, and know how much is left.
        if not isinstance(messages, list | tuple):
            messages = tuple(messages)
        lease, now, rest = self._lifecycle.lease, self._clock.now, iter(messages)
        left: int | None = None

        def within_lease(message: Message) -> Message:
            nonlocal left
            if now() < lease.ends:
                return message
            if left is None:
                left = 1 + length_hint(rest)
            raise self.refusal(batch, left)

        def after_the_last() -> None:
            """A program that goes on after an error must not take the batch for processed."""
            if left is not None:
                raise self.refusal(batch, left)

        return chain(map(within_lease, rest), iter(after_the_last, None))
