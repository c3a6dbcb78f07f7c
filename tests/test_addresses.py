"""Addresses of brokers: which hosts and ports are valid, and how addresses are parsed."""

from __future__ import annotations

import re
import socket
from contextlib import suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from kgroup.addresses import HIGHEST_PORT, host_fault, join_address, port_fault, split_address

GOOD = [
    "localhost",
    "localhost.",
    "127.0.0.1",
    "::1",
    "fe80::1%eth0",
    "my_broker",
    "b-1.example.com",
    "bücher.example",
    "Bücher.Kafka.Example",
    "a" * 63,
    ".".join(["a" * 63] * 3 + ["a" * 61]),
]
BAD = [
    "",
    ".",
    "..",
    "a..b",
    ".a",
    "a" * 64,
    f"{'a' * 64}.example",
    ".".join(["a" * 63] * 4),
    "a b",
    "a\0b",
    "a/b",
    "a:b",
    "\ud800",
    "ü" * 64,
    "ü" * 5000,
    "☃",
    "ü_b",
    "straße.example",
    "http://a",
    None,
    b"a",
    7,
]


@pytest.mark.parametrize("host", GOOD)
def test_a_host_that_can_be_resolved_has_no_fault(host: str) -> None:
    """Names, absolute names, international names, IPv4 and IPv6 addresses are valid."""
    assert host_fault(host) is None


@pytest.mark.parametrize("host", BAD, ids=repr)
def test_a_host_that_no_resolver_accepts_has_a_fault(host: object) -> None:
    """Empty or long labels, foreign characters and other types have a fault in words."""
    assert host_fault(host)


@given(st.text() | st.text("aßü☃.·_-ﬀ\N{SOFT HYPHEN}日") | st.from_regex(r"\A[a-z._-]{0,70}\Z"))
def test_a_valid_host_raises_only_os_errors(host: str) -> None:
    """Neither resolver, Python's or trio's, raises anything else for a host without a fault."""
    if host_fault(host) is not None:
        return
    numeric = socket.AI_NUMERICHOST
    with suppress(OSError):
        socket.getaddrinfo(host, 9092, flags=numeric)
    with suppress(OSError):
        trio.run(trio.socket.getaddrinfo, host, 9092, 0, 0, 0, numeric)


@pytest.mark.parametrize("port", [0, -1, HIGHEST_PORT + 1, 2**31 - 1, True, 1.5, "9092", None])
def test_a_port_out_of_range_has_a_fault(port: object) -> None:
    """Only whole numbers from 1 to 65535 can be connected to."""
    assert port_fault(port)


def test_zero_is_a_port_to_listen_on() -> None:
    """Port 0, which means any free port, is valid where a program listens."""
    assert port_fault(0, least=0) is None
    assert port_fault(-1, least=0)
    assert split_address("localhost:0", least_port=0) == ("localhost", 0)


def test_addresses_are_parsed() -> None:
    """The port is behind the last colon; an IPv6 address loses its brackets."""
    assert split_address("localhost:9092") == ("localhost", 9092)
    assert split_address("[::1]:1") == ("::1", 1)
    assert split_address("a.b:65535") == ("a.b", 65535)


@pytest.mark.parametrize(
    "address",
    ["", "a", "a:", ":1", "a:b", "a:-1", "a:0", "a:65536", "a:123456", "::1:9092", "[::1]", "[a]:1",
     "[]:1", "[::1:1", "a..b:9092", "\ud800:1", "a:\uff11", 9092, None, ("a", 1)],
    ids=repr,
)  # fmt: skip
def test_other_text_is_refused(address: object) -> None:
    """Every other value is a ValueError that says what is wrong."""
    with pytest.raises(ValueError, match=r"^(it|its|an) "):
        split_address(address)


@pytest.mark.parametrize("url", ["SASL_SSL://a:9092", "https://a.b:443", "kafka+ssl://[::1]:1"])
def test_of_an_url_the_error_says_what_to_leave_out(url: str) -> None:
    """Providers show addresses with a scheme, which is not part of an address of Kafka."""
    scheme = url[: url.index("//") + 2]
    with pytest.raises(ValueError, match=f"leave out {re.escape(repr(scheme))}"):
        split_address(url)


@pytest.mark.parametrize("address", [("a", 1), ("127.0.0.1", 9092), ("::1", 65535)])
def test_an_address_that_was_written_can_be_read(address: tuple[str, int]) -> None:
    """`split_address` returns what `join_address` was given."""
    assert split_address(join_address(*address)) == address
