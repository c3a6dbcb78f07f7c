"""How the broker's parts say no: an exception that carries Kafka's error code to the answer.

A handler catches it where the answer has a place for it: a partition, a topic, the whole.
"""

from __future__ import annotations

from typing import Final

from kgroup.error_codes import ErrorCode

_LONGEST: Final = 1000
"""Characters of a message: it may quote a client's text, and has to fit an answer's field."""


class RequestError(Exception):
    """A request, or a part of one, that is answered with an error.

    Attributes:
        code: Kafka's error.
        message: what is wrong, for the answers that have a place for words.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        if len(message) > _LONGEST:
            message = f"{message[:_LONGEST]}..."
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message
