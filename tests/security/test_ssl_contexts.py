"""TLS contexts of clients, where no temporary file can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import trustme

from kgroup.errors import ConfigError
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.settings import Security
from kgroup.security.ssl_context_cache import SslContexts
from kgroup.security.ssl_contexts import client_context


@pytest.fixture
def issued() -> trustme.LeafCert:
    """A certificate of a client."""
    return trustme.CA().issue_cert("client.test")


def security_by_texts(issued: trustme.LeafCert) -> Security:
    """A certificate and a key that are given as texts."""
    chain, key = issued.cert_chain_pems[0], issued.private_key_pem
    return Security(protocol="SSL", certificate=chain.bytes().decode(), key=key.bytes().decode())


def security_by_paths(issued: trustme.LeafCert, folder: Path) -> Security:
    """A certificate and a key in files."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    return Security(protocol="SSL", certificate=str(chain), key=str(key))


def test_files_need_no_temporary_folder(
    issued: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container whose file system is read-only, certificates in files are read."""
    security = security_by_paths(issued, tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    client_context(security)


@pytest.mark.parametrize("key_only", [False, True])
def test_texts_without_a_temporary_folder(
    issued: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_only: bool
) -> None:
    """They are refused by name, with what to do, and nothing of the key is shown."""
    security = security_by_texts(issued)
    if key_only:
        chain = security_by_paths(issued, tmp_path).certificate
        key = issued.private_key_pem.bytes().decode()
        security = Security(protocol="SSL", certificate=chain, key=key)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="let TMPDIR name a folder") as refused:
        client_context(security)
    assert str(refused.value).startswith("key=" if key_only else "certificate=")
    assert "PRIVATE KEY" not in str(refused.value)


def test_a_text_with_certificate_and_key_is_enough(issued: trustme.LeafCert) -> None:
    """It is a certificate with its key to Python and to librdkafka; authorities lose the key."""
    text = issued.private_key_and_cert_chain_pem.bytes().decode()
    security = Security(protocol="SSL", certificate=text, ca=text)
    client_context(security)
    settings = librdkafka_settings(security)
    assert settings["ssl.certificate.pem"] == settings["ssl.key.pem"] == text
    assert settings["ssl.ca.pem"].strip() == issued.cert_chain_pems[0].bytes().decode().strip()


def test_a_renewed_certificate_waits_for_a_temporary_folder(
    issued: trustme.LeafCert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are made with the last context until the disk has room again."""
    by_paths = security_by_paths(issued, tmp_path)
    key = issued.private_key_pem.bytes().decode()
    contexts = SslContexts(Security(protocol="SSL", certificate=by_paths.certificate, key=key))
    first = contexts.current()
    usual = tempfile.gettempdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    chain = tmp_path / "chain.pem"
    chain.write_text(chain.read_text() + "\n")
    assert contexts.current() is first
    monkeypatch.setattr(tempfile, "tempdir", usual)
    assert contexts.current() is not first
