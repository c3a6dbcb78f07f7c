"""The exception that carries Kafka's error code from a part of the broker to the response.

A handler catches it where the response has a place for an error: a partition, a topic, the whole.
"""

from __future__ import annotations

from typing import Final

from kgroup.error_codes import ErrorCode

_LONGEST: Final = 1000
"""Characters of a message: it may quote a client's text, and has to fit a field of a response."""


def shortened(text: str) -> str:
    """A message that fits in a response, even if it quotes a long text of the client's."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class RequestError(Exception):
    """A request, or a part of one, fails with an error of Kafka's.

    Attributes:
        code: Kafka's error.
        message: what is wrong, for the responses that have a field for it.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        message = shortened(message)
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
