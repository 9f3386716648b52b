"""Families of keys of the node's own properties file."""

from __future__ import annotations

from connect.config.keys import Prefix

NODE_PREFIXES: tuple[Prefix, ...] = (
    Prefix("security.", "Kafka client security.", "security.protocol"),
    Prefix("sasl.", "Kafka client login.", "sasl.mechanism", is_secret_bearing=True),
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
        "Java regex of the tables that the connector of that name may write; `default` is for the "
        "others. Without either a connector may write every table.",
        "icefloe.grants.orders",
    ),
    Prefix("spark.", "Property of the worker's Spark session.", "spark.executor.memory"),
)
