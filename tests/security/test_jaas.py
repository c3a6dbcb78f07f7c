"""The reader of ``sasl.jaas.config``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@given(st.text(st.characters(codec="utf-8")))
def test_a_quoted_password_is_read(password: str) -> None:
    """Any text between quotation marks comes back, if quotation marks and backslashes have one."""
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    read = parse_jaas(f'{PLAIN} required username="alice" password="{quoted}";')
    assert (read.name, read.options) == (
        "PlainLoginModule",
        {"username": "alice", "password": password},
    )


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("m.PlainLoginModule required;", {}),
        ("PlainLoginModule REQUIRED a=b c = 'd e' ;\n", {"a": "b", "c": "d e"}),
        ('/* x */ P required\n // y\n a="\\101\\n\\\'";', {"a": "A\n'"}),
        ("P required a=1 b=true;", {"a": "1", "b": "true"}),
    ],
)
def test_the_forms_of_options(text: str, options: dict[str, str]) -> None:
    """Quotation marks of both kinds, none, escapes and comments are read as by Java."""
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "semicolon"),
        (f'{PLAIN} required password="hunter2"', "semicolon"),
        (f'{PLAIN} password="hunter2";', "does not begin"),
        (f"{PLAIN} required password hunter2;", "option 1 is not"),
        (f"{PLAIN} required a=b password=;", "option 2 is not"),
        (f'{PLAIN} required password="hunter2;', "is not closed"),
        (f"{PLAIN} required a=hunter2; {PLAIN} required;", "more than one"),
    ],
)
def test_what_cannot_be_read(text: str, expected: str) -> None:
    """The error says what is wrong, and does not show the text."""
    with pytest.raises(ValueError, match=expected) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_a_login_module_hides_its_options() -> None:
    """Its repr shows the class alone."""
    assert "hunter2" not in repr(parse_jaas("P required password=hunter2;"))
