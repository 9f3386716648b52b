"""Keys of the node's properties file, with Kafka Connect's names where they exist."""

from __future__ import annotations

from connect.config.key import REQUIRED, Key, at_least, between
from connect.config.keys.framework_keys import HEADER_CONVERTER, JSON_CONVERTER
from connect.config.local_paths import LOCAL_KEY
from connect.config.node.lineage_keys import LINEAGE_KEYS
from connect.config.node.notification_keys import NOTIFICATION_KEYS
from connect.config.reserved_topics import NODE_KEY

_KAFKA = "Kafka cluster"
_REACH = "What connectors may reach"
_REST = "REST API"
_STORAGE = "Storage topics"
_DEFAULTS = "Defaults of connectors"
_OWN = "Icefloe"

NODE_KEYS: tuple[Key, ...] = (
    Key("bootstrap.servers", "LIST", "Brokers of the cluster.", REQUIRED, "HIGH", _KAFKA),
    Key(
        "group.id",
        "STRING",
        "Name of the cluster of nodes, which is also the Kafka group that the nodes join.",
        REQUIRED,
        "HIGH",
        _KAFKA,
    ),
    Key(
        "session.timeout.ms",
        "INT",
        "Time without heartbeats after which other nodes take over the work of a node.",
        "10000",
        "HIGH",
        _KAFKA,
        unit="ms",
        check=between(1_000, 1_800_000),
    ),
    Key(
        "heartbeat.interval.ms",
        "INT",
        "Interval of heartbeats, and delay until a node learns that another node joined or left.",
        "3000",
        "HIGH",
        _KAFKA,
        unit="ms",
        check=between(100, 600_000),
    ),
    Key(
        "rebalance.timeout.ms",
        "INT",
        "Time that nodes have to rejoin in a rebalance.",
        None,
        "HIGH",
        _KAFKA,
        java_only="a node rejoins immediately",
    ),
    Key(
        "scheduled.rebalance.max.delay.ms",
        "INT",
        "Time for which connectors keep their number of tasks after a node left, so that a node "
        "that returns finds the same layout. Other nodes take over its work immediately.",
        "300000",
        "LOW",
        _KAFKA,
        unit="ms",
        check=between(0, 2_147_483_647),
    ),
    Key(
        "connector.client.config.override.policy",
        "STRING",
        "Client properties that connectors may override, as in Kafka Connect: All (except "
        "classes, files and credentials), None, or Principal. If the REST API has users, servers, "
        "protocol, credentials and TLS can be overridden only if this key is set.",
        "All",
        "MEDIUM",
        _REACH,
        choices=("All", "None", "Principal"),
    ),
    Key(
        "icefloe.kafka.servers.allowed",
        "LIST",
        "Brokers (`host:port`) that connectors may use in addition to the node's brokers; `*` "
        "allows all. Default: all, or none if the REST API has users. Other brokers never receive "
        "the node's credentials.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.hosts.allowed",
        "LIST",
        "Hosts of catalogs, schema registries, token endpoints and object stores that connectors "
        "may access: names, domains with `*.`, addresses, networks (`10.0.0.0/8`), or `*`. "
        "Default: all; if the REST API has users, all except loopback, link-local and metadata "
        "addresses, and of object stores with S3's protocol only those of Amazon and Google.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        LOCAL_KEY,
        "LIST",
        "Local folders that connectors may use for tables, warehouses, SQLite catalogs and "
        "certificates. Default: all, or none if the REST API has users. If `spark.master` names a "
        "cluster, tables and warehouses may only use listed folders.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.ambient.credentials.allowed",
        "BOOLEAN",
        "Allow clients of connectors to use credentials of the node's machine and environment: "
        "cloud credentials, profiles and roles, `.netrc`, libpq's files and proxies. Default: "
        "true, or false if the REST API has users.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "listeners",
        "LIST",
        "Addresses of the REST API; addresses other than loopback require authentication.",
        "http://127.0.0.1:8083",
        "HIGH",
        _REST,
    ),
    Key(
        "rest.advertised.host.name",
        "STRING",
        "Host for other nodes and `Location` headers.",
        None,
        "LOW",
        _REST,
    ),
    Key(
        "rest.advertised.port",
        "INT",
        "Port for other nodes and `Location` headers.",
        None,
        "LOW",
        _REST,
    ),
    Key(
        "rest.advertised.listener",
        "STRING",
        "Protocol for other nodes.",
        None,
        "LOW",
        _REST,
        java_only="it is the protocol of the first address in `listeners`",
    ),
    Key(
        "icefloe.rest.users.file",
        "STRING",
        "YAML file with users, their passwords, tokens or certificates, and their roles. Without "
        "it, the API has no authentication and listens on loopback only.",
        None,
        "HIGH",
        _REST,
    ),
    Key(
        "icefloe.rest.plaintext.allowed",
        "BOOLEAN",
        "Allow listeners beyond loopback without TLS, for example behind a proxy with TLS.",
        "false",
        "LOW",
        _REST,
    ),
    Key(
        "listeners.https.ssl.keystore.location",
        "STRING",
        "PEM file with the certificate chain and the private key of https listeners.",
        None,
        "MEDIUM",
        _REST,
    ),
    Key(
        "listeners.https.ssl.key.password",
        "PASSWORD",
        "Password of the private key.",
        None,
        "MEDIUM",
        _REST,
        is_secret=True,
    ),
    Key(
        "listeners.https.ssl.truststore.location",
        "STRING",
        "PEM file with the certificate authorities of client certificates.",
        None,
        "MEDIUM",
        _REST,
    ),
    Key(
        "listeners.https.ssl.client.auth",
        "STRING",
        "Whether clients must authenticate with a certificate.",
        "none",
        "MEDIUM",
        _REST,
        choices=("none", "requested", "required"),
    ),
    Key(
        "icefloe.rest.node.certificates",
        "LIST",
        "Common names of the nodes' certificates. A node may forward requests of a caller with a "
        "client certificate to these nodes (docs/how-to/security.md).",
        "",
        "MEDIUM",
        _REST,
    ),
    Key(
        "access.control.allow.origin",
        "STRING",
        "Origins that browsers may send requests from; empty for none.",
        "",
        "LOW",
        _REST,
    ),
    Key(
        "access.control.allow.methods",
        "STRING",
        "Methods that these origins may use.",
        "",
        "LOW",
        _REST,
    ),
    Key(
        "admin.listeners",
        "LIST",
        "Addresses of the admin API; default: `listeners`; empty disables it.",
        None,
        "LOW",
        _REST,
    ),
    Key(
        "topic.tracking.enable",
        "BOOLEAN",
        "Record the active topics of each connector.",
        "true",
        "LOW",
        _REST,
    ),
    Key(
        "topic.tracking.allow.reset",
        "BOOLEAN",
        "Allow requests to reset the active topics.",
        "true",
        "LOW",
        _REST,
    ),
    Key(
        "icefloe.state.storage",
        "STRING",
        "Where a node keeps configurations, layouts and states: `kafka` is the storage topics, "
        "`file` is files in `icefloe.state.dir`. A node with files is alone: it joins no group, "
        "it serves the REST API only if `listeners` is set, and `icefloe.log.output` is `stdout` "
        "unless it is set. `icefloe standalone` sets it.",
        "kafka",
        "MEDIUM",
        _STORAGE,
        choices=("kafka", "file"),
    ),
    Key(
        "config.storage.topic",
        "STRING",
        "Compacted topic of connector configurations, with one partition.",
        REQUIRED,
        "HIGH",
        _STORAGE,
    ),
    Key(
        "config.storage.replication.factor",
        "SHORT",
        "Replication factor of a new topic; -1 is the default of the broker.",
        "3",
        "LOW",
        _STORAGE,
    ),
    Key(
        "status.storage.topic",
        "STRING",
        "Compacted topic of connector and task states.",
        REQUIRED,
        "HIGH",
        _STORAGE,
    ),
    Key(
        "status.storage.replication.factor",
        "SHORT",
        "Replication factor of a new topic; -1 is the default of the broker.",
        "3",
        "LOW",
        _STORAGE,
    ),
    Key(
        "status.storage.partitions",
        "INT",
        "Number of partitions of a new status topic.",
        "5",
        "LOW",
        _STORAGE,
    ),
    Key(
        "offset.storage.topic",
        "STRING",
        "Topic for offsets of source connectors.",
        None,
        "LOW",
        _STORAGE,
        java_only="only source connectors use it",
    ),
    Key(
        "offset.storage.file.filename",
        "STRING",
        "File for offsets of a standalone worker.",
        None,
        "LOW",
        _STORAGE,
        java_only="source offsets are committed with the files, in the connector's consumer group",
    ),
    Key(
        "offset.storage.replication.factor",
        "SHORT",
        "Replication factor of that topic.",
        "3",
        "LOW",
        _STORAGE,
        java_only="only source connectors use it",
    ),
    Key(
        "offset.storage.partitions",
        "INT",
        "Partitions of that topic.",
        "25",
        "LOW",
        _STORAGE,
        java_only="only source connectors use it",
    ),
    Key(
        "offset.flush.interval.ms",
        "LONG",
        "Offset commit interval of the Java worker. In Icefloe, "
        "`iceberg.control.commit.interval-ms` is the interval.",
        "60000",
        "LOW",
        _STORAGE,
        unit="ms",
        java_only="offsets are committed with each round's events",
    ),
    Key(
        "key.converter",
        "CLASS",
        "Converter of record keys for connectors without `key.converter`.",
        JSON_CONVERTER,
        "HIGH",
        _DEFAULTS,
    ),
    Key(
        "value.converter",
        "CLASS",
        "Converter of record values for connectors without `value.converter`.",
        JSON_CONVERTER,
        "HIGH",
        _DEFAULTS,
    ),
    Key(
        "header.converter",
        "CLASS",
        "Converter of record headers for connectors without `header.converter`.",
        HEADER_CONVERTER,
        "LOW",
        _DEFAULTS,
    ),
    Key(
        "config.providers",
        "LIST",
        "Names of the configuration providers for `${name:path:key}` placeholders: file, env, dir.",
        "",
        "LOW",
        _DEFAULTS,
    ),
    Key(
        "plugin.path",
        "LIST",
        "Folders of Java plugins.",
        None,
        "LOW",
        _DEFAULTS,
        java_only="plugins are Python packages",
    ),
    Key(
        NODE_KEY,
        "LIST",
        "Topics that connectors may neither read nor use for dead letters, in addition to the "
        "nodes' storage topics, the broker's internal topics and the control topics of connectors. "
        "For example, control topics of Java sinks in the same Kafka cluster.",
        "",
        "MEDIUM",
        _OWN,
    ),
    Key(
        "spark.master",
        "STRING",
        "Spark master of the workers: local[*], or a Spark standalone, Kubernetes or YARN master. "
        "A local master has three attempts per Spark task unless it sets the number: "
        "local[N,ATTEMPTS].",
        "local[*]",
        "HIGH",
        _OWN,
    ),
    Key(
        "icefloe.state.dir",
        "STRING",
        "Folder for temporary files: Spark's scratch space, and checkpoints of running queries.",
        "state",
        "MEDIUM",
        _OWN,
    ),
    Key(
        "icefloe.drain.grace.ms",
        "LONG",
        "Time that tasks and coordinators have to stop before they are killed.",
        "30000",
        "MEDIUM",
        _OWN,
        unit="ms",
        check=between(0, 3_600_000),
    ),
    Key(
        "icefloe.secrets.refresh.ms",
        "LONG",
        "Interval at which tasks and coordinators read placeholders and the files of keys and "
        "certificates again. After a change they finish their work and open new clients.",
        "10000",
        "LOW",
        _OWN,
        unit="ms",
        check=between(1_000, 86_400_000),
    ),
    Key(
        "icefloe.coordinator.processes",
        "INT",
        "Coordinator processes of the node. Connectors are spread over them. One process uses one "
        "core, which is enough for about 150 commits of tables per second.",
        "1",
        "LOW",
        _OWN,
        check=between(1, 64),
    ),
    Key(
        "icefloe.coordinator.commit.processes",
        "INT",
        "Processes for each connector with several tables that commit these tables for its "
        "coordinator. 0 commits in the coordinator process. With "
        "iceberg.catalog.multi-table-commit the coordinator process commits.",
        "0",
        "LOW",
        _OWN,
        check=between(0, 64),
    ),
    Key(
        "icefloe.child.silence.max.ms",
        "LONG",
        "Time without heartbeats after which a worker, coordinator or commit process is killed and "
        "restarted. The heartbeat interval is 5 s.",
        "120000",
        "LOW",
        _OWN,
        unit="ms",
        check=between(10_000, 86_400_000),
    ),
    Key(
        "icefloe.maintenance.enabled",
        "BOOLEAN",
        "Allow connectors to have their tables maintained on this node (`iceberg.maintenance.*`). "
        "The maintenance process uses Java clients, which icefloe.hosts.allowed and "
        "icefloe.ambient.credentials.allowed do not bind. Default: true, or false if the REST API "
        "has users.",
        None,
        "MEDIUM",
        _OWN,
    ),
    Key(
        "icefloe.maintenance.heap.mb",
        "INT",
        "Heap of the JVM of the maintenance process, which runs only while it has work.",
        "1024",
        "LOW",
        _OWN,
        unit="MiB",
        check=between(512, 1_048_576),  # Spark does not start with less than 450 MiB
    ),
    Key(
        "icefloe.task.restart.max",
        "INT",
        "Maximum number of automatic restarts of a failed task; 0 disables restarts.",
        "10",
        "MEDIUM",
        _OWN,
        unit="restarts",
        check=between(0, 1_000_000),
    ),
    Key(
        "icefloe.task.restart.backoff.ms",
        "LONG",
        "Backoff before the first restart; it doubles with each restart.",
        "1000",
        "LOW",
        _OWN,
        unit="ms",
        check=between(1, 86_400_000),
    ),
    Key(
        "icefloe.task.restart.backoff.max.ms",
        "LONG",
        "Maximum backoff between restarts.",
        "300000",
        "LOW",
        _OWN,
        unit="ms",
        check=between(1, 86_400_000),
    ),
    Key(
        "icefloe.metadata.refresh.ms",
        "LONG",
        "Refresh interval of the topics and partitions of connectors.",
        "5000",
        "LOW",
        _OWN,
        unit="ms",
        check=at_least(100),
    ),
    Key(
        "icefloe.log.output",
        "STRING",
        "Where logs are written. `files`: the node writes to standard error, worker and "
        "coordinator write to `worker.log` and `coordinator.log` in `icefloe.state.dir`. `stdout`: "
        "all three write to standard output, with the name of the process in every line.",
        "files",
        "MEDIUM",
        _OWN,
        choices=("files", "stdout"),
    ),
    Key(
        "icefloe.log.format",
        "STRING",
        "Form of the lines on standard output and standard error. Files always have JSON.",
        "json",
        "LOW",
        _OWN,
        choices=("json", "text"),
    ),
    Key(
        "icefloe.statsd.address",
        "STRING",
        "`host:port` of a statsd server that receives the metrics every 10 s.",
        None,
        "LOW",
        _OWN,
    ),
    Key(
        "icefloe.statsd.prefix",
        "STRING",
        "Prefix of the metric names for the statsd server.",
        "icefloe",
        "LOW",
        _OWN,
    ),
    Key(
        "icefloe.otel.enabled",
        "BOOLEAN",
        "Send metrics, and a trace of each round, to an OpenTelemetry collector (OTLP over HTTP). "
        "Address, headers, interval and sampling are set by OpenTelemetry's own environment "
        "variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. Needs the extra `otel`.",
        "false",
        "MEDIUM",
        _OWN,
    ),
    *NOTIFICATION_KEYS,
    *LINEAGE_KEYS,
    Key(
        "icefloe.validate.remote.ms",
        "INT",
        "Timeout of the checks against brokers, catalog and schema registries when a connector is "
        "validated; a single check gets three fifths of it. 0 disables these checks. They are not "
        "part of creating a connector.",
        "5000",
        "LOW",
        _OWN,
        unit="ms",
        check=between(0, 60_000),
    ),
)
