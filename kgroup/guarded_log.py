"""``GuardedLog``: log lines, by whatever handlers, filters and formatters the program has set up.

Python's own handlers keep their failures to themselves; a filter, and a handler of another library,
may raise into the code that logs. kgroup logs in the middle of commits, at a generation's end and
in librdkafka's callbacks, where an exception would end the group or its record source.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, final


@final
class GuardedLog(logging.LoggerAdapter[logging.Logger]):
    """Logs to a logger; an exception of the program's log is shown as logging shows its own.

    INVARIANT: nothing leaves it, not even the SystemExit of ``sys.exit()``, but KeyboardInterrupt.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line, if the level is enabled."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller, in place of this
        try:
            super().log(level, msg, *args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 # whatever a program does wrong in it
            _show()

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Leave a line as it is."""
        return msg, kwargs


def _show() -> None:
    """What ``logging.Handler.handleError`` does."""
    if logging.raiseExceptions and sys.stderr:
        with suppress(Exception):  # the stream may be closed
            sys.stderr.write("--- Logging error, which ends nothing in kgroup ---\n")
            traceback.print_exc()
