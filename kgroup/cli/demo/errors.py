"""What ends the demo before its time."""

from __future__ import annotations

from typing import final


@final
class DemoError(Exception):
    """Something did not happen as it must; the text says what, to whom."""
