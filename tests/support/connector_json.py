"""A valid configuration of a connector, and its validation with changes."""

from __future__ import annotations

from connect.validation.plugins import BUILT_IN
from connect.validation.validate import TakenNames, Validation, validate

GOOD: dict[str, str] = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders,refunds",
    "iceberg.tables": "shop.orders,shop.refunds",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
CATALOG = "iceberg.catalog."
LETTERS = "errors.deadletterqueue.topic.name"
MAP = "iceberg.tables.topic-to-table-map"
BY_TOPIC = {"iceberg.tables": "", "iceberg.tables.default-namespace": "shop"}
NEW = "iceberg.tables.auto-create-props."
AT = "iceberg.tables.default-location"
ORDERS = "iceberg.table.shop.orders."

AGGREGATE: dict[str, str] = {
    "name": "cameras",
    "connector.class": "IcebergSink",
    "topics": "signals",
    "icefloe.format": "aggregate",
    "icefloe.aggregate.location": "/state",
    "icefloe.aggregate.columns": "ts TIMESTAMP, device STRING, amount BIGINT, list ARRAY<INT>",
    "icefloe.aggregate.time-field": "ts",
    "icefloe.aggregate.window": "10 minutes",
    "icefloe.aggregate.slide": "5 minutes",
    "icefloe.aggregate.watermark": "1 hour",
    "icefloe.aggregate.group-by": "device",
    "icefloe.aggregate.functions": "n=count(*),total=sum(amount)",
    "icefloe.aggregate.topic": "results",
}


def aggregate_config(change: dict[str, str] | None = None) -> dict[str, str]:
    """Return a valid connector of aggregates with a change; an empty text removes a key."""
    return {key: value for key, value in {**AGGREGATE, **(change or {})}.items() if value}


def changed(change: dict[str, str]) -> dict[str, str]:
    """Return the valid configuration with a change; an empty text removes a key."""
    return {key: value for key, value in {**GOOD, **change}.items() if value}


def validated(change: dict[str, str], **taken: object) -> Validation:
    """Validate a good configuration with a change; keywords name what other connectors use."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    cluster = TakenNames("nodes", **taken)  # type: ignore[arg-type]  # of one test each
    return validate(sink, changed(change), BUILT_IN, cluster=cluster)


def errors(change: dict[str, str], **taken: object) -> dict[str, tuple[str, ...]]:
    """Error messages by key, as ``validated``."""
    return {info.name: info.errors for info in validated(change, **taken).configs if info.errors}
