"""``kgroup demo``: a group at work through every kind of rebalance, and an audit of every line.

Only the package's error is defined here: workers are started from modules of this package, and
importing it has to be cheap.
"""

from typing import final


@final
class DemoError(Exception):
    """The demo cannot continue; the text names what did not happen, and in which process."""
