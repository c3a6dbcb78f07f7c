"""``OidcClientCredentials`` with a scripted identity provider."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import attrs
import pytest

from kgroup.errors import ConfigError
from kgroup.security.oidc import OidcClientCredentials, TokenRequestError
from kgroup.security.unsecured_token import jwt_part
from tests.security.identity_provider import Provider, provider

SECRET = "client-secret"  # noqa: S105


def client(url: str, **settings: Any) -> OidcClientCredentials:
    """A client of that provider."""
    return OidcClientCredentials(
        token_endpoint=url, client_id="kgroup", client_secret=SECRET, **settings
    )


def jwt(**claims: object) -> str:
    """A token with these claims."""
    return f"e30.{jwt_part(claims)}.c2ln"


def test_a_token_is_requested_with_the_clients_secret() -> None:
    """One POST with HTTP Basic; the answer's lifetime and the token's subject are taken over."""
    token = jwt(sub="service", exp=5)
    body = json.dumps({"access_token": token, "expires_in": 300}).encode()
    with provider(200, body) as url:
        found = client(url, scope="kafka read", extensions={"logicalCluster": "lkc-1"})()
    assert (found.value.reveal(), found.principal) == (token, "service")
    assert 200 < found.expires_at - time.time() <= 300
    assert found.extensions == {"logicalCluster": "lkc-1"}
    login = base64.b64encode(f"kgroup:{SECRET}".encode()).decode()
    sent = "grant_type=client_credentials&scope=kafka+read"
    assert Provider.seen == [("/token", f"Basic {login}", sent)]


def test_id_and_secret_are_url_encoded_if_the_provider_wants_it() -> None:
    """RFC 6749 encodes them before HTTP does."""
    body = json.dumps({"access_token": "x", "expires_in": 5}).encode()
    with provider(200, body) as url:
        attrs.evolve(client(url), client_id="a b", client_secret="c:+", url_encode=True)()  # noqa: S106
    ((_, login, _),) = Provider.seen
    assert base64.b64decode(login.removeprefix("Basic ")) == b"a+b:c%3A%2B"


def test_without_a_lifetime_the_tokens_own_claim_counts() -> None:
    """``expires_in`` is optional in RFC 6749."""
    body = json.dumps({"access_token": jwt(exp=7e9)}).encode()
    with provider(200, body) as url:
        assert client(url)().expires_at == 7e9


def test_a_proxy_does_not_get_the_secret_in_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxies are not used for a provider on this machine without TLS."""
    body = json.dumps({"access_token": "x", "expires_in": 5}).encode()
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with provider(200, body) as url:
        assert client(url)().value.reveal() == "x"
    assert len(Provider.seen) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            401,
            json.dumps({"error": "invalid_client", "error_description": f"no {SECRET}"}).encode(),
            r"answered with status 401, invalid_client \(no <secret>\)",
        ),
        (
            400,
            json.dumps({"error": "x", "error_description": "y" * 195 + SECRET}).encode(),
            r"status 400, x \(y{195}<secr\)$",
        ),
        (503, b"<html>", "answered with status 503$"),
        (302, b"", "answered with status 302$"),
        (200, b"<html>", "no JSON object"),
        (200, b"[1]", "no JSON object"),
        (200, b"{}", "without an access_token"),
        (200, b'{"access_token": "opaque"}', "does not say when its token expires"),
        (200, b'{"access_token": "a b", "expires_in": 5}', "cannot be used"),
        (200, b'{"access_token": "a.%.c", "expires_in": true}', "does not say when"),
        (200, b'{"access_token": "a.%.c", "expires_in": 1e999}', "does not say when"),
        (200, b'{"access_token": "a.%.c", "expires_in": "' + b"9" * 400 + b'"}', "does not say"),
    ],
)
def test_what_a_failure_says(status: int, body: bytes, expected: str) -> None:
    """Which provider, which status and error; the secret never, and no redirection is followed."""
    with provider(status, body) as url, pytest.raises(TokenRequestError, match=expected) as caught:
        client(url)()
    assert SECRET[:8] not in str(caught.value)
    assert url in str(caught.value) or "cannot be used" in str(caught.value)
    assert len(Provider.seen) == 1


@pytest.mark.parametrize("encode", [quote, quote_plus, str])
def test_a_provider_that_repeats_an_encoded_secret(encode: Callable[[str], str]) -> None:
    """The secret is hidden in each form in which it can have been sent."""
    words = {"error": "x", "error_description": f"no {encode('a/b+c d')}"}
    with (
        provider(401, json.dumps(words).encode()) as url,
        pytest.raises(TokenRequestError, match=r"x \(no <secret>\)$"),
    ):
        attrs.evolve(client(url, url_encode=True), client_secret="a/b+c d")()  # noqa: S106


def test_a_provider_that_is_away() -> None:
    """The error names it."""
    with provider(200, b"") as url:
        pass
    with pytest.raises(TokenRequestError, match="/token cannot be reached: .*refused"):
        client(url)()


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("token_endpoint", {"token_endpoint": "http://example.com/token"}),
        ("token_endpoint", {"token_endpoint": "https://user:word@example.com/token"}),
        ("token_endpoint", {"token_endpoint": "ftp://localhost/token"}),
        ("token_endpoint", {"token_endpoint": "https://example.com/\r\n"}),
        ("client_id", {"client_id": ""}),
        ("client_secret", {"client_secret": ""}),
        ("ca", {"ca": "/nowhere.pem"}),
        ("ca", {"ca": 5}),
        ("extensions", {"extensions": {"auth": "x"}}),
        ("extensions", {"extensions": {"a b": "x"}}),
        ("timeout", {"timeout": 0}),
    ],
)
def test_settings_that_are_refused(field: str, settings: dict[str, Any]) -> None:
    """By name, at construction, without the secret."""
    usual = {
        "token_endpoint": "https://example.com/token",
        "client_id": "kgroup",
        "client_secret": SECRET,
    }
    with pytest.raises(ConfigError, match=field) as caught:
        OidcClientCredentials(**{**usual, **settings})
    assert SECRET not in str(caught.value)


def test_its_repr_has_no_secret() -> None:
    """Not even in a config that holds it."""
    assert SECRET not in repr(client("https://example.com/token"))
