"""Functions that fetch tokens, made of the properties of other clients.

Both clients request tokens by OAuth's client credentials grant, and make unsecured ones for tests.
The Java client reads client id, secret and scope from properties (KIP-1139), or else from the
options of its login module; librdkafka has them as properties.

Source: KIP-255, KIP-768, KIP-1139; librdkafka's CONFIGURATION.md (``sasl.oauthbearer.*``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.security.credentials import Token, TokenProvider
from kgroup.security.jaas import LoginModule
from kgroup.security.secret import Hidden, Secret
from kgroup.security.unsecured_token import is_unsecured, read_unsecured

JAAS: Final = "sasl.jaas.config"
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials."
_PROPERTIES: Final = {
    "token_endpoint": "sasl.oauthbearer.token.endpoint.url",
    "client_id": f"{_CREDENTIALS}client.id",
    "client_secret": f"{_CREDENTIALS}client.secret",
    "scope": "sasl.oauthbearer.scope",
    "extensions": "sasl.oauthbearer.extensions",
    "url_encode": "sasl.oauthbearer.header.urlencode",
    "ca": "https.ca.location",
}
"""Each field of ``OidcClientCredentials``, and the property that an error names."""
_OPTIONS: Final = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
"""The options of the login module, and the fields that they set."""
_EXTENSION: Final = "extension_"
_NEEDED: Final = ("token_endpoint", "client_id", "client_secret")


def token_provider(fields: Mapping[str, Any], module: LoginModule | None) -> TokenProvider:
    """Make the function that fetches tokens.

    Args:
        fields: the fields that properties set; the client's secret is a `Secret`.
        module: the login module, or None.

    Raises:
        ConfigError: a value is missing or not allowed; the error names the property.
    """
    if module is not None and is_unsecured(module.options):
        if fields:
            first = _PROPERTIES[next(iter(fields))]
            raise ConfigError(
                first, Hidden("..."), f"{JAAS} asks for unsecured tokens; leave one out"
            )
        return _unsecured(module)
    given = dict(fields)
    if module is not None:
        _add_options(given, module)
    for name in _NEEDED:
        if name not in given:
            raise ConfigError(
                _PROPERTIES[name],
                None,
                "tokens are requested with it; give it, or a function as Security.token",
            )
    return _oidc(given)


def _add_options(given: dict[str, Any], module: LoginModule) -> None:
    """Add what the options of a login module say."""
    extensions = dict(given.get("extensions", {}))
    for option in module.options:
        held = extensions if option.startswith(_EXTENSION) else given
        name = _OPTIONS.get(option, option.removeprefix(_EXTENSION))
        if held is given and option not in _OPTIONS:
            raise ConfigError(JAAS, Hidden("<secret>"), _unknown(option))
        value: Any = module.options[option]
        if name == "client_secret":
            value = Secret(value)
        if held.setdefault(name, value) != value:
            origin = _PROPERTIES["extensions" if held is extensions else name]
            raise ConfigError(JAAS, Hidden("<secret>"), f"{origin} says otherwise; leave one out")
    if extensions:
        given["extensions"] = extensions


def _unknown(option: str) -> str:
    if option.startswith("ssl."):
        return (
            f"the option {option} is not possible; give the provider's authority in PEM with"
            " https.ca.location"
        )
    hint = bounds.did_you_mean(option, (*_OPTIONS, "unsecuredLoginStringClaim_sub"))
    return f"OAuthBearerLoginModule has no option {option!r:.100}{hint}"


def _oidc(given: Mapping[str, Any]) -> TokenProvider:
    # Its HTTP client takes a while to import, and few programs need it.
    from kgroup.security.oidc import OidcClientCredentials

    try:
        return OidcClientCredentials(**given)
    except ConfigError as error:
        raise ConfigError(_PROPERTIES[error.field], error.value, error.allowed) from None


def _unsecured(module: LoginModule) -> TokenProvider:
    try:
        made = read_unsecured(module.options)
    except ValueError as error:
        raise ConfigError(JAAS, Hidden("<secret>"), str(error)) from None

    def token() -> Token:
        value, expires_at = made.make()
        return Token(value, expires_at, made.principal, made.extensions)

    return token
