"""Every property of Kafka's clients, and whether a connector may set it.

Rules of this file:
- A connector must not reach outside its records: what names classes, files, libraries, logins,
  commands or services belongs to the node's properties.
- A name of a newer client is in neither list: it is taken, has no effect, and a warning says so.

Source:
    ``ConsumerConfig`` and ``ProducerConfig`` of kafka-clients 3.9.1 (Spark's) and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping

_REFUSED_BY_KIND: Mapping[str, tuple[str, ...]] = {
    "classes": (
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "metric.reporters",
        "partition.assignment.strategy",
        "partitioner.class",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "ssl.engine.factory.class",
        "value.deserializer",
        "value.serializer",
    ),
    "files": (
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.template.file",
        "ssl.keystore.location",
        "ssl.truststore.location",
    ),
    "libraries": (
        "config.providers",
        "security.providers",
        "ssl.provider",
        "ssl.secure.random.implementation",
    ),
    "logins": ("sasl.jaas.config",),
    "commands": ("sasl.kerberos.kinit.cmd",),
    "services": (
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.token.endpoint.url",
    ),
}
REFUSED: Mapping[str, str] = {
    name: kind for kind, names in _REFUSED_BY_KIND.items() for name in names
}
"""Name of each that a connector may not set, and the kind of what it names."""

ALLOWED: frozenset[str] = frozenset({
    "acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter",
    "auto.offset.reset", "batch.size", "bootstrap.servers", "buffer.memory", "check.crcs",
    "client.dns.lookup", "client.id", "client.rack", "compression.gzip.level",
    "compression.lz4.level", "compression.type", "compression.zstd.level",
    "connections.max.idle.ms", "default.api.timeout.ms", "delivery.timeout.ms",
    "enable.auto.commit", "enable.idempotence", "enable.metrics.push", "exclude.internal.topics",
    "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id",
    "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "isolation.level",
    "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "max.request.size",
    "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.ignore.keys", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries",
    "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor", "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms", "sasl.mechanism", "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "security.protocol",
    "send.buffer.bytes", "session.timeout.ms", "share.acknowledgement.mode", "share.acquire.mode",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.key.password", "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol",
    "ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.password",
    "ssl.truststore.type", "transaction.timeout.ms", "transaction.two.phase.commit.enable",
    "transactional.id",
})  # fmt: skip
