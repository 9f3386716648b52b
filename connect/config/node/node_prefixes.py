"""Key prefixes of the node's properties file."""

from __future__ import annotations

from connect.config.key import Prefix
from connect.config.location_policy import (
    LOCATIONS_PREFIX,
    OUTPUT_TOPICS_PREFIX,
    STATIC_TABLES_PREFIX,
)
from connect.config.node.lineage_keys import LINEAGE_KAFKA_PREFIX

NODE_PREFIXES: tuple[Prefix, ...] = (
    Prefix("security.", "Kafka client security.", "security.protocol"),
    Prefix("sasl.", "Kafka client authentication.", "sasl.mechanism", is_secret_bearing=True),
    Prefix("ssl.", "Kafka client TLS.", "ssl.truststore.certificates", is_secret_bearing=True),
    Prefix("consumer.", "Property of the node's consumers.", "consumer.fetch.max.bytes"),
    Prefix("producer.", "Property of the node's producers.", "producer.compression.type"),
    Prefix("admin.", "Property of the node's admin clients.", "admin.request.timeout.ms"),
    Prefix(
        "key.converter.", "Option of the default key converter.", "key.converter.schemas.enable"
    ),
    Prefix(
        "value.converter.",
        "Option of the default value converter.",
        "value.converter.schemas.enable",
    ),
    Prefix("header.converter.", "Option of the default header converter.", "header.converter.x"),
    Prefix(
        "config.providers.",
        "Class and parameters of a configuration provider.",
        "config.providers.file.param.allowed.paths",
    ),
    Prefix(
        "icefloe.grants.",
        "Java regular expression of the tables that connectors may write. The suffix is the name "
        "of a connector, a name pattern (`*` matches any text) or `default` for other connectors; "
        "the longest match applies. Default: all tables.",
        "icefloe.grants.orders",
    ),
    Prefix(
        LOCATIONS_PREFIX,
        "Locations (comma-separated URIs) that must contain the tables of connectors. The suffix "
        "is a name, a pattern or `default`, as for grants. Default: all locations.",
        "icefloe.locations.orders-*",
    ),
    Prefix(
        STATIC_TABLES_PREFIX,
        "Static tables (comma-separated) that queries of `Sql` may join: patterns of "
        "`<namespace>.<table>` (`*` matches any text), and locations of Parquet files. The suffix "
        "is a name, a pattern or `default`, as for grants. Default: all tables, or none if the "
        "REST API has users.",
        "icefloe.static.tables.orders-*",
    ),
    Prefix(
        OUTPUT_TOPICS_PREFIX,
        "Topics (comma-separated patterns, `*` matches any text) to which outputs of connectors "
        "may send rows. The suffix is a name, a pattern or `default`, as for grants. Default: all "
        "topics, or none if the REST API has users.",
        "icefloe.output.topics.orders-*",
    ),
    Prefix(
        LINEAGE_KAFKA_PREFIX,
        "Property of the producer of lineage events, in addition to the node's own. A producer "
        "with other `bootstrap.servers` does not receive the node's login and TLS properties.",
        f"{LINEAGE_KAFKA_PREFIX}bootstrap.servers",
        is_secret_bearing=True,
    ),
    Prefix("spark.", "Property of the worker's Spark session.", "spark.executor.memory"),
)
