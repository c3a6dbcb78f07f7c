"""Listeners of the real Kafka with TLS and logins, beside the plain one.

The plain listener stays, for administration: its clients are superusers. Users of a secure listener
may do what ACLs allow them.

Source: Kafka's documentation of security; the keys are converted because Kafka's PEM store reads
PKCS#8 only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

import attrs
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from kgroup.errors import ConfigError
from kgroup.security.credentials import Token
from kgroup.security.settings import SaslMechanism, Security, SecurityProtocol
from kgroup.security.unsecured_token import UnsecuredToken

MECHANISMS: Final = tuple(SaslMechanism)
_WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
_MODULES: Final = "org.apache.kafka.common.security"


def _check_users(_: object, attribute: attrs.Attribute[Any], value: Mapping[str, str]) -> None:
    """Names and passwords stand in lists that Kafka gives no way to quote."""
    for word in (*value, *value.values()):
        if not _WORD.fullmatch(word):
            raise ConfigError(
                attribute.name, word, "it must have ASCII letters, digits, '.', '_' and '-' only"
            )


@final
@attrs.define(eq=False)
class SecureListener:
    """TLS and SASL for `RealKafka`.

    Args:
        users: user names and passwords, for PLAIN and SCRAM; ASCII letters, digits, '.', '_', '-'.
        tls: whether connections are encrypted.
        client_certificates: whether a client has to show a certificate; then it needs no login.
        session_lifetime: the seconds after which a client has to log in again (KIP-368).
        properties: further properties of the broker, for example of the listener
            (``listener.name.secure...``).
        name: its name in Kafka's properties; each listener of a broker needs its own.
        certified: the hosts that the broker's certificate names; by default those that it has.
        expires_at: when the broker's certificate expires; long after the test, by default.
        authority: the certificate authority that issues the broker's certificate, and whose client
            certificates it accepts; by default one of its own.
    """

    users: Mapping[str, str] = attrs.field(factory=dict, validator=_check_users)
    tls: bool = True
    client_certificates: bool = False
    session_lifetime: float | None = None
    properties: Mapping[str, str] = attrs.field(factory=dict)
    name: str = attrs.field(default="SECURE", validator=attrs.validators.matches_re(r"[A-Z]+"))
    certified: Sequence[str] = ()
    expires_at: datetime | None = None
    authority: trustme.CA = attrs.field(factory=trustme.CA)

    @property
    def protocol(self) -> SecurityProtocol:
        """The protocol of its clients."""
        if self.client_certificates:
            return SecurityProtocol.SSL
        return SecurityProtocol.SASL_SSL if self.tls else SecurityProtocol.SASL_PLAINTEXT

    @property
    def ca(self) -> str:
        """The certificate of the authority, as PEM."""
        return self.authority.cert_pem.bytes().decode()

    def login(
        self, username: str, mechanism: str | SaslMechanism = SaslMechanism.SCRAM_SHA_512
    ) -> Security:
        """The settings with which a client logs in as one of the users."""
        return Security(
            protocol=self.protocol,
            ca=self.ca if self.protocol.tls else None,
            mechanism=SaslMechanism(mechanism),
            username=username,
            password=self.users[username],
        )

    def listener(self, host: str, port: int) -> str:
        """Its entry in Kafka's ``listeners``."""
        return f"{self.name}://{host}:{port}"

    def write(self, folder: Path, host: str) -> dict[str, str]:
        """Write the certificates into a folder; return the broker's properties."""
        prefix = f"listener.name.{self.name.lower()}"
        properties = {
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The clients of the plain listener and of the controller's have no other name.
            "super.users": "User:ANONYMOUS",
        }
        if self.protocol.sasl:
            properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(
                mechanism.value for mechanism in MECHANISMS
            )
            plain = " ".join(f'user_{name}="{word}"' for name, word in self.users.items())
            for mechanism, module in (
                ("plain", f"{_MODULES}.plain.PlainLoginModule required {plain}"),
                ("scram-sha-256", f"{_MODULES}.scram.ScramLoginModule required"),
                ("scram-sha-512", f"{_MODULES}.scram.ScramLoginModule required"),
                ("oauthbearer", f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"),
            ):
                properties[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{module};"
        if self.session_lifetime is not None:
            milliseconds = str(round(self.session_lifetime * 1000))
            properties[f"{prefix}.connections.max.reauth.ms"] = milliseconds
        if self.protocol.tls:
            properties |= self._certificates(folder, prefix, host)
        return properties | dict(self.properties)

    def _certificates(self, folder: Path, prefix: str, host: str) -> dict[str, str]:
        hosts = self.certified or (host, "localhost")
        certificate = self.authority.issue_cert(*hosts, not_after=self.expires_at)
        authority, own = folder / f"{self.name}-ca.pem", folder / f"{self.name}.pem"
        authority.write_text(self.ca)
        own.write_bytes(
            in_pkcs8(certificate.private_key_pem.bytes())
            + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )
        properties = {
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": str(own),
            f"{prefix}.ssl.truststore.type": "PEM",
            f"{prefix}.ssl.truststore.location": str(authority),
        }
        if self.client_certificates:
            properties[f"{prefix}.ssl.client.auth"] = "required"
            properties["ssl.principal.mapping.rules"] = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"
        return properties


def write_all(listeners: Sequence[SecureListener], folder: Path, host: str) -> dict[str, str]:
    """Write the certificates of a broker's listeners into a folder; return its properties."""
    if not listeners:
        return {}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    properties: dict[str, str] = {}
    for listener in listeners:
        properties |= listener.write(folder, host)
        protocols[listener.name] = listener.protocol.value
    if len(protocols) < 2 + len(listeners):
        names = ", ".join(listener.name for listener in listeners)
        raise ConfigError("name", names, "each listener needs a name of its own")
    pairs = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    return {"listener.security.protocol.map": pairs, **properties}


def format_arguments(listeners: Sequence[SecureListener]) -> list[str]:
    """Options of Kafka's StorageTool that make the users of SCRAM, which all listeners share."""
    users = {name: word for listener in listeners for name, word in listener.users.items()}
    return [
        part
        for name, word in users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{mechanism}=[name={name},password={word}]")
    ]


def in_pkcs8(key: bytes) -> bytes:
    """A private key in PEM, in the form that Java reads."""
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def unsecured_token(username: str, lifetime: float = 3600.0) -> Token:
    """A token without a signature, which Kafka's default validator accepts in tests."""
    value, expires_at = UnsecuredToken({"sub": username}, username, lifetime, {}).make()
    return Token(value, expires_at, username)
