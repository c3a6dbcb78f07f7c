"""Values of options; one that measures nothing, or something else, is refused."""

from __future__ import annotations

import argparse
import math


def count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """A duration above 0.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value
