"""``Security`` as properties of librdkafka, for the data plane.

Source: librdkafka's CONFIGURATION.md (2.16).
"""

from __future__ import annotations

from typing import Final

from kgroup.security.pem import is_pem, text_of
from kgroup.security.settings import Security, TlsVersion
from kgroup.security.ssl_contexts import system_authorities

_NONE_OF_TLS_1_2: Final = "PSK-AES128-GCM-SHA256"
"""Keeps librdkafka from TLS 1.2, for which it has no setting: this suite needs a key that both
sides share beforehand, and librdkafka never has one. The suites of TLS 1.3 remain."""


def librdkafka_settings(security: Security) -> dict[str, str]:
    """The properties without those of a login whose credentials change."""
    settings = {"security.protocol": security.protocol.value}
    if security.protocol.tls:
        settings.update(_tls(security))
    if security.mechanism is not None:
        settings["sasl.mechanism"] = security.mechanism.value
    if (credentials := security.static_credentials) is not None:
        settings["sasl.username"] = credentials.username
        settings["sasl.password"] = credentials.password.reveal()
    return settings


def _tls(security: Security) -> dict[str, str]:
    settings = {
        "ssl.endpoint.identification.algorithm": "https" if security.check_hostname else "none"
    }
    if security.minimum_version is TlsVersion.TLS_1_3:
        settings["ssl.cipher.suites"] = _NONE_OF_TLS_1_2
    # The wheel of confluent-kafka looks for the system's authorities elsewhere than Python does.
    if (ca := security.ca or system_authorities()) is not None:
        settings["ssl.ca.pem" if is_pem(ca) else "ssl.ca.location"] = ca
    if security.certificate is not None:
        certificate = text_of(security.certificate)
        key = certificate if security.key is None else security.key.reveal()
        settings[_place("certificate", certificate)] = certificate
        settings[_place("key", key)] = key
    if security.key_password is not None:
        settings["ssl.key.password"] = security.key_password.reveal()
    return settings


def _place(what: str, value: str) -> str:
    return f"ssl.{what}.{'pem' if is_pem(value) else 'location'}"
