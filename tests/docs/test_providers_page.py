"""docs/providers.md: its settings are made, are the same in both forms, and start librdkafka."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import confluent_kafka
import pytest
import trustme

from kgroup.config import GroupConfig
from kgroup.records.librdkafka_settings import consumer_settings
from kgroup.security.settings import Security
from kgroup.security.ssl_contexts import client_context

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text()
_LINES: Final = r"((?:(?!```).*\n)+)```\n"
PYTHON: Final = re.findall(rf"^```python\n{_LINES}", PAGE, re.MULTILINE)
PAIRS: Final = re.findall(rf"^```python\n{_LINES}\n```properties\n{_LINES}", PAGE, re.MULTILINE)
VARIABLES: Final = (
    "CLIENT_SECRET",
    "CLUSTER_API_KEY",
    "CLUSTER_API_SECRET",
    "EVENT_HUBS_CONNECTION_STRING",
    "KAFKA_PASSWORD",
)
SIGNER: Final = "aws_msk_iam_sasl_signer"


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files, variables and packages that the settings name."""
    authority = trustme.CA()
    issued = authority.issue_cert("client.example.com")
    monkeypatch.chdir(tmp_path)
    authority.cert_pem.write_to_path("ca.pem")
    for certificate, key in (("user.crt", "user.key"), ("service.cert", "service.key")):
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
    for name in VARIABLES:
        monkeypatch.setenv(name, f"{name}-value")
    package: Any = ModuleType(SIGNER)
    package.MSKAuthTokenProvider = SimpleNamespace(
        generate_auth_token=lambda region: (f"token-of-{region}", 4e12)
    )
    monkeypatch.setitem(sys.modules, SIGNER, package)


def made(code: str) -> Security:
    """The settings that a block of Python makes."""
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 # the page's own code
    security = names["security"]
    assert isinstance(security, Security)
    return security


def test_every_block_is_read() -> None:
    """All forms but that of Amazon's tokens have a property file."""
    assert len(PYTHON) == PAGE.count("```python")
    assert len(PAIRS) == PAGE.count("```properties") == len(PYTHON) - 1


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_both_planes_take_the_settings(code: str) -> None:
    """The group's own connections have a context, and librdkafka starts."""
    security = made(code)
    client_context(security)
    config = GroupConfig(
        bootstrap_servers="localhost:1", group_id="g", topics=["t"], security=security
    )
    settings: dict[str, Any] = {**consumer_settings(config), "log_level": 0}
    if security.token is not None:
        settings["oauth_cb"] = lambda _: ("x", 4e9)
    confluent_kafka.Consumer(settings).close()


@pytest.mark.parametrize(("code", "properties"), PAIRS, ids=range(len(PAIRS)))
def test_both_forms_are_the_same(code: str, properties: str, tmp_path: Path) -> None:
    """The property file gives what the Python code does."""
    file = tmp_path / "client.properties"
    file.write_text(properties)
    assert Security.from_properties(file) == made(code)


def test_the_tokens_of_amazon() -> None:
    """Its milliseconds become seconds."""
    (code,) = [code for code in PYTHON if SIGNER in code]
    token = made(code).token
    assert token is not None
    given: Any = token()
    assert (given.value.reveal(), given.expires_at) == ("token-of-eu-central-1", 4e9)
