"""The leader epochs of a log: where each began, which is where the one before ended.

Source: Kafka's ``LeaderEpochFileCache``, KIP-101, KIP-320.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

UNDEFINED: Final = -1
"""An unknown epoch, or the unknown end of one."""


@final
class LeaderEpochs:
    """Epochs in rising order, each with the offset at which it began."""

    def __init__(self) -> None:
        self._epochs = [0]
        self._starts = [0]

    @property
    def latest(self) -> int:
        """The epoch of new records."""
        return self._epochs[-1]

    def begin(self, epoch: int, offset: int) -> None:
        """Begin a higher epoch at the end of the log; it replaces an epoch without records."""
        if self._starts[-1] == offset:
            self._epochs[-1] = epoch
        else:
            self._epochs.append(epoch)
            self._starts.append(offset)

    def at(self, offset: int) -> int:
        """The epoch of the record at an offset."""
        return self._epochs[max(0, bisect_right(self._starts, offset) - 1)]

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The highest epoch not above this one, and the offset at which it ended.

        Both are ``UNDEFINED`` for an epoch that has not begun.
        """
        if epoch == UNDEFINED or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        known = self._epochs[following - 1] if following else epoch
        return known, self._starts[following]
