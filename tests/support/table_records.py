"""Records and configurations for tests of table creation."""

from __future__ import annotations

from typing import Any

from connect.config.connector import ConnectorConfig
from connect.model.records import ConnectSchema, SinkRecord
from connect.validation.parse import parse


def config(**keys: str) -> ConnectorConfig:
    """A connector's configuration; underscores in names stand for hyphens."""
    base = {
        "name": "c",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "t",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1/",
    }
    extra = {f"iceberg.tables.{k.replace('_', '-')}": v for k, v in keys.items()}
    return parse({**base, **extra})


def record(value: Any, schema: ConnectSchema | None = None) -> SinkRecord:
    """A record with a value."""
    return SinkRecord("t", 0, 0, None, value=value, value_schema=schema)


def struct(**fields: ConnectSchema) -> ConnectSchema:
    """A struct schema."""
    return ConnectSchema("struct", fields=tuple(fields.items()))
