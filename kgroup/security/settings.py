"""``Security``: how a client and the brokers of a cluster know and trust each other.

One value serves both planes: the group's own connections, and librdkafka's. What librdkafka cannot
do is refused here, when the value is made, so that no plane works where the other one fails.

Source: KIP-12 (SASL and TLS), KIP-255 (OAUTHBEARER); docs/security.md explains the choices.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Literal, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.init_hints import typed_init
from kgroup.security.credentials import (
    SECRET,
    Credentials,
    CredentialsProvider,
    TokenProvider,
)
from kgroup.security.other_logins import instead_of
from kgroup.security.pem import (
    CERTIFICATE_PLACE,
    PLACE,
    SECRET_PLACE,
    authorities_place,
    certificate_place,
    secret_place,
)
from kgroup.security.properties import Properties, PropertySource
from kgroup.security.secret import Secret, sealed, secret
from kgroup.security.setting_names import names_checked


@final
class SecurityProtocol(enum.Enum):
    """Kafka's names of the four kinds of listeners."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """Whether clients log in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


ProtocolName = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""The values of `SecurityProtocol`."""


@final
class SaslMechanism(enum.Enum):
    """The SASL mechanisms that both planes can use."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


MechanismName = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
"""The values of `SaslMechanism`."""


@final
class TlsVersion(enum.Enum):
    """The versions of TLS that can be demanded, by Java's names."""

    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


TlsVersionName = Literal["TLSv1.2", "TLSv1.3"]
"""The values of `TlsVersion`."""


def _version(value: TlsVersionName | str | TlsVersion) -> TlsVersion:
    return bounds.member_of(TlsVersion, value)


def _protocol(value: ProtocolName | str | SecurityProtocol) -> SecurityProtocol:
    text = value.upper() if isinstance(value, str) else value
    return bounds.member_of(SecurityProtocol, text)


def _mechanism(value: MechanismName | str | SaslMechanism | None) -> SaslMechanism | None:
    text = value.upper() if isinstance(value, str) else value
    if isinstance(text, str) and (instead := instead_of(text)):
        names = ", ".join(one.value for one in SaslMechanism)
        raise ConfigError("mechanism", value, f"{instead}; it must be one of {names}")
    return value if value is None else bounds.member_of(SaslMechanism, text)


def _returns(kind: str) -> bounds.Bound:
    wanted = f"it must be a function that returns a kgroup.{kind}"
    return bounds.optional(bounds.Bound(callable, wanted))


@final
@typed_init(Path=Path)
@sealed(
    "key",
    "key_password",
    "password",
    places=("ca", "certificate"),
    functions=("credentials", "token"),
)
@names_checked("Security")
@attrs.frozen(kw_only=True)
class Security:
    """How the group's connections are encrypted, and how the client logs in.

    Attributes:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in any case.
        ca: which certificate authorities to trust: a file or a folder of PEM, or PEM itself; None
            means those of the system.
        certificate: the client's certificate with its chain, for brokers that ask for one: a file
            of PEM, or PEM itself.
        key: the private key of the certificate: a file of PEM, or PEM itself. None means that the
            file or the text of the certificate has it; such a text is a secret then.
        key_password: the password of the key.
        check_hostname: whether the broker's certificate must name the host that was connected to.
            If it need not, any certificate of a trusted authority passes for every broker.
        minimum_version: the oldest version of TLS that is accepted, TLSv1.2 or TLSv1.3.
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: the user, for all mechanisms but OAUTHBEARER.
        password: the user's password.
        credentials: a function, sync or async, that looks up user name and password for each
            login, in place of ``username`` and ``password``.
        token: for OAUTHBEARER, a function, sync or async, that returns a `Token`.

    Raises:
        ConfigError: a value is not allowed, missing, or without effect under the protocol, or a
            name is unknown.
    """

    protocol: SecurityProtocol = attrs.field(
        default=SecurityProtocol.PLAINTEXT,
        converter=_protocol,
        validator=bounds.one_of(SecurityProtocol),
    )
    ca: str | None = attrs.field(default=None, converter=authorities_place, validator=PLACE)
    certificate: str | Secret | None = attrs.field(
        default=None, converter=certificate_place, validator=CERTIFICATE_PLACE
    )
    key: Secret | None = attrs.field(default=None, converter=secret_place, validator=SECRET_PLACE)
    key_password: Secret | None = attrs.field(
        default=None, converter=secret, validator=bounds.optional(SECRET)
    )
    check_hostname: bool = attrs.field(default=True, validator=bounds.flag())
    minimum_version: TlsVersion = attrs.field(
        default=TlsVersion.TLS_1_2, converter=_version, validator=bounds.one_of(TlsVersion)
    )
    mechanism: SaslMechanism | None = attrs.field(
        default=None,
        converter=_mechanism,
        validator=bounds.optional(bounds.one_of(SaslMechanism)),
    )
    username: str | None = attrs.field(default=None, validator=bounds.optional(bounds.text()))
    password: Secret | None = attrs.field(
        default=None, converter=secret, validator=bounds.optional(SECRET)
    )
    credentials: CredentialsProvider | None = attrs.field(
        default=None, validator=_returns("Credentials"), repr=False, hash=False
    )
    token: TokenProvider | None = attrs.field(
        default=None, validator=_returns("Token"), repr=False, hash=False
    )

    def __attrs_post_init__(self) -> None:
        """Check the rules between settings."""
        protocol = f"protocol {self.protocol.value}"
        # The default is what a program has that forgot to set it.
        unset = self.protocol is SecurityProtocol.PLAINTEXT
        instead = "leave it out, or set protocol, such as SASL_SSL" if unset else "leave it out"
        if not self.protocol.tls:
            for name in ("ca", "certificate", "key", "key_password"):
                self._refuse(name, f"{protocol} has no TLS; {instead}")
        if not self.protocol.sasl:
            for name in ("mechanism", "username", "password", "credentials", "token"):
                self._refuse(name, f"{protocol} has no login; {instead}")
            return
        if self.mechanism is None:
            names = ", ".join(one.value for one in SaslMechanism)
            raise ConfigError("mechanism", None, f"with a login it must be one of {names}")
        if self.mechanism is SaslMechanism.OAUTHBEARER:
            for name in ("username", "password", "credentials"):
                self._refuse(name, "OAUTHBEARER logs in with a token; leave it out")
            if self.token is None:
                raise ConfigError(
                    "token", None, "OAUTHBEARER needs a function that returns a Token"
                )
            return
        self._refuse("token", f"{self.mechanism.value} logs in with a password; leave it out")
        self._check_password_login()

    def _check_password_login(self) -> None:
        if self.credentials is not None:
            for name in ("username", "password"):
                self._refuse(name, "credentials() gives it; leave one of the two out")
            return
        for name in ("username", "password"):
            if getattr(self, name) is None:
                raise ConfigError(name, None, "this login needs it, or else credentials")
        if self.mechanism is not SaslMechanism.PLAIN and not (self.username or "").isascii():
            raise ConfigError(
                "username",
                self.username,
                "brokers refuse every SCRAM login of a user whose name is not ASCII",
            )

    def _refuse(self, name: str, reason: str) -> None:
        value: Any = getattr(self, name)
        if value is not None:
            raise ConfigError(name, value, reason)

    @classmethod
    def from_properties(cls, source: PropertySource | Properties, **fields: Any) -> Security:
        """Make it of the properties of Kafka's Java client or of librdkafka, by either's names.

        A file is one of Java's properties files. Values may refer to others as
        ``${env:NAME}`` (an environment variable), ``${file:path:key}`` (another properties file)
        or ``${directory:path:file}``. Properties that concern no connection are not used.

        Args:
            source: the path of a properties file, or names and values.
            fields: fields of this class, which take precedence.

        Raises:
            ConfigError: a property is unknown, has a wrong value, or asks for what kgroup cannot
                do; the error names it. No error shows a secret.

        Source: KIP-12, KIP-85 (``sasl.jaas.config``), KIP-651 (PEM), KIP-421 (``${env:NAME}``).
        """
        properties = source if isinstance(source, Properties) else Properties(source)
        del source
        # A name that is unknown may be a secret's, too.
        plain = attrs.fields_dict(cls).keys() - {"password", "key", "key_password"}
        given = {name: value if name in plain else secret(value) for name, value in fields.items()}
        del fields
        with properties.naming_errors(given):
            return cls(**{**properties.security(given), **given})

    @property
    def dynamic(self) -> bool:
        """Whether what to log in with is looked up by a function."""
        return self.credentials is not None or self.token is not None

    @property
    def static_credentials(self) -> Credentials | None:
        """User name and password, if they were given as such."""
        if self.username is None or self.password is None:
            return None
        return Credentials(self.username, self.password)
