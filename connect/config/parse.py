"""From a connector's JSON to its typed configuration."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from connect.config.check import (
    Checked,
    Raw,
    check_connector,
    check_framework,
    check_nulls,
    split_terms,
)
from connect.config.connector import (
    ConnectorConfig,
    ConverterConfig,
    ErrorsConfig,
    PredicateConfig,
    TableConfig,
    TransformConfig,
)
from connect.config.declarations import (
    CONNECTOR_ALIASES,
    CONNECTOR_CLASSES,
    KEYS,
)
from connect.config.enrich import check_aliases
from connect.config.groups import named_group
from connect.config.keys import list_of
from connect.config.overrides import handed_on, split
from connect.config.plugins import BUILT_IN
from connect.errors import ConfigError
from connect.java_regex import compile_java_regex
from connect.table_names import topic_map

_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
GRANTS = "icefloe.grants."
DEAD_LETTER_TABLE = "errors.deadletterqueue.table"
_MULTI_TABLE = "multi-table-commit"


class InvalidConfigError(ConfigError):
    """A configuration with everything that is wrong with it.

    Attributes:
        errors: sentences per key.
    """

    def __init__(self, connector: str | None, errors: Mapping[str, list[str]]) -> None:
        lines = [f"{name}: {text}" for name, sentences in errors.items() for text in sentences]
        super().__init__(
            f"{len(lines)} error(s) in the configuration: " + "; ".join(lines), connector=connector
        )
        self.errors = {name: tuple(sentences) for name, sentences in errors.items()}


def parse(
    raw: Mapping[str, str],
    *,
    node: Mapping[str, str] | None = None,
    resolve: Callable[[str], str] | None = None,
) -> ConnectorConfig:
    """Read a connector's configuration.

    Args:
        raw: the configuration as sent, placeholders unresolved.
        node: node properties; its converters are the defaults of connectors.
        resolve: turns text with placeholders into text without. Used for numbers, booleans and
            choices only, so that no secret gets into the result.

    Returns:
        The typed configuration, ``raw`` as given.

    Raises:
        InvalidConfigError: one or more errors, each with its key.
    """
    readable = _readable(raw, resolve)
    checked = check(readable)
    for kind in ("transformation", "predicate"):
        checked.merge(check_aliases(readable, kind, BUILT_IN).checked)
    grant = granted_tables(raw, node or {})
    for key in ("iceberg.tables", DEAD_LETTER_TABLE) if grant else ():
        given = checked.values.get(key) or ()
        names = [given] if isinstance(given, str) else given
        for table in _tables(names, checked.values["iceberg.tables.default-namespace"]):
            if not compile_java_regex(grant or "").fullmatch(table):
                checked.add(key, f"{table} is not among the tables granted: {grant}")
    if checked.errors:
        raise InvalidConfigError(raw.get("name"), checked.errors)
    config = _build(readable, checked, node or {})
    return dataclasses.replace(config, raw=dict(raw))


def granted_tables(raw: Raw, node: Mapping[str, str]) -> str | None:
    """The regular expression of the tables that a connector may write; None: all."""
    return node.get(GRANTS + str(raw.get("name")), node.get(GRANTS + "default"))


def check(raw: Raw) -> Checked:
    """Judge a whole configuration of the Iceberg sink."""
    checked = check_framework(raw)
    checked.merge(check_connector(raw))
    checked.merge(check_nulls(raw))
    class_name = raw.get("connector.class")
    if class_name and class_name.strip() not in CONNECTOR_CLASSES | CONNECTOR_ALIASES:
        checked.add(
            "connector.class",
            f"Failed to find any class that implements Connector and which name matches "
            f"{class_name}",
        )
    return checked


def _readable(raw: Mapping[str, str], resolve: Callable[[str], str] | None) -> Mapping[str, str]:
    if resolve is None:
        return raw
    return {
        name: resolve(value)
        if name in KEYS
        and KEYS[name].type not in {"STRING", "PASSWORD", "CLASS"}
        and _PLACEHOLDER.search(value)
        else value
        for name, value in raw.items()
    }


def _converter(kind: str, raw: Mapping[str, str], node: Mapping[str, str]) -> ConverterConfig:
    """The connector's converter, else the node's; options come from where the class does."""
    name = f"{kind}.converter"
    source = raw if name in raw or name not in node else node
    default = KEYS[name].default_text
    options = split(source, f"{name}.")
    options.pop("plugin.version", None)
    return ConverterConfig(source.get(name, default or "").strip(), options)


def _transforms(raw: Mapping[str, str]) -> tuple[TransformConfig, ...]:
    found = []
    for alias in list_of(raw.get("transforms", "").strip()):
        options = split(raw, f"transforms.{alias}.")
        class_name = options.pop("type", "").strip()
        predicate = options.pop("predicate", None)
        negate = options.pop("negate", "false").strip().lower() == "true"
        options.pop("plugin.version", None)
        found.append(
            TransformConfig(
                alias,
                class_name,
                options,
                None if predicate is None else _predicate(raw, predicate.strip()),
                negate,
            )
        )
    return tuple(found)


def _predicate(raw: Mapping[str, str], alias: str) -> PredicateConfig:
    options = split(raw, f"predicates.{alias}.")
    options.pop("plugin.version", None)
    return PredicateConfig(alias, options.pop("type", "").strip(), options)


def _table_configs(
    raw: Mapping[str, str], default: TableConfig, tables: tuple[str, ...]
) -> dict[str, TableConfig]:
    settings: dict[str, dict[str, str]] = {table: {} for table in tables}
    for name, value in split(raw, "iceberg.table.").items():
        table, _, setting = name.rpartition(".")
        settings.setdefault(table, {})[setting] = value
    return {
        table: TableConfig(
            name=table,
            route_regex=own.get("route-regex"),
            id_columns=split_terms(own["id-columns"])
            if "id-columns" in own
            else default.id_columns,
            partition_by=split_terms(own["partition-by"])
            if "partition-by" in own
            else default.partition_by,
            commit_branch=own.get("commit-branch") or default.commit_branch,
            sort_by=split_terms(own["sort-by"]) if "sort-by" in own else default.sort_by,
            location=own.get("location", "").strip() or default.location,
        )
        for table, own in settings.items()
    }


def _errors(checked: Checked) -> ErrorsConfig:
    v = checked.values
    tables = _tables(filter(None, [v[DEAD_LETTER_TABLE]]), v["iceberg.tables.default-namespace"])
    return ErrorsConfig(
        tolerance_all=v["errors.tolerance"] == "all",
        log_enable=v["errors.log.enable"],
        log_include_messages=v["errors.log.include.messages"],
        dead_letter_topic=v["errors.deadletterqueue.topic.name"] or None,
        dead_letter_replication_factor=v["errors.deadletterqueue.topic.replication.factor"],
        dead_letter_context_headers=v["errors.deadletterqueue.context.headers.enable"],
        dead_letter_ratio_max=v["errors.deadletterqueue.max-ratio"],
        dead_letter_run_max=v["errors.deadletterqueue.max-run-length"],
        dead_letter_table=tables[0] if tables else None,
        retry_timeout_ms=v["errors.retry.timeout"],
        retry_delay_max_ms=v["errors.retry.delay.max.ms"],
    )


def _tables(names: Iterable[str], namespace: str | None) -> tuple[str, ...]:
    """Tables once each, in a namespace."""
    return tuple(
        dict.fromkeys(
            f"{namespace}.{name}" if namespace and "." not in name else name for name in names
        )
    )


def _default_table(checked: Checked) -> TableConfig:
    """Settings of tables that name none."""
    v = checked.values
    return TableConfig(
        name="",
        id_columns=split_terms(v["iceberg.tables.default-id-columns"]),
        partition_by=split_terms(v["iceberg.tables.default-partition-by"]),
        commit_branch=v["iceberg.tables.default-commit-branch"] or None,
        sort_by=split_terms(v["iceberg.tables.default-sort-by"]),
        location=v["iceberg.tables.default-location"] or None,
    )


def _build(raw: Mapping[str, str], checked: Checked, node: Mapping[str, str]) -> ConnectorConfig:
    v = checked.values
    errors = _errors(checked)
    default_table = _default_table(checked)
    namespace = v["iceberg.tables.default-namespace"] or None
    tables = _tables(v["iceberg.tables"] or (), namespace)
    consumer = handed_on(raw, "consumer.override.")
    catalog = split(raw, "iceberg.catalog.")
    catalog.pop(_MULTI_TABLE, None)
    return ConnectorConfig(
        name=v["name"],
        raw=raw,
        connector_class=v["connector.class"],
        tasks_max=v["tasks.max"],
        topics=tuple(v["topics"]),
        topics_regex=v["topics.regex"] or None,
        key_converter=_converter("key", raw, node),
        value_converter=_converter("value", raw, node),
        header_converter=_converter("header", raw, node),
        errors=errors,
        catalog_name=v["iceberg.catalog"],
        catalog_properties=catalog,
        multi_table_commit=v["iceberg.catalog.multi-table-commit"],
        tables=tables,
        table_configs=_table_configs(raw, default_table, tables),
        route_field=v["iceberg.tables.route-field"] or None,
        dynamic_enabled=v["iceberg.tables.dynamic-enabled"],
        default_table=default_table,
        auto_create_enabled=v["iceberg.tables.auto-create-enabled"],
        auto_create_properties=split(raw, "iceberg.tables.auto-create-props."),
        evolve_schema_enabled=v["iceberg.tables.evolve-schema-enabled"],
        schema_force_optional=v["iceberg.tables.schema-force-optional"],
        schema_case_insensitive=v["iceberg.tables.schema-case-insensitive"],
        cdc_field=v["iceberg.tables.cdc-field"] or None,
        upsert_enabled=v["iceberg.tables.upsert-mode-enabled"],
        write_properties=split(raw, "iceberg.tables.write-props."),
        unmatched=v["iceberg.tables.unmatched"]
        or ("dead-letter" if errors.tolerance_all else "fail"),
        timestamp_unit=v["iceberg.tables.timestamp-unit"],
        max_new_columns=v["iceberg.tables.max-new-columns"],
        max_tables=v["iceberg.tables.max-tables"],
        control_topic=v["iceberg.control.topic"],
        connect_group_id_override=named_group(raw),
        framework_group_id=consumer.get("group.id") or f"connect-{v['name']}",
        coordinator_transactional_prefix=v["iceberg.coordinator.transactional.prefix"] or None,
        commit_interval_ms=v["iceberg.control.commit.interval-ms"],
        commit_timeout_ms=v["iceberg.control.commit.timeout-ms"],
        commit_threads=v["iceberg.control.commit.threads"],
        vtts_out_of_order_ms=v["iceberg.control.vtts.out-of-order-ms"],
        vtts_idle_lag_ms=v["iceberg.control.vtts.idle-lag-ms"],
        vtts_heartbeat_ms=v["iceberg.control.vtts.heartbeat-ms"],
        max_uncommitted_rounds=v["iceberg.worker.max-uncommitted-rounds"],
        drain_records=v["icefloe.drain.records"],
        lso_stalled_ms=v["icefloe.lso.stalled.ms"],
        tasks_per_worker=v["icefloe.tasks.per.worker"],
        auto_offset_reset=_reset(consumer),
        consumer_overrides=consumer,
        producer_overrides=handed_on(raw, "producer.override."),
        kafka_overrides=handed_on(raw, "iceberg.kafka."),
        transforms=_transforms(raw),
        topic_tables=topic_map(v["iceberg.tables.topic-to-table-map"]),
        name_template=v["iceberg.tables.name-template"] or None,
        default_namespace=namespace,
        granted_tables=granted_tables(raw, node or {}),
    )


def _reset(consumer: Mapping[str, str]) -> Literal["earliest", "latest"]:
    is_latest = consumer.get("auto.offset.reset", "").strip() == "latest"
    return "latest" if is_latest else "earliest"
