"""``Secret``: a text that nothing prints, logs or pickles by accident."""

from __future__ import annotations

import hmac
from typing import Any, NoReturn, final

from kgroup.errors import UsageError


@final
class Secret:
    """A password, a key or a token. Only `reveal` returns it.

    Args:
        text: the secret. A program may give something else by mistake; that is not printed either,
            and `usable` is then False.
    """

    __slots__ = ("__text",)

    def __init__(self, text: Any) -> None:
        self.__text = text

    @property
    def usable(self) -> bool:
        """Whether it is a text that is not empty, has no NUL, and can be encoded in UTF-8."""
        text = self.__text
        return isinstance(text, str) and bool(text) and "\0" not in text and encodable(text)

    def reveal(self) -> str:
        """The secret itself, to be passed on at once."""
        return str(self.__text)

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        ours, theirs = self.reveal(), other.reveal()
        return hmac.compare_digest(ours.encode(errors="replace"), theirs.encode(errors="replace"))

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "a secret is never pickled or copied to another process; let the other process read it"
            " from its own environment or files"
        )

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


def secret(value: Any) -> Any:
    """A converter: None, or the value as a `Secret`."""
    return value if value is None or isinstance(value, Secret) else Secret(value)


def encodable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
