"""Secrets are printed, logged and pickled nowhere."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Iterator

import pytest

from kgroup.errors import ConfigError, UsageError
from kgroup.security.credentials import Credentials, Token
from kgroup.security.secret import Secret, secret, without_locals
from kgroup.security.settings import Security

WORD = "hunter2"


def names(error: BaseException) -> list[list[str]]:
    """The local variables of each function in a traceback."""
    return [sorted(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)]


def reveal(word: str) -> None:
    """Fail with a secret in a variable."""
    raise ValueError(len(word))


def fail_in_all_ways(word: str) -> None:
    """Fail with a cause, a context, and a group that has the first error again."""
    try:
        reveal(word)
    except ValueError as first:
        try:
            reveal(word)
        except ValueError as second:
            second.__context__ = first
            raise ExceptionGroup("both", [first, second]) from second


def test_errors_lose_the_local_variables_and_keep_the_lines() -> None:
    """Of all functions that a decorated one has called, and of itself; causes and groups, too."""
    with pytest.raises(ExceptionGroup) as caught:
        without_locals()(fail_in_all_ways)(WORD)
    group = caught.value
    for error in (group, *group.exceptions):
        functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert "fail_in_all_ways" in functions
        for variables in names(error):
            assert "word" not in variables


def test_a_block_keeps_its_own_local_variables() -> None:
    """They are those of a function that still runs, and goes on."""
    kept = 1
    with pytest.raises(ValueError, match="7") as caught, without_locals():
        reveal(WORD)
    assert kept == 1
    assert names(caught.value)[-1] == []


def test_an_exception_from_before_keeps_its_local_variables() -> None:
    """The program may be handling one of its own, which is the context of all later ones."""
    try:
        reveal(WORD)
    except ValueError as error:
        mine = error
        with pytest.raises(ValueError, match="7") as caught:
            without_locals()(reveal)(WORD)
        assert caught.value.__context__ is mine
    assert names(mine)[-1] == ["word"]


def test_only_reveal_returns_it() -> None:
    """Neither repr, str nor a format shows the text."""
    kept = Secret(WORD)
    assert kept.reveal() == WORD
    assert WORD not in f"{kept} {kept!r} {[kept]}"


def test_secrets_can_be_compared() -> None:
    """Equal texts are equal secrets with equal hashes; a text is not equal to its secret."""
    assert Secret(WORD) == Secret(WORD)
    assert hash(Secret(WORD)) == hash(Secret(WORD))
    assert Secret(WORD) != Secret("other")
    assert Secret(WORD) != WORD


def test_a_secret_is_not_pickled() -> None:
    """Whatever contains a secret cannot be pickled; a copy within the process is the same."""
    whole = Security(protocol="SASL_SSL", mechanism="PLAIN", username="a", password=WORD)
    with pytest.raises(UsageError, match="never pickled"):
        pickle.dumps(whole)
    assert copy.deepcopy(whole) == whole
    assert copy.copy(Secret(WORD)) == Secret(WORD)


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800", 5, b"bytes", ["x"]])
def test_what_is_refused_is_not_shown_either(text: object) -> None:
    """A password of the wrong type or form does not appear in the error."""
    assert secret(None) is None
    assert not Secret(text).usable
    with pytest.raises(ConfigError, match="password=<secret> is refused"):
        Credentials("alice", text)


def test_reprs_show_no_secret() -> None:
    """The values that contain secrets can be printed."""
    shown = repr(
        [
            Credentials("alice", WORD),
            Token(WORD, 1.0),
            Security(
                protocol="SASL_SSL",
                certificate="c.pem",
                key=WORD,
                key_password=WORD,
                mechanism="PLAIN",
                username="alice",
                password=WORD,
            ),
        ]
    )
    assert WORD not in shown
    assert "alice" in shown


def test_a_function_that_waits_goes_on() -> None:
    """Only what an exception has left for good is cleared, and no function that is suspended."""
    stored: list[BaseException] = []

    def waiting() -> Iterator[str]:
        text = "still here"
        try:
            raise KeyError(text)
        except KeyError as error:
            stored.append(error)
            yield "waits"
        yield text

    steps = waiting()
    assert next(steps) == "waits"
    with pytest.raises(ValueError, match="later"), without_locals():
        raise ValueError("later") from stored[0]
    assert next(steps) == "still here"
