"""``OidcClientCredentials``: tokens from an identity provider, by OAuth's client credentials grant.

It is a function for ``Security.token``, called in a thread. One POST is sent for each token; kgroup
keeps the token for both planes, and calls again ahead of its end.

Source: RFC 6749, section 4.4; KIP-768, KIP-1139.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.init_hints import typed_init
from kgroup.security.credentials import EXTENSIONS, SECRET, Token
from kgroup.security.pem import PLACE, authorities_place, load_authorities
from kgroup.security.secret import Secret, sealed, secret, without_locals

MOST_BYTES: Final = 1024 * 1024
"""The longest response of an identity provider that is read."""
_ENCODINGS: Final[tuple[Callable[[str], str], ...]] = (
    urllib.parse.quote_plus,
    urllib.parse.quote,
    str,
)
"""How a secret may be written in a provider's words, itself the last."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@final
class TokenRequestError(Exception):
    """The identity provider gave no token; the text says why, without a secret."""


@final
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection would send the client's secret to another place."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the response is an error then."""


def _new_opener(endpoint: str, ca: str | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [
        _NoRedirect(),
        urllib.request.HTTPSHandler(context=_context(ca)),
    ]
    if urllib.parse.urlsplit(endpoint).scheme == "http":
        # A proxy of the environment would get the secret in plain text.
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _is_endpoint(value: object) -> bool:
    if not isinstance(value, str):
        return False
    parts = urllib.parse.urlsplit(value)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    return safe and bool(parts.hostname) and parts.username is None and value.isprintable()


@final
@typed_init(Path=Path)
@sealed("client_secret", places=("token_endpoint", "ca"))
@attrs.frozen(kw_only=True)
class OidcClientCredentials:
    """Fetches tokens with a client's id and secret; pass it as ``Security.token``.

    Attributes:
        token_endpoint: the URL; ``http`` is allowed on this machine only.
        client_id: the client.
        client_secret: its secret.
        scope: the scopes to request, separated by spaces, or None.
        ca: the authorities of the provider's certificate: a file or a folder of PEM, or PEM itself;
            None means those of the system.
        extensions: SASL extensions that are sent with the token, such as Confluent Cloud's
            ``logicalCluster`` and ``identityPoolId``.
        url_encode: whether id and secret are URL-encoded before they become the user and password
            of HTTP's Basic login, as RFC 6749 demands; many providers expect it to be left out.
        timeout: seconds in which the provider has to respond at each step.

    Raises:
        ConfigError: a value is not allowed, or the authorities cannot be read.
    """

    token_endpoint: str = attrs.field(
        validator=bounds.Bound(
            _is_endpoint, "it must be an https URL without a user, or http on this machine"
        )
    )
    client_id: str = attrs.field(validator=bounds.text())
    client_secret: Secret = attrs.field(converter=secret, validator=SECRET)
    scope: str | None = attrs.field(default=None, validator=bounds.optional(bounds.text()))
    ca: str | None = attrs.field(default=None, converter=authorities_place, validator=PLACE)
    extensions: Mapping[str, str] = attrs.field(factory=dict, validator=EXTENSIONS, hash=False)
    url_encode: bool = attrs.field(default=False, validator=bounds.flag())
    timeout: float = attrs.field(default=10.0, validator=bounds.number(0.1, 60.0))
    _opener: urllib.request.OpenerDirector = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Read the authorities, once the settings have been checked."""
        object.__setattr__(self, "_opener", _new_opener(self.token_endpoint, self.ca))

    @without_locals()
    def __call__(self) -> Token:
        """Request a token.

        Raises:
            TokenRequestError: there is none; the text says why.
        """
        began = time.time()
        answer = self._post()
        text = answer.get("access_token")
        if not isinstance(text, str) or not text:
            raise TokenRequestError(f"{self._place} answered without an access_token")
        claims = _claims(text)
        expires_at = _number(claims.get("exp"))
        if (lifetime := _number(answer.get("expires_in"))) is not None:
            # It does not depend on the provider's clock.
            expires_at = began + lifetime
        if expires_at is None:
            raise TokenRequestError(f"{self._place} does not say when its token expires")
        try:
            principal = str(claims.get("sub") or self.client_id)
            return Token(text, expires_at, principal, self.extensions)
        except ConfigError as error:
            raise TokenRequestError(f"the token of {self._place} cannot be used: {error}") from None

    @property
    def _place(self) -> str:
        parts = urllib.parse.urlsplit(self.token_endpoint)
        return f"the identity provider {parts.scheme}://{parts.netloc}{parts.path}"

    def _post(self) -> Mapping[str, Any]:
        fields = {"grant_type": "client_credentials"}
        if self.scope is not None:
            fields["scope"] = self.scope
        request = urllib.request.Request(  # noqa: S310 # the scheme has been checked
            self.token_endpoint,
            urllib.parse.urlencode(fields).encode(),
            {
                "Authorization": f"Basic {self._login().reveal()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                answer = _object(response.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                failure = self._refusal(error)
        except (OSError, HTTPException) as error:
            reason = self._shown(getattr(error, "reason", error))
            failure = f"{self._place} cannot be reached: {reason:.300}"
        else:
            if answer is not None:
                return answer
            failure = f"{self._place} answered with something that is no JSON object"
        # Out here it has no context: that of a response cut short has a part of the token.
        raise TokenRequestError(failure)

    def _login(self) -> Secret:
        """User and password, as HTTP's Basic login sends them."""
        pair = self.client_id, self.client_secret.reveal()
        if self.url_encode:
            pair = urllib.parse.quote_plus(pair[0]), urllib.parse.quote_plus(pair[1])
        return Secret(base64.b64encode(":".join(pair).encode()).decode())

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        reason = f"{self._place} answered with status {error.code}"
        try:
            answer = _object(error.read(MOST_BYTES)) or {}
        except (OSError, HTTPException):
            answer = {}
        if answer.get("error"):
            reason += f", {self._shown(answer['error']):.100}"
        if answer.get("error_description"):
            reason += f" ({self._shown(answer['error_description']):.200})"
        return reason

    def _shown(self, words: object) -> str:
        """The provider's words in one line, without the secret; to be cut only afterwards."""
        text = self._login().hidden_in(str(words))
        # A provider that repeats what it got may have got it encoded, or encode it itself.
        for encode in _ENCODINGS:
            text = Secret(encode(self.client_secret.reveal())).hidden_in(text)
        return " ".join(text.split())


def _context(ca: str | None) -> ssl.SSLContext:
    """A context that accepts what those for brokers accept."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_authorities(context, ca)
    return context


def _claims(token: str) -> Mapping[str, Any]:
    """The claims of a token that is a JWT; nothing is checked, since that is the broker's task."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) or {}
    except (binascii.Error, ValueError):
        return {}


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: object) -> float | None:
    number: object = value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        number = float(value)
    if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < 1e11:
        return float(number)
    return None
