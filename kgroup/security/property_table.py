"""The properties of Kafka's Java client and of librdkafka: what kgroup makes of each.

``ROWS`` is the one table. A property sets a field of `Security` or of `GroupConfig`; or it may only
have the value that kgroup has anyway; or it has no meaning here and is ignored; or it is refused,
because without it the program would behave differently from what its author expects. How a text is
read is in ``kgroup.security.property_values``.

Source: Kafka's ``ConsumerConfig``, ``SslConfigs`` and ``SaslConfigs`` (4.3); librdkafka's
CONFIGURATION.md (2.16).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Final, final

import attrs

from kgroup.security.other_logins import KERBEROS
from kgroup.security.property_values import (
    assignors,
    authorities,
    boolean,
    extensions,
    host_names,
    kilobytes,
    maybe_private,
    milliseconds,
    minimum_version,
    nothing,
    offset_reset,
    only,
    versions,
)


@final
class PropertyKind(enum.Enum):
    """What a property belongs to."""

    SECURITY = "security"
    GROUP = "group"
    STORE = "store"
    """A part of a key store or of a trust store; several of them give one setting."""
    TOKEN = "token"  # noqa: S105
    """How tokens are requested: a field of ``OidcClientCredentials``."""


@final
@attrs.frozen
class Property:
    """One property.

    Attributes:
        java: the Java client's name, or None.
        librdkafka: librdkafka's names.
        part: what it belongs to.
        field: the field that it sets; None for a property that is ignored or refused.
        read: makes the field's value of the text; it raises a ValueError, with what is allowed, for
            a text that is not. Without a field, it raises for each value that is refused.
        secret: whether errors hide its value.
        without: the property is ignored if the program gives this field itself.
        reason: why it is ignored or refused.
    """

    java: str | None
    librdkafka: tuple[str, ...]
    part: PropertyKind = PropertyKind.GROUP
    field: str | None = None
    read: Callable[[str], Any] = str.strip
    secret: bool = False
    without: str | None = None
    reason: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All its names."""
        return tuple(dict.fromkeys(((self.java,) if self.java else ()) + self.librdkafka))


def _set(
    part: PropertyKind,
    java: str | None,
    librdkafka: str | Iterable[str],
    field: str,
    read: Callable[[str], Any] = str.strip,
    *,
    secret: bool = False,
    without: str | None = None,
) -> Property:
    names = tuple(librdkafka.split()) if isinstance(librdkafka, str) else tuple(librdkafka)
    return Property(java, names, part, field, read, secret, without)


def _fixed(
    java: str | None,
    librdkafka: str,
    read: Callable[[str], Any],
    reason: str,
    *,
    part: PropertyKind = PropertyKind.GROUP,
    without: str | None = None,
    secret: bool = False,
) -> Property:
    return Property(java, tuple(librdkafka.split()), part, None, read, secret, without, reason)


def _ignored(reason: str, java: str = "", librdkafka: str = "") -> Iterable[Property]:
    """Rows of names that have no meaning here; a name of both clients is one row."""
    theirs = librdkafka.split()
    for name in java.split():
        yield Property(name, (name,) if name in theirs else (), reason=reason)
    for name in theirs:
        if name not in java.split():
            yield Property(None, (name,), reason=reason)


_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer."
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials."
_OAUTH: Final = (
    "kgroup requests tokens with a client's id and secret only; for all else give a function,"
    " Security.from_properties(..., token=...), as docs/security.md shows"
)
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_IDS: Final = f"{_CREDENTIALS}client.id sasl.oauthbearer.client.id"
_SECRETS: Final = f"{_CREDENTIALS}client.secret sasl.oauthbearer.client.secret"
_HANDLERS: Final = (
    f"{_OAUTHBEARER}OAuthBearerLoginCallbackHandler".lower(),
    f"{_OAUTHBEARER}secured.OAuthBearerLoginCallbackHandler".lower(),
)
_RETRIEVERS: Final = (
    f"{_OAUTHBEARER}DefaultJwtRetriever".lower(),
    f"{_OAUTHBEARER}ClientCredentialsJwtRetriever".lower(),
)
_NO_EQUAL: Final = "the group's own connections cannot be limited to the same; leave it out"
_LEAVE_OUT: Final = "and leave this out (None does so in a mapping)"
_FETCHING: Final = "kgroup decides how records are fetched, within max_buffered_bytes"
_CONNECTIONS: Final = "kgroup decides how connections are made"
_METRICS: Final = "kgroup has events instead of the client's metrics"
_COMMITS: Final = "only a generation commits, when the program says so"
_PRODUCER: Final = "it is a producer's"
_JAVA: Final = "it has a meaning only in Java"
_BROKER: Final = "it is a broker's"
_REGISTRY: Final = "it is the schema registry's"
_LOGGING: Final = "it concerns librdkafka's own log and callbacks"
_REFRESH: Final = "kgroup decides when a token is fetched again"

_FUNCTIONS: Final = (
    "background_event_cb",
    "closesocket_cb",
    "connect_cb",
    "consume_cb",
    "dr_cb",
    "dr_msg_cb",
    "error_cb",
    "log_cb",
    "logger",
    "oauth_cb",
    "oauthbearer_token_refresh_cb",
    "offset_commit_cb",
    "on_commit",
    "open_cb",
    "rebalance_cb",
    "resolve_cb",
    "socket_cb",
    "ssl.certificate.verify_cb",
    "stats_cb",
    "throttle_cb",
)

_SECRET_OPTIONS: Final = frozenset(
    {
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    }
)
"""Properties that are refused, and whose values are not shown nevertheless."""

SECURITY: Final = (
    _set(PropertyKind.SECURITY, "security.protocol", "security.protocol", "protocol"),
    _set(PropertyKind.SECURITY, "ssl.truststore.certificates", "ssl.ca.pem", "ca", maybe_private),
    _set(PropertyKind.SECURITY, None, "ssl.ca.location", "ca", authorities),
    _set(
        PropertyKind.SECURITY,
        "ssl.keystore.certificate.chain",
        "ssl.certificate.pem",
        "certificate",
        maybe_private,
    ),
    _set(PropertyKind.SECURITY, None, "ssl.certificate.location", "certificate", maybe_private),
    _set(PropertyKind.SECURITY, "ssl.keystore.key", "ssl.key.pem", "key", secret=True),
    _set(PropertyKind.SECURITY, None, "ssl.key.location", "key"),
    _set(
        PropertyKind.SECURITY, "ssl.key.password", "ssl.key.password", "key_password", secret=True
    ),
    _set(
        PropertyKind.SECURITY,
        "ssl.endpoint.identification.algorithm",
        "ssl.endpoint.identification.algorithm",
        "check_hostname",
        host_names,
    ),
    _set(PropertyKind.SECURITY, "ssl.enabled.protocols", "", "minimum_version", minimum_version),
    _set(PropertyKind.SECURITY, "sasl.mechanism", "sasl.mechanism sasl.mechanisms", "mechanism"),
    _set(PropertyKind.SECURITY, None, "sasl.username", "username", str),
    _set(PropertyKind.SECURITY, None, "sasl.password", "password", str, secret=True),
    *(
        _set(PropertyKind.TOKEN, java, names, field, read, secret=secret, without="token")
        for java, names, field, read, secret in (
            (_ENDPOINT, _ENDPOINT, "token_endpoint", maybe_private, False),
            (f"{_CREDENTIALS}client.id", _IDS, "client_id", str, False),
            (f"{_CREDENTIALS}client.secret", _SECRETS, "client_secret", str, True),
            ("sasl.oauthbearer.scope", "sasl.oauthbearer.scope", "scope", str.strip, False),
            ("sasl.oauthbearer.header.urlencode", "", "url_encode", boolean, False),
            (None, "sasl.oauthbearer.extensions", "extensions", extensions, False),
            (None, "https.ca.location", "ca", authorities, False),
            (None, "https.ca.pem", "ca", maybe_private, False),
        )
    ),
    *(
        _fixed(java, names, only(*values), _OAUTH, part=PropertyKind.SECURITY, without="token")
        for java, names, values in (
            ("sasl.login.callback.handler.class", "", _HANDLERS),
            ("sasl.oauthbearer.jwt.retriever.class", "", _RETRIEVERS),
            (None, "sasl.oauthbearer.method", ("oidc",)),
            (None, "sasl.oauthbearer.grant.type", ("client_credentials",)),
        )
    ),
    _set(PropertyKind.STORE, "sasl.jaas.config", "", "jaas", secret=True),
    _set(PropertyKind.STORE, "ssl.truststore.location", "", "truststore"),
    _set(PropertyKind.STORE, "ssl.truststore.type", "", "truststore_type"),
    _set(
        PropertyKind.STORE,
        "ssl.keystore.location",
        "ssl.keystore.location",
        "keystore",
        maybe_private,
    ),
    _set(PropertyKind.STORE, "ssl.keystore.type", "", "keystore_type"),
    _fixed(
        None,
        "enable.ssl.certificate.verification",
        only("true"),
        "certificates are always verified; give the authority with ssl.ca.location",
        part=PropertyKind.SECURITY,
    ),
    _fixed("ssl.protocol", "", versions, _NO_EQUAL, part=PropertyKind.SECURITY),
    *(
        _fixed(java, names, nothing, _NO_EQUAL, part=PropertyKind.SECURITY)
        for java, names in (
            ("ssl.cipher.suites", "ssl.cipher.suites"),
            ("ssl.engine.factory.class", ""),
            ("security.providers", ""),
            (None, "ssl.crl.location"),
            (None, "ssl.curves.list"),
            (None, "ssl.sigalgs.list"),
            (None, "ssl.engine.id"),
            (None, "ssl.engine.location"),
            (None, "ssl.providers"),
            (None, "ssl.ca.certificate.stores"),
        )
    ),
    *(
        _fixed(
            java,
            names,
            nothing,
            _OAUTH,
            part=PropertyKind.SECURITY,
            without="token",
            secret=(java or names) in _SECRET_OPTIONS,
        )
        for java, names in (
            ("sasl.client.callback.handler.class", ""),
            ("sasl.login.class", ""),
            (None, "sasl.oauthbearer.config"),
            (None, "sasl.oauthbearer.metadata.authentication.type"),
            (None, "enable.sasl.oauthbearer.unsecure.jwt"),
            *(
                (name, name if name != "sasl.oauthbearer.assertion.template.file" else "")
                for name in (
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
                )
            ),
            (None, "sasl.oauthbearer.assertion.jwt.template.file"),
            (None, "sasl.oauthbearer.assertion.private.key.pem"),
        )
    ),
    *_ignored(
        "a store in PEM has no password of its own",
        "ssl.keystore.password ssl.truststore.password",
        "ssl.keystore.password",
    ),
    *_ignored(
        _JAVA,
        "ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm"
        " ssl.secure.random.implementation",
    ),
    *_ignored(
        KERBEROS,
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name"
        " sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor",
        "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name"
        " sasl.kerberos.principal sasl.kerberos.keytab",
    ),
    *_ignored(
        _REFRESH,
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms"
        " sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds"
        " sasl.login.refresh.window.factor sasl.login.refresh.window.jitter"
        " sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms"
        " sasl.oauthbearer.sub.claim.name"
        " sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
    *_ignored(
        _BROKER,
        "ssl.client.auth sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience"
        " sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms"
        " sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
        " sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url"
        " sasl.oauthbearer.jwt.validator.class",
    ),
)


GROUP: Final = (
    _set(
        PropertyKind.GROUP,
        "bootstrap.servers",
        "bootstrap.servers metadata.broker.list",
        "bootstrap_servers",
    ),
    _fixed(
        "client.dns.lookup",
        "client.dns.lookup",
        only("use_all_dns_ips", "default"),
        "kgroup connects to hosts by the names that it was given; give the canonical ones",
    ),
    _set(PropertyKind.GROUP, "group.id", "group.id", "group_id"),
    _set(PropertyKind.GROUP, "client.id", "client.id", "client_id"),
    _set(PropertyKind.GROUP, "client.rack", "client.rack", "rack_id"),
    _set(PropertyKind.GROUP, "group.instance.id", "group.instance.id", "group_instance_id"),
    _set(
        PropertyKind.GROUP,
        "session.timeout.ms",
        "session.timeout.ms",
        "session_timeout",
        milliseconds,
    ),
    _set(
        PropertyKind.GROUP,
        "heartbeat.interval.ms",
        "heartbeat.interval.ms",
        "heartbeat_interval",
        milliseconds,
    ),
    _set(
        PropertyKind.GROUP,
        "max.poll.interval.ms",
        "max.poll.interval.ms",
        "max_processing_time",
        milliseconds,
    ),
    _set(
        PropertyKind.GROUP,
        "auto.offset.reset",
        "auto.offset.reset",
        "auto_offset_reset",
        offset_reset,
    ),
    _set(
        PropertyKind.GROUP,
        "isolation.level",
        "isolation.level",
        "isolation_level",
        lambda text: text.strip().lower(),
    ),
    _set(
        PropertyKind.GROUP,
        "partition.assignment.strategy",
        "partition.assignment.strategy",
        "assignors",
        assignors,
    ),
    _set(
        PropertyKind.GROUP,
        "request.timeout.ms",
        "socket.timeout.ms",
        "request_timeout",
        milliseconds,
    ),
    _set(PropertyKind.GROUP, "default.api.timeout.ms", "", "commit_timeout", milliseconds),
    _set(
        PropertyKind.GROUP, "retry.backoff.ms", "retry.backoff.ms", "rejoin_backoff", milliseconds
    ),
    _set(
        PropertyKind.GROUP,
        "retry.backoff.max.ms",
        "retry.backoff.max.ms",
        "rejoin_backoff_max",
        milliseconds,
    ),
    _set(PropertyKind.GROUP, None, "queued.max.messages.kbytes", "max_buffered_bytes", kilobytes),
    _fixed(
        "enable.auto.commit",
        "enable.auto.commit auto.commit.enable",
        only("false"),
        f"{_COMMITS}; see Generation.commit",
    ),
    _fixed(
        "max.poll.records",
        "max.poll.records",
        nothing,
        "give max_records=... to records(), run() or serve(), where a batch has up to 1000 records"
        f" without it, {_LEAVE_OUT}",
    ),
    _fixed(
        None,
        "topic.blacklist",
        nothing,
        "a pattern reads all topics that it matches; let it match fewer, such as"
        f" re.compile('(?!orders-old)orders.*'), {_LEAVE_OUT}",
    ),
    _fixed(
        None,
        "enable.partition.eof",
        only("false"),
        "no message says that a partition is read to its end; compare batch.next_offset with"
        f" batch.high_watermark, {_LEAVE_OUT}",
    ),
    _fixed(
        None,
        "offset.store.method",
        only("broker"),
        "kgroup reads no files of offsets; give GroupConfig(starts=...) a function that returns"
        f" them, {_LEAVE_OUT}",
    ),
    _fixed("interceptor.classes", "", nothing, "kgroup has no interceptors; see on_event"),
    _fixed(None, "plugin.library.paths", nothing, "kgroup loads no plugins of librdkafka"),
    _fixed(
        "group.protocol",
        "group.protocol",
        only("classic"),
        "kgroup uses the classic protocol; groups of KIP-848 are not supported",
    ),
    _fixed(
        "allow.auto.create.topics",
        "allow.auto.create.topics",
        only("false"),
        "kgroup never creates topics",
    ),
    _fixed("exclude.internal.topics", "", only("true"), "kgroup never reads internal topics"),
    _fixed("check.crcs", "check.crcs", only("true"), "kgroup always checks records"),
    _fixed("config.providers", "", only("env", "file", "directory", "dir"), "kgroup has no others"),
    *(
        _fixed(None, name, nothing, "a function cannot be a property; see on_event")
        for name in _FUNCTIONS
    ),
    *_ignored("deserialize a record where it is handled", "key.deserializer value.deserializer"),
    *_ignored(
        _COMMITS,
        "auto.commit.interval.ms",
        "auto.commit.interval.ms enable.auto.offset.store offset.store.path"
        " offset.store.sync.interval.ms",
    ),
    *_ignored(
        _FETCHING,
        "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes",
        "fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes"
        " fetch.queue.backoff.ms fetch.wait.max.ms max.partition.fetch.bytes"
        " queued.min.messages consume.callback.max.messages message.max.bytes"
        " message.copy.max.bytes receive.message.max.bytes",
    ),
    *_ignored(
        _CONNECTIONS,
        "connections.max.idle.ms metadata.max.age.ms"
        " metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy"
        " receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes"
        " socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms"
        " bootstrap.resolve.timeout.ms",
        "connections.max.idle.ms metadata.max.age.ms"
        " metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy"
        " reconnect.backoff.max.ms reconnect.backoff.ms socket.connection.setup.timeout.ms"
        " api.version.fallback.ms api.version.request api.version.request.timeout.ms"
        " broker.address.family broker.address.ttl broker.version.fallback"
        " coordinator.query.interval.ms max.in.flight max.in.flight.requests.per.connection"
        " reconnect.backoff.jitter.ms socket.blocking.max.ms socket.keepalive.enable"
        " socket.max.fails socket.nagle.disable socket.receive.buffer.bytes"
        " socket.send.buffer.bytes topic.metadata.propagation.max.ms"
        " topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms"
        " topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse",
    ),
    *_ignored(
        _METRICS,
        "enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level"
        " metrics.sample.window.ms",
        "enable.metrics.push statistics.interval.ms",
    ),
    *_ignored(
        _LOGGING,
        librdkafka="builtin.features debug enable.random.seed enabled_events"
        " internal.termination.signal log.connection.close log.queue log.thread.name log_level",
    ),
    *_ignored(
        "kgroup uses the classic protocol",
        "group.remote.assignor share.acknowledgement.mode share.acquire.mode",
        "group.remote.assignor share.acknowledgement.mode group.protocol.type",
    ),
    *_ignored(_JAVA, "internal.throw.on.fetch.stable.offset.unsupported"),
    *_ignored(
        _PRODUCER,
        "acks batch.size buffer.memory compression.type delivery.timeout.ms enable.idempotence"
        " key.serializer linger.ms max.block.ms max.request.size partitioner.class retries"
        " transaction.timeout.ms transactional.id value.serializer",
        "acks batch.num.messages batch.size compression.codec compression.level compression.type"
        " delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee"
        " enable.idempotence linger.ms message.send.max.retries message.timeout.ms partitioner"
        " produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes"
        " queue.buffering.max.messages queue.buffering.max.ms queuing.strategy"
        " request.required.acks retries sticky.partitioning.linger.ms transaction.timeout.ms"
        " transactional.id",
    ),
    *_ignored(
        _REGISTRY,
        "schema.registry.url basic.auth.credentials.source basic.auth.user.info"
        " schema.registry.basic.auth.user.info bearer.auth.token bearer.auth.credentials.source",
    ),
)

ROWS: Final = SECURITY + GROUP
BY_NAME: Final = {name: row for row in ROWS for name in row.names}
