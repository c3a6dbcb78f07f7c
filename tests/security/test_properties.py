"""``from_properties``: the names of both clients, as people have them."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import confluent_kafka
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from kgroup.config import GroupConfig
from kgroup.errors import ConfigError
from kgroup.security.credentials import Token
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.oidc import OidcClientCredentials
from kgroup.security.property_table import BY_NAME, ROWS, PropertyKind
from kgroup.security.secret import Secret
from kgroup.security.settings import SaslMechanism, Security, SecurityProtocol, TlsVersion
from kgroup.security.ssl_contexts import client_context
from kgroup.types import AutoOffsetReset

KAFKA: Final = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}
MODULES: Final = "org.apache.kafka.common.security"
OAUTH: Final = "OAuthBearerLoginModule required"
SASL: Final = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}

IAM: Final = "software.amazon.msk.auth.iam."
MSK: Final = "Amazon MSK's login with IAM .*mechanism='OAUTHBEARER'.* docs/providers.md"

#: The file of Amazon's documentation.
MSK_IAM: Final = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}IAMClientCallbackHandler",
}

OIDC: Final = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
    "sasl.oauthbearer.client.id": "kgroup",
    "sasl.oauthbearer.client.secret": "hunter2",
}

#: The properties of Kafka's ConsumerConfig (4.3), from its documentation.
JAVA: Final = [
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "config.providers",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "enable.metrics.push",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "interceptor.classes",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.mechanism",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
    "security.protocol",
    "security.providers",
    "send.buffer.bytes",
    "session.timeout.ms",
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "value.deserializer",
]


def config(properties: Mapping[str, Any], **fields: Any) -> GroupConfig:
    """A group of these properties."""
    return GroupConfig.from_properties({**KAFKA, **properties}, topics=["orders"], **fields)


@pytest.mark.parametrize(
    ("missing", "topics", "expected"),
    [
        ("group.id", ["orders"], "group.id=None is refused.*pass group_id="),
        ("bootstrap.servers", ["orders"], "bootstrap.servers=None is refused.*bootstrap_servers="),
        ("", None, "topics=None is refused"),
    ],
)
def test_a_setting_that_nobody_gives(missing: str, topics: list[str] | None, expected: str) -> None:
    """The error names the property, and the argument that may take its place."""
    given = {name: value for name, value in KAFKA.items() if name != missing}
    fields = {} if topics is None else {"topics": topics}
    with pytest.raises(ConfigError, match=expected):
        GroupConfig.from_properties(given, **fields)


def test_a_file_of_the_java_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client.properties as a provider hands it out gives both the group and its login."""
    monkeypatch.setenv("CLUSTER_SECRET", 's"ecret')
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=one:9092,two:9092\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.jaas.config={MODULES}.plain.PlainLoginModule required \\\n"
        '   username="KEY" password="hunter2";\n'
        "sasl.mechanism=PLAIN\n"
        "client.dns.lookup=use_all_dns_ips\n"
        "session.timeout.ms=45000\n"
        "acks=all\n"
        "group.id=${file:" + str(tmp_path / "more.properties") + ":group}\n"
        "ssl.key.password=${env:CLUSTER_SECRET}\n"
    )
    (tmp_path / "more.properties").write_text("group = orders\n")
    made = GroupConfig.from_properties(file, topics=["orders"], client_id="mine")
    assert (made.group_id, made.session_timeout, made.client_id) == ("orders", 45.0, "mine")
    assert made.bootstrap_servers == ("one:9092", "two:9092")
    assert made.security == Security(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username="KEY",
        password="hunter2",  # noqa: S106
        key_password='s"ecret',  # noqa: S106
    )
    assert Security.from_properties(str(file)) == made.security


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        ({"session.timeout.ms": "6000"}, {"session_timeout": 6.0}),
        ({"max.poll.interval.ms": 1500}, {"max_processing_time": 1.5, "rebalance_timeout": 30.0}),
        ({"auto.offset.reset": "smallest"}, {"auto_offset_reset": AutoOffsetReset.EARLIEST}),
        ({"auto.offset.reset": "none"}, {"auto_offset_reset": AutoOffsetReset.ERROR}),
        ({"socket.timeout.ms": "20000"}, {"request_timeout": 20.0}),
        (
            {"client.rack": "a", "group.instance.id": "b"},
            {"rack_id": "a", "group_instance_id": "b"},
        ),
        ({"queued.max.messages.kbytes": "64"}, {"max_buffered_bytes": 65536}),
        (
            {
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,"
                " cooperative-sticky"
            },
            {"assignors": ("range", "cooperative-sticky")},
        ),
        ({"enable.auto.commit": False, "interceptor.classes": ""}, {}),
        (
            {
                "max.poll.records": None,
                "topic.blacklist": None,
                "enable.partition.eof": False,
                "offset.store.method": "broker",
            },
            {},
        ),
    ],
)
def test_properties_of_a_group(properties: dict[str, Any], fields: dict[str, Any]) -> None:
    """Both clients' names set the group's fields, in its units."""
    made = config(properties)
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"security.protocol": "ssl", "ssl.ca.location": "ca.pem"}, {"ca": "ca.pem"}),
        ({"security.protocol": "ssl", "ssl.ca.location": "probe"}, {"ca": None}),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "ca.pem",
                "ssl.keystore.type": "pem",
                "ssl.keystore.location": "client.pem",
                "ssl.key.password": "word",
                "ssl.endpoint.identification.algorithm": "",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            {
                "ca": "ca.pem",
                "certificate": "client.pem",
                "key": None,
                "key_password": Secret("word"),
                "check_hostname": False,
                "minimum_version": TlsVersion.TLS_1_3,
            },
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
                "ssl.certificate.location": "client.pem",
                "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
            },
            {"certificate": "client.pem", "key": Secret("-----BEGIN PRIVATE KEY-----")},
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "scram-sha-512",
                "sasl.username": "alice",
                "sasl.password": " with blanks ",
            },
            {
                "protocol": SecurityProtocol.SASL_PLAINTEXT,
                "mechanism": SaslMechanism.SCRAM_SHA_512,
                "password": Secret(" with blanks "),
            },
        ),
    ],
)
def test_properties_of_connections(properties: dict[str, str], expected: dict[str, Any]) -> None:
    """Both clients' names set the fields of Security."""
    made = Security.from_properties({**KAFKA, **properties})
    assert {name: getattr(made, name) for name in expected} == expected


def test_an_unsecured_token_for_tests() -> None:
    """OAuthBearerLoginModule's own options make tokens without a signature."""
    made = Security.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="60"'
            ' unsecuredLoginListClaim_scope=",a,b" unsecuredLoginExtension_tenant="x";',
        }
    )
    assert made.token is not None
    token = made.token()
    assert isinstance(token, Token)
    assert (token.principal, dict(token.extensions)) == ("alice", {"tenant": "x"})
    assert 50 < token.lifetime <= 60


@pytest.mark.parametrize(
    "properties",
    [
        {
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.grant.type": "client_credentials",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool",
            "sasl.oauthbearer.client.id": "kgroup",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.secured"
            ".OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="kgroup" clientSecret="hunter2" scope="kafka"'
            ' extension_logicalCluster="lkc-1" extension_identityPoolId="pool";',
        },
        {
            "sasl.oauthbearer.jwt.retriever.class": f"{MODULES}.oauthbearer"
            ".ClientCredentialsJwtRetriever",
            "sasl.oauthbearer.client.credentials.client.id": "kgroup",
            "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
            " extension_logicalCluster=lkc-1 extension_identityPoolId=pool;",
        },
    ],
    ids=["librdkafka", "java", "java-4.1"],
)
def test_tokens_of_an_identity_provider(properties: dict[str, str]) -> None:
    """Both clients' names make the function that requests tokens."""
    made = Security.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
            **properties,
        }
    )
    assert made.token == OidcClientCredentials(
        token_endpoint="https://id.example/token",  # noqa: S106
        client_id="kgroup",
        client_secret="hunter2",  # noqa: S106
        scope="kafka",
        extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool"},
    )


def test_a_provider_is_not_used_without_its_mechanism(caplog: pytest.LogCaptureFixture) -> None:
    """Another mechanism logs in as it would without these properties."""
    made = Security.from_properties(
        {**OIDC, **SASL, "sasl.username": "alice", "sasl.password": "hunter2"}
    )
    assert (made.mechanism, made.token) == (SaslMechanism.PLAIN, None)


def test_a_token_that_the_program_gives() -> None:
    """With it, properties that would fetch one are not used."""
    made = Security.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": "org.example.Handler",
            "sasl.oauthbearer.extensions": "not one",
        },
        token=lambda: Token("x", 1.0),
    )
    assert made.mechanism is SaslMechanism.OAUTHBEARER


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"gruop.id": "hunter2"}, "gruop.id=... .* did you mean 'group.id'"),
        ({"zzzzzzzzz": "hunter2"}, "has such a property; remove it"),
        ({5: "hunter2"}, "must be a str"),
        ({"client.id": ["hunter2"]}, "the value of 'client.id' must be a text"),
        ({"on_commit": print}, "'on_commit' is no .* leave it out: .*on_event=.* CommitRefused"),
        ({"error_cb": print}, "'error_cb' .* leave it out: .*on_event=.* RequestFailed"),
        ({"throttle_cb": print}, "'throttle_cb' .* leave it out: kgroup slows down by itself"),
        ({"stats_cb": print}, "'stats_cb' .* leave it out: .*docs/metrics.md"),
        ({"oauth_cb": print}, "'oauth_cb' .* leave it out: .*Security.*token=function"),
        ({"logger": logging.getLogger("x")}, "'logger' .* the logger 'kgroup.librdkafka'"),
        ({"log_cb": print}, "'log_cb' .* the logger 'kgroup.librdkafka'"),
        ({"on_revoke": print}, "'on_revoke' .* leave it out: each rebalance ends a generation"),
        ({"on_delivery": print}, "'on_delivery' .* leave it out: it is a producer's"),
        ({"default.topic.config": {"auto.offset.reset": "latest"}}, "beside the others"),
        ({"session.timeout.ms": "5 s"}, "whole number of milliseconds"),
        ({"queued.max.messages.kbytes": "5k"}, "whole number of kilobytes"),
        ({"enable.auto.commit": "true"}, "only a generation commits"),
        ({"auto.offset.reset": "by_duration:P1D"}, "one of earliest"),
        ({"interceptor.classes": "a.B"}, "see on_event"),
        ({"max.poll.records": 10}, "^max.poll.records='10' is refused: .*max_records=.*leave this"),
        ({"topic.blacklist": "x"}, "^topic.blacklist='x' is refused: .*compile.*leave this"),
        ({"enable.partition.eof": True}, "^enable.partition.eof='true' .*batch.high_watermark"),
        ({"offset.store.method": "file"}, "^offset.store.method='file' is refused: .*starts="),
        (
            {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"},
            "give the canonical ones",
        ),
        ({"group.protocol": "consumer"}, "classic protocol"),
        ({"partition.assignment.strategy": "a.B"}, "'a.B' is no assignor of Kafka"),
        ({"request.timeout.ms": 1, "socket.timeout.ms": 2}, "request.timeout.ms says otherwise"),
        ({"ssl.truststore.location": "a b.jks"}, "`keytool -list -rfc -keystore 'a b.jks' >"),
        ({"ssl.truststore.location": "ca.pem"}, "for a file that is PEM give .*.type=PEM too"),
        ({"ssl.keystore.location": "a.jks"}, "`keytool -importkeystore .* && openssl pkcs12 -in"),
        ({"ssl.keystore.location": "a.p12"}, "`openssl pkcs12 -in a.p12 -out a.pem`"),
        ({"ssl.endpoint.identification.algorithm": "x"}, "must be 'https'"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must contain TLSv1.2"),
        ({"ssl.cipher.suites": "x"}, "cannot be limited"),
        ({"enable.ssl.certificate.verification": False}, "always verified"),
        ({"sasl.jaas.config": "hunter2"}, "sasl.jaas.config=<secret> .*semicolon"),
        (MSK_IAM, f"^sasl.client.callback.handler.class='{IAM}IAMClientCallbackHandler' .*{MSK}"),
        (
            {"sasl.login.callback.handler.class": f"{IAM}IAMOAuthBearerLoginCallbackHandler"},
            f"IAMOAuthBearerLoginCallbackHandler' is refused: {MSK}",
        ),
        (
            {**SASL, "sasl.mechanism": "AWS_MSK_IAM"},
            f"^sasl.mechanism='AWS_MSK_IAM' is refused: {MSK}",
        ),
        (
            {"sasl.jaas.config": "a.IAMLoginModule required;"},
            f"^sasl.jaas.config=<secret> is refused: its module is IAMLoginModule: {MSK}",
        ),
        ({"sasl.jaas.config": "a.Krb5LoginModule required;"}, "Kerberos is impossible"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "Kerberos is impossible"),
        ({"sasl.jaas.config": "a.B required;"}, "module is B: it must be one of PlainLoginModule"),
        ({"sasl.client.callback.handler.class": "a.B"}, "class='a.B' is refused: .*a function"),
        ({"sasl.oauthbearer.config": "hunter2"}, "config=<secret> is refused: .*a function"),
        ({**SASL, "sasl.jaas.config": "ScramLoginModule required;"}, "does not fit"),
        (
            {"sasl.jaas.config": "ScramLoginModule required tokenauth=true;"},
            "delegation tokens",
        ),
        (
            {
                **SASL,
                "sasl.username": "a",
                "sasl.jaas.config": "PlainLoginModule required username=b;",
            },
            "sasl.username says otherwise",
        ),
        (
            {"sasl.jaas.config": f"{OAUTH} unsecuredLoginLifetimeSeconds=x;"},
            "must be a number",
        ),
        *(
            ({"sasl.jaas.config": f"{OAUTH} {option}={text};"}, "must be a number")
            for option in ("unsecuredLoginLifetimeSeconds", "unsecuredLoginNumberClaim_n")
            for text in ("nan", "inf", "1e999", "9" * 400)
        ),
        (
            {"sasl.jaas.config": f"{OAUTH} unsecuredLoginLifetimeSeconds=0;"},
            "must be over 0, and 1e.09 at most",
        ),
        (
            {"sasl.jaas.config": f"{OAUTH} unsecuredLoginLifetimeSeconds=1;"},
            "no unsecuredLoginStringClaim_sub",
        ),
        ({"sasl.oauthbearer.method": "default"}, "only 'oidc' is possible.* give a function"),
        ({"sasl.oauthbearer.grant.type": "urn:x"}, "only 'client_credentials'"),
        ({"sasl.login.callback.handler.class": "a.B"}, "give a function"),
        ({"sasl.oauthbearer.jwt.retriever.class": "a.FileJwtRetriever"}, "give a function"),
        ({"sasl.oauthbearer.assertion.file": "a.jwt"}, "give a function"),
        (
            {**OIDC, "sasl.oauthbearer.token.endpoint.url": "file:///token"},
            "^sasl.oauthbearer.token.endpoint.url='file:///token' is refused: .* https URL",
        ),
        (
            {**OIDC, "sasl.oauthbearer.token.endpoint.url": None},
            "^sasl.oauthbearer.token.endpoint.url=None .* tokens are requested with it",
        ),
        ({**OIDC, "sasl.oauthbearer.client.id": None}, "client.credentials.client.id=None"),
        ({**OIDC, "sasl.oauthbearer.client.secret": None}, "client.credentials.client.secret=None"),
        ({**OIDC, "sasl.oauthbearer.extensions": "a"}, "NAME=VALUE"),
        ({**OIDC, "sasl.oauthbearer.extensions": "a1=b"}, "sasl.oauthbearer.extensions=.*letters"),
        ({**OIDC, "sasl.oauthbearer.header.urlencode": "yes"}, "true or false"),
        ({**OIDC, "https.ca.location": "/nowhere"}, "https.ca.location='/nowhere'"),
        ({**OIDC, "sasl.jaas.config": f"{OAUTH} clientId=b;"}, "client.id says otherwise"),
        ({**OIDC, "sasl.jaas.config": f"{OAUTH} clientSecret=b;"}, "client.secret says otherwise"),
        ({**OIDC, "sasl.jaas.config": f"{OAUTH} cliendId=b;"}, "did you mean 'clientId'"),
        ({**OIDC, "sasl.jaas.config": f"{OAUTH} ssl.truststore.location=b;"}, "https.ca.location"),
        (
            {**OIDC, "sasl.jaas.config": f"{OAUTH} unsecuredLoginStringClaim_sub=a;"},
            "asks for unsecured tokens; leave one out",
        ),
        ({**SASL, "sasl.jaas.config": f"{OAUTH} clientId=b;"}, "does not fit sasl.mechanism=PLAIN"),
        (
            {"sasl.password": "${env:KGROUP_NOT_SET}"},
            r"sasl.password=.*\$\{env:KGROUP_NOT_SET\} cannot be .* KGROUP_NOT_SET is not set",
        ),
        ({"group.id": "a-${env:KGROUP_NOT_SET}"}, "group.id=.* KGROUP_NOT_SET is not set"),
        ({"sasl.password": "${env:/x:HOME}"}, "without a path"),
        ({"sasl.password": "${file:/nowhere:x}"}, "resolved: No such file or directory"),
        ({"sasl.password": f"${{file:{os.devnull}:x}}"}, "the file has no property x"),
        ({"sasl.password": "${dir:/tmp:../x}"}, "with a file of that folder"),
        ({"sasl.password": "${vault:/x:hunter2}"}, "another provider than 'env'"),
    ],
)
def test_properties_that_are_refused(properties: dict[Any, Any], expected: str) -> None:
    """The error names the property and what to do, and shows no secret."""
    with pytest.raises(ConfigError, match=expected) as caught:
        config(properties)
    assert "hunter2" not in str(caught.value)


def test_a_file_for_msk_with_iam_serves_beside_a_function() -> None:
    """What the errors about such a file say to do works: mechanism and token beside it."""
    security = Security.from_properties(
        MSK_IAM, mechanism="OAUTHBEARER", token=lambda: Token("abc", 4e9)
    )
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.mechanism is SaslMechanism.OAUTHBEARER
    assert security.token is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "cannot be read: No such file"),
        ("a=\\u1", "line 1"),
        ("a=b\n" + "x" * 2**20 + "y", "line 2 has 1048577 characters"),
        ("x" * 1001, "no property file: it has a name of 1001 "),
        ("a=b\n\x1b[2Jc=d", "no property file: .* control characters"),
        ("\0\0\0", "no property file: .* control characters"),
        ("client.id=a\nclient.id=b", "given twice"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str | None, expected: str) -> None:
    """A file that cannot be read is one error."""
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        Security.from_properties(file)
    with pytest.raises(ConfigError, match="the path of a properties file, or a mapping"):
        Security.from_properties(5)  # type: ignore[arg-type]


def test_what_has_no_effect_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    """One log record names the properties that mean nothing here."""
    with caplog.at_level(logging.INFO, "kgroup"):
        config({"key.deserializer": "a.B", "fetch.min.bytes": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "these properties have no effect in kgroup: key.deserializer, fetch.min.bytes"
    ]


def test_every_property_of_the_java_client_has_a_row() -> None:
    """So that no file is refused for a name that Kafka documents."""
    java = {row.java for row in ROWS}
    assert set(JAVA) <= java


def test_librdkafka_knows_its_names() -> None:
    """Each of librdkafka's names in the table is one: librdkafka refuses others."""
    unknown = []
    for name in (name for row in ROWS for name in row.librdkafka):
        try:
            confluent_kafka.Consumer({"group.id": "x", name: "\x01"}).close()
        except confluent_kafka.KafkaException as error:
            if "No such configuration property" in str(error):
                unknown.append(name)
        except (TypeError, ValueError):
            continue  # a function
    assert unknown == []


def test_rows_are_consistent() -> None:
    """A name has one row; a row sets a field that exists, or says why it does not."""
    assert sum(len(row.names) for row in ROWS) == len(BY_NAME)
    kinds: dict[PropertyKind, type[Any]] = {
        PropertyKind.SECURITY: Security,
        PropertyKind.TOKEN: OidcClientCredentials,
        PropertyKind.GROUP: GroupConfig,
    }
    for row in ROWS:
        fields = (
            {row.field} if row.part is PropertyKind.STORE else attrs.fields_dict(kinds[row.part])
        )
        assert row.field is None or row.field in fields
        assert (row.field is None) == bool(row.reason)


def test_the_command_of_an_error_converts(tmp_path: Path) -> None:
    """Run as it is shown, the command makes a file that both planes accept."""
    issued = trustme.CA().issue_cert("client")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    store = tmp_path / "the client.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client",
            key,
            load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()),
            None,
            BestAvailableEncryption(b"old"),
        )
    )
    with pytest.raises(ConfigError) as caught:
        Security.from_properties({"security.protocol": "SSL", "ssl.keystore.location": store})
    command = str(caught.value).split("`")[1]
    words = [*shlex.split(command), "-passin", "pass:old", "-passout", "pass:new1"]
    subprocess.run(words, check=True, timeout=200, capture_output=True)
    made = Security.from_properties(
        {
            "security.protocol": "SSL",
            "ssl.certificate.location": store.with_suffix(".pem"),
            "ssl.key.password": "new1",
        }
    )
    assert client_context(made).check_hostname
    confluent_kafka.Consumer({"group.id": "x", **librdkafka_settings(made)}).close()
