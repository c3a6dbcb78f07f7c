"""``Secret``: a text that nothing prints, logs or pickles by accident."""

from __future__ import annotations

import hmac
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar, final

import attrs

from kgroup.errors import UsageError
from kgroup.init_hints import wraps_init

T = TypeVar("T")

_MAY_WAIT: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_OF_LOGINS: Final = ("kgroup.wire.", "kgroup.security.", "trio.", "kgroup.broker.memory_pipe")
"""The modules whose coroutines have secrets in their variables while a connection logs in; the pipe
in memory is a network of tests."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
"""In a text with a private key in PEM."""
_USER: Final = re.compile(r"://[^/?#\s]*@")
"""In a URL with a user, who may have a password."""


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
class Hidden:
    """Stands in an error for a value that is not shown."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def secret(value: Any) -> Any:
    """A converter: None, or the value as a `Secret`."""
    return value if value is None or isinstance(value, Secret) else Secret(value)


def secret_if_private(value: Any) -> Any:
    """A converter: a text with a private key or a user's URL as a `Secret`, all else as it is."""
    return Secret(value) if has_private_key(value) or _has(_USER, value) else value


def has_private_key(value: Any) -> bool:
    """Whether this is a text with a private key in PEM."""
    return _has(_PRIVATE_KEY, value)


def _has(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.search(value) is not None


def sealed(
    *names: str, places: Collection[str] = (), functions: Collection[str] = ()
) -> Callable[[type[T]], type[T]]:
    """A decorator of attrs classes: these arguments are secrets before ``__init__`` is called.

    So are those that the class does not have, because they may be secrets by another name, each
    text with a private key, and a user's URL in ``places``. Otherwise a refusal's traceback would
    show them among the local variables of ``__init__``.

    Args:
        names: the arguments that are secrets.
        places: those that are a path or a URL. Other texts, such as names of users and scopes, may
            look like a user's URL and are none.
        functions: those that are a function. What is given instead may be what it should return.
    """

    def seal(name: str | None, value: Any) -> Any:
        if name is None or name in names:
            return value if isinstance(value, Path) else secret(value)
        if name in functions:
            return value if callable(value) else secret(value)
        if name in places:
            return secret_if_private(value)
        return Secret(value) if has_private_key(value) else value

    def decorate(kind: type[T]) -> type[T]:
        init: Callable[..., None] = kind.__init__
        fields = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]

        @wraps_init(init)
        def sealing(self: T, *args: Any, **kwargs: Any) -> None:
            kwargs = {
                name: seal(name if name in fields else None, value)
                for name, value in kwargs.items()
            }
            args = tuple(map(seal, chain(fields, repeat(None)), args))
            init(self, *args, **kwargs)

        kind.__init__ = sealing  # type: ignore[method-assign]
        return kind

    return decorate


@contextmanager
def without_locals() -> Iterator[None]:
    """A block whose exceptions show no local variable of what it calls; as a decorator, a function.

    Services for error reports collect the local variables of all functions in a traceback, also of
    the libraries that are called. Where a secret has to be revealed it becomes one, in ``send_all``
    of a stream for example. The lines of the traceback stay.

    The variables of the function with the block stay too, so it must not have a secret itself.
    Those of a decorated function are cleared. An exception that was being handled before is left
    alone: it may be the program's own.
    """
    before = sys.exception()
    try:
        yield
    except BaseException as error:
        _clear_locals(error, before)
        raise


def _clear_locals(error: BaseException, before: BaseException | None) -> None:
    """Clear the frames of an exception and of those that it contains or comes from."""
    left: list[BaseException | None] = [error]
    seen = {id(before)}  # by identity: a program's exceptions may have no hash
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if _may_clear(frame):
                with suppress(RuntimeError):  # the function still runs; nothing changes
                    frame.clear()
        left += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def _may_clear(frame: FrameType) -> bool:
    """Whether a frame is none of a coroutine or generator that may still be waiting.

    Clearing such a frame would close it. An exception that was stored, and is raised elsewhere, has
    passed through functions that have not ended: those of the program, and of nurseries. On the way
    of a login none is stored.
    """
    if not frame.f_code.co_flags & _MAY_WAIT:
        return True
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_OF_LOGINS) and not module.startswith("trio._core")


def encodable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
