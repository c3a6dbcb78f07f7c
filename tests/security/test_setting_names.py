"""Names of settings that do not exist: the error says which one was meant."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pytest

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.property_table import BY_NAME
from kgroup.security.setting_names import _FUNCTIONS, _THEIRS
from kgroup.security.settings import Security

REQUIRED: Final[dict[str, Any]] = {
    "group_id": "g",
    "bootstrap_servers": "a:1",
    "topics": ["t"],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # near one of ours
        ("sesion_timeout", "; did you mean 'session_timeout'?"),
        ("topic", "; did you mean 'topics'?"),
        ("group", "; did you mean 'group_id'?"),
        # Kafka's properties with underscores, as kafka-python and aiokafka have them
        ("session_timeout_ms", "; did you mean 'session_timeout', in seconds?"),
        ("retry_backoff_ms", "; did you mean 'rejoin_backoff', in seconds?"),
        ("max_poll_interval_ms", "; did you mean 'max_processing_time', in seconds?"),
        ("queued_max_messages_kbytes", "; did you mean 'max_buffered_bytes', in bytes?"),
        ("partition_assignment_strategy", "; did you mean 'assignors'?"),
        ("client_rack", "; did you mean 'rack_id'?"),
        ("enable_auto_commit", ": only a generation commits"),
        ("max_poll_records", ": give max_records=... to records(), run() or serve()"),
        ("value_deserializer", ": deserialize a record where it is handled"),
        # settings of the login
        ("security_protocol", "; give security=Security(protocol=...)"),
        ("username", "; give security=Security(username=...)"),
        ("sasl_plain_password", "; give security=Security(password=...)"),
        ("sasl_jaas_config", "; Security.from_properties reads sasl.jaas.config"),
        ("sasl_oauthbearer_scope", "; give Security(token=OidcClientCredentials(scope=...))"),
        ("sasl_oauth_token_provider", "; give security=Security(token=...)"),
        ("brokers", "; did you mean 'bootstrap_servers'?"),
        ("GroupBalancers", "; did you mean 'assignors'?"),
        # arguments of other calls, near to a setting that is something else
        ("max_records", ": it is an argument of records(), run() and serve()"),
        ("on_event", ": it is an argument of ConsumerGroup() and run()"),
        ("on_assign", ": a rebalance calls no function of the program"),
        ("ssl_context", ": kgroup makes it from the files: give Security("),
        # nothing near
        ("zzz", "; docs/configuration.md and docs/security.md have all settings"),
    ],
)
def test_a_name_that_a_group_does_not_have(name: str, expected: str) -> None:
    """It is compared with other clients' names, the names of ``Security``, and the group's own."""
    with pytest.raises(ConfigError) as caught:
        GroupConfig(**{**REQUIRED, name: "hunter2"})
    start = f"{name}=... is refused: GroupConfig has no such setting"
    assert str(caught.value).startswith(start + expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("passwort", "; did you mean 'password'?"),
        ("security_protocol", "; did you mean 'protocol'?"),
        ("ssl_cafile", "; did you mean 'ca'?"),
        ("sasl_plain_username", "; did you mean 'username'?"),
        ("oauth_cb", "; did you mean 'token'?"),
        ("session_timeout_ms", "; it is one of GroupConfig: session_timeout, in seconds"),
        ("ssl_ciphers", ": the group's own connections cannot be limited"),
    ],
)
def test_a_name_that_security_does_not_have(name: str, expected: str) -> None:
    """The same, from the other side."""
    given: dict[str, Any] = {name: "hunter2"}
    with pytest.raises(ConfigError) as caught:
        Security(**given)
    assert str(caught.value).startswith(f"{name}=... is refused: Security has no such setting")
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_names_of_other_clients_lead_somewhere() -> None:
    """Each stands for a property that the table knows, or for a field."""
    assert set(_THEIRS.values()) <= BY_NAME.keys()
    assert set(_FUNCTIONS.values()) <= inspect.signature(Security).parameters.keys()


def test_the_signature_is_that_of_the_class() -> None:
    """Editors and ``help()`` show the settings, and not a wrapper's arguments."""
    assert [*inspect.signature(GroupConfig).parameters][:3] == [*REQUIRED]
    assert "check_hostname" in inspect.signature(Security).parameters


@pytest.mark.parametrize("kind", [GroupConfig, Security])
def test_an_argument_without_a_name(kind: Any) -> None:
    """A mapping, as other clients take it, is refused: the error names `from_properties`."""
    with pytest.raises(ConfigError, match=f"{kind.__name__}.from_properties") as caught:
        kind({"sasl.password": "hunter2"})
    assert "hunter2" not in str(caught.value)
