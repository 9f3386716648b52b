"""Clients of one connector's cluster and catalog, opened with a node's properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from connect.config.connector import ConnectorConfig
from connect.config.properties_file import parse_properties
from connect.config.reserved_topics import node_topics
from connect.config.table_formats import FORMAT, FORMAT_NAMES, UNSUPPORTED
from connect.errors import ConfigError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, client_properties
from connect.model.layout import TopicPartition
from connect.protocol.source_partitions import source_partitions
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve


@dataclass(frozen=True, slots=True)
class ConnectorClients:
    """Clients for one connector, its catalog included.

    Attributes:
        config: placeholders resolved: it never leaves the process.
        admin: the cluster.
        reader: assigned to no partition.
        catalog: of the connector.
        partitions: source partitions that the connector reads.
    """

    config: ConnectorConfig
    admin: KafkaAdmin
    reader: LogReader
    catalog: CatalogGateway
    partitions: tuple[TopicPartition, ...]


def read_properties(
    path: Path | None, bootstrap_servers: str | None, *, has_broker: bool = True
) -> dict[str, str]:
    """Read node properties for a command that asks no node.

    Args:
        path: the file; None for no properties.
        bootstrap_servers: replaces those of the file.
        has_broker: whether the command needs a broker.

    Raises:
        ConfigError: the file cannot be read, or no broker is named.
    """
    try:
        properties = parse_properties(path.read_text("utf-8")) if path is not None else {}
    except (OSError, ValueError) as e:
        raise ConfigError(f"cannot read the properties {path}: {e}", code="properties") from e
    if bootstrap_servers:
        properties["bootstrap.servers"] = bootstrap_servers
    if has_broker and not properties.get("bootstrap.servers"):
        raise ConfigError(
            "no broker is named: add --bootstrap-server, or --properties with bootstrap.servers",
            code="bootstrap_servers_missing",
        )
    return properties


@dataclass(frozen=True, slots=True)
class ConnectorCluster:
    """Clients for one connector's topics, without its catalog.

    Attributes:
        config: placeholders resolved: it never leaves the process.
        admin: the cluster.
        reader: assigned to no partition.
        producer_properties: for a producer, as the connector's tasks have them.
        excluded: reserved topics, which ``topics.regex`` does not match.
    """

    config: ConnectorConfig
    admin: KafkaAdmin
    reader: LogReader
    producer_properties: Mapping[str, str]
    excluded: frozenset[str]


@contextmanager
def opened_cluster(
    raw: Mapping[str, str],
    node: Mapping[str, str],
    environ: Mapping[str, str],
    reserved: frozenset[str] = frozenset(),
) -> Iterator[ConnectorCluster]:
    """Open Kafka clients for a connector, but not its catalog; as ``opened``."""
    providers = Providers(node, environ)
    config = resolve(parse(raw, node=node, resolve=providers.resolve), providers, node=node)
    node_properties = providers.resolve_all(node)
    kafka = client_properties(node_properties, config.kafka_overrides)
    with ExitStack() as closing:
        admin = KafkaAdmin(kafka)
        closing.callback(admin.close)
        reader = LogReader(kafka)
        closing.callback(reader.close)
        producer = client_properties(
            node_properties, config.producer_overrides, config.kafka_overrides, prefix="producer."
        )
        yield ConnectorCluster(config, admin, reader, producer, node_topics(node) | reserved)


def refuse_without_snapshots(config: ConnectorConfig) -> None:
    """Refuse an operation that reads snapshots of Iceberg tables.

    Raises:
        ConfigError: ``delta_unsupported``, ``parquet_unsupported``, ``topic_unsupported``: the
            connector's tables have another format, or it has none.
    """
    if not config.has_tables:
        raise ConfigError(
            f"connector {config.name} has no tables ({FORMAT}={config.table_format}), and this "
            "operation needs tables",
            code=UNSUPPORTED[config.table_format],
        )
    if not config.is_iceberg:
        raise ConfigError(
            f"the tables of connector {config.name} are {FORMAT_NAMES[config.table_format]}, and "
            "this operation needs snapshots or a catalog of Iceberg",
            code=UNSUPPORTED[config.table_format],
        )


@contextmanager
def opened(
    raw: Mapping[str, str],
    node: Mapping[str, str],
    environ: Mapping[str, str],
    reserved: frozenset[str] = frozenset(),
    *,
    needs_snapshots: bool = True,
) -> Iterator[ConnectorClients]:
    """Open clients for a connector; they are closed at the end of the block.

    Args:
        raw: the connector's configuration, with its name.
        node: node properties.
        environ: for placeholders, as the properties allow.
        reserved: topics that ``topics.regex`` does not match, besides those of the node: control
            topics of other connectors.
        needs_snapshots: whether the operation reads snapshots of Iceberg tables.

    Raises:
        ConfigError: the configuration is wrong; as ``refuse_without_snapshots``.
        RetriableError: the broker is unavailable.
    """
    with opened_cluster(raw, node, environ, reserved) as cluster, ExitStack() as closing:
        config, admin = cluster.config, cluster.admin
        if needs_snapshots or not config.has_tables:
            refuse_without_snapshots(config)
        catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
        closing.callback(catalog.close)
        partitions = source_partitions(config, admin.topics(), excluded=cluster.excluded)
        yield ConnectorClients(config, admin, cluster.reader, catalog, tuple(partitions))
