"""What a report of an error with local variables shows, as services that collect errors send it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


def printed(value: object) -> str:
    """An object's repr; one that was refused half-made may have none."""
    try:
        return repr(value)
    except AttributeError as error:
        return str(error)


def frames(error: BaseException) -> Iterator[str]:
    """Everything that a report with local variables would print of kgroup's own frames."""
    seen: BaseException | None = error
    while seen is not None:
        for frame, _ in traceback.walk_tb(seen.__traceback__):
            if "/tests/" not in frame.f_code.co_filename:
                yield from (f"{name}={printed(held)}" for name, held in frame.f_locals.items())
        yield from ("".join(traceback.format_exception(seen)), repr(vars(seen)))
        seen = seen.__cause__ or seen.__context__
