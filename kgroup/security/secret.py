"""``Secret``: a text that nothing prints, logs or pickles by accident."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar, final

import attrs

from kgroup.errors import UsageError

T = TypeVar("T")


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

    def hidden_in(self, text: str) -> str:
        """What somebody else says, such as a broker, without this secret."""
        return text.replace(self.reveal(), repr(self)) if self.usable else text

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


@final
class SecretMessage:
    """A message with a secret in it; reports that show local variables do not show it."""

    __slots__ = ("__content",)

    def __init__(self, content: bytes) -> None:
        self.__content = content

    def reveal(self) -> bytes:
        """The message itself, to be sent at once."""
        return self.__content


@final
class Hidden:
    """Stands in an error for a value that is not shown."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def secret(value: Any) -> Any:
    """A converter: None, or the value as a `Secret`."""
    return value if value is None or isinstance(value, Secret) else Secret(value)


def sealed(*names: str) -> Callable[[type[T]], type[T]]:
    """A decorator of attrs classes: these arguments are secrets before ``__init__`` is called.

    So are those that the class does not have, because they may be secrets by another name.
    Otherwise a refusal's traceback would show them among the local variables of ``__init__``.
    """

    def seal(value: Any) -> Any:
        return value if isinstance(value, Path) else secret(value)

    def decorate(kind: type[T]) -> type[T]:
        init: Callable[..., None] = kind.__init__
        fields = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]

        @functools.wraps(init)
        def sealing(self: T, *args: Any, **kwargs: Any) -> None:
            for name in kwargs.keys() - set(fields) | kwargs.keys() & set(names):
                kwargs[name] = seal(kwargs[name])
            args = tuple(
                seal(value) if fields[number : number + 1] and fields[number] in names else value
                for number, value in enumerate(args)
            )
            init(self, *args, **kwargs)

        kind.__init__ = sealing  # type: ignore[method-assign, assignment]
        return kind

    return decorate


def encodable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
