"""Python's TLS contexts, made from `Security` so that both planes accept the same certificates.

OpenSSL itself decides what a valid certificate is, as in librdkafka. Python 3.13's own defaults
would refuse authorities without an Authority Key Identifier, which many private ones lack and
which librdkafka accepts; so they are not used.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kgroup.errors import ConfigError
from kgroup.security.pem import brief, is_pem, load_authorities, text_of, why_unreadable
from kgroup.security.secret import Secret, without_locals
from kgroup.security.settings import Security, TlsVersion

_PASSWORD: Final = "key_password"  # noqa: S105 # the name of the setting
_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}


def client_context(security: Security) -> ssl.SSLContext:
    """A context for connections to brokers. It reads the files that the settings name.

    Raises:
        ConfigError: a file cannot be read or has no such certificate or key, or the password of
            the key is missing or wrong; the error names the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[security.minimum_version]
    context.check_hostname = security.check_hostname
    load_authorities(context, security.ca)
    if security.certificate is not None:
        _load_certificate(context, security.certificate, security.key, security.key_password)
    return context


def system_authorities() -> str | None:
    """The file or folder of the system's authorities, for librdkafka; None if Python has none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


@without_locals()
def _load_certificate(
    context: ssl.SSLContext,
    certificate: str | Secret,
    key: Secret | None,
    password: Secret | None,
) -> None:
    asked = False

    def give_password() -> str:
        nonlocal asked
        asked = True
        # Without a function OpenSSL would ask at the terminal.
        return "" if password is None else password.reveal()

    with _as_files(certificate, key) as (chain, private):
        try:
            context.load_cert_chain(chain, private, give_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            if asked and password is None:
                raise ConfigError(
                    _PASSWORD, None, "the private key is encrypted; give its password"
                ) from None
            if asked:
                raise ConfigError(
                    _PASSWORD, password, f"it does not decrypt the private key: {error}"
                ) from None
            missing = [
                name
                for name, place in (("certificate", chain), ("key", private))
                if place is not None and not os.access(place, os.R_OK)
            ]
            field = missing[0] if missing else "certificate"
            raise ConfigError(
                field,
                brief(certificate) if field == "certificate" else key,
                f"no certificate with its private key can be read: {why_unreadable(chain, error)}",
            ) from None


@contextmanager
def _as_files(certificate: str | Secret, key: Secret | None) -> Iterator[tuple[str, str | None]]:
    """Their paths; or those of files with these texts, which OpenSSL's Python interface demands."""
    as_text = is_pem(text_of(certificate))
    if not as_text and (key is None or not is_pem(key.reveal())):
        # Nothing is written then: there may be no folder that can be written.
        yield text_of(certificate), None if key is None else key.reveal()
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="kgroup-")
    except OSError as error:
        raise _not_written(certificate, key, error) from None
    with folder as path:
        try:
            chain = _as_file(text_of(certificate), Path(path) / "certificate.pem")
            private = None if key is None else _as_file(key.reveal(), Path(path) / "key.pem")
        except OSError as error:
            raise _not_written(certificate, key, error) from None
        yield chain, private


def _as_file(place: str, file: Path) -> str:
    if not is_pem(place):
        return place
    file.touch(mode=0o600)
    file.write_text(place, encoding="ascii")
    return str(file)


def _not_written(certificate: str | Secret, key: Secret | None, error: OSError) -> ConfigError:
    as_text = is_pem(text_of(certificate))
    return ConfigError(
        "certificate" if as_text else "key",
        brief(certificate) if as_text else key,
        "OpenSSL reads such a text only from a file, and no temporary one can be written"
        f" ({error.strerror or error}): give the path of a file, or let TMPDIR name a folder that"
        " can be written",
    )
