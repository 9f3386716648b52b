"""Parsing of a connector's JSON to its typed configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from connect.config.aggregation import TOPIC as AGGREGATE_TOPIC
from connect.config.aggregation import Aggregation
from connect.config.client_overrides import PREFIXES, allowed_overrides, split
from connect.config.connector import (
    ConnectorConfig,
    ConverterConfig,
    ErrorsConfig,
    MaintenanceConfig,
    PredicateConfig,
    SnapshotExpiryConfig,
    TableConfig,
    TopicConverters,
    TransformConfig,
    TypeConflict,
    Unmatched,
)
from connect.config.end_position import end_position
from connect.config.invalid_config import InvalidConfigError
from connect.config.key import Raw, list_of
from connect.config.keys.connector_keys import CONNECTOR_ALIASES, CONNECTOR_CLASSES, KEYS
from connect.config.keys.maintenance_keys import window_of
from connect.config.keys.topic_keys import CONVERTER_SETTINGS, REGEX, TopicKey, topic_key
from connect.config.local_paths import TABLE_PATHS
from connect.config.location_policy import LocationPolicy, grant_of
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS
from connect.config.output_topics_policy import OutputTopicsPolicy
from connect.config.placeholders import has_placeholder
from connect.config.source_group import named_group
from connect.config.start_position import StartPosition, start_position
from connect.config.static_tables_policy import StaticTablesPolicy
from connect.config.table_formats import (
    AGGREGATE,
    AGGREGATE_LOCATION,
    COPY_ON_WRITE,
    FORMAT,
    HASH_DISTRIBUTION,
    ROWS,
    ROWS_COLUMNS,
    TOPIC,
)
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.gateways.catalog_properties import client_config, refuse_places
from connect.java_compat.java_regex import compile_java_regex
from connect.records.table_names import topic_map
from connect.records.transforms.sql.sql_transform import STATIC_TABLE, is_sql
from connect.validation.access_check import unreachable
from connect.validation.alias_keys import check_aliases
from connect.validation.catalog_view import catalog_properties, is_folder, state_properties
from connect.validation.client_policy import ClientPolicy
from connect.validation.key_checks import (
    Checked,
    check_connector,
    check_framework,
    check_nulls,
    split_terms,
)
from connect.validation.output_checks import outputs_of
from connect.validation.plugins import BUILT_IN

GRANTS = "icefloe.grants."
APPEND = "append"
DEAD_LETTER_TABLE = "errors.deadletterqueue.table"
_LOCATION_KEYS = frozenset({"iceberg.tables.default-location"}) | {
    f"iceberg.tables.{kind}-props.{name}"
    for kind in ("auto-create", "write")
    for name in TABLE_PATHS
}


def parse(
    raw: Mapping[str, str],
    *,
    node: Mapping[str, str] | None = None,
    resolve: Callable[[str], str] | None = None,
) -> ConnectorConfig:
    """Parse a connector's configuration.

    Args:
        raw: the configuration as sent, with placeholders.
        node: node properties with the default converters and the policies for connectors; None
            checks without a node.
        resolve: resolves placeholders. It is used for numbers, booleans, choices and policies
            only, so that the result contains no secrets.

    Returns:
        The typed configuration; ``raw`` is unchanged.

    Raises:
        InvalidConfigError: the configuration has errors; contains all of them by key.
    """
    readable = _readable(raw, resolve)
    checked = check(readable)
    for kind in ("transformation", "predicate"):
        checked.merge(check_aliases(readable, kind, BUILT_IN).checked)
    if node is not None:
        policy = ClientPolicy.of(node, resolve)
        for key, sentence in policy.refusals(_resolved_overrides(raw, resolve)):
            checked.add(key, sentence)
        name = str(raw.get("name"))
        misplaced = _misplaced(raw, resolve, LocationPolicy.of(name, node, resolve))
        static = _not_joinable(raw, resolve, StaticTablesPolicy.of(name, node, resolve))
        topics = _not_granted_topics(raw, OutputTopicsPolicy.of(name, node, resolve))
        for key, sentence in (*misplaced, *static, *topics):
            checked.add(key, sentence)
        for key, sentence in unreachable(raw, AccessPolicy.of(node)) if resolve is None else ():
            checked.add(key, sentence)
    grant = granted_tables(raw, node or {})
    for key in ("iceberg.tables", DEAD_LETTER_TABLE) if grant else ():
        value = checked.values.get(key) or ()
        names = [value] if isinstance(value, str) else value
        for table in _tables(names, checked.values["iceberg.tables.default-namespace"]):
            if not compile_java_regex(grant or "").fullmatch(table):
                checked.add(key, f"{table} is not among the granted tables: {grant}")
    if checked.errors:
        raise InvalidConfigError(raw.get("name"), checked.errors)
    config = _build(readable, checked, node or {})
    return dataclasses.replace(
        config,
        raw=dict(raw),
        aggregation=_aggregation(checked.values),
        state_properties=state_properties(readable),
        outputs=outputs_of(readable, checked.values["iceberg.tables.default-namespace"] or None),
        rows_columns=checked.values[ROWS_COLUMNS] or None,
        locations=LocationPolicy.of(config.name, node or {}, resolve),
        static_tables=StaticTablesPolicy.of(config.name, node or {}, resolve),
    )


def _misplaced(
    raw: Raw, resolve: Callable[[str], str] | None, locations: LocationPolicy
) -> Iterator[tuple[str, str]]:
    """Yield key and error message for each location that the operator does not allow."""
    read = resolve or str
    for key, text in raw.items():
        is_table = key.startswith("iceberg.table.") and key.endswith(".location")
        if text and (is_table or key in _LOCATION_KEYS):
            # values of variables cannot leave this location
            location = read(text).partition("${")[0]
            if (why := locations.refusal(location)) is not None:
                yield key, f"The location in {key} {why}."
    for properties in (catalog_properties(raw), state_properties(raw)):
        try:
            opened = client_config({k: read(v) for k, v in properties.items()})
            if opened.kind != "rest":
                refuse_places(opened.properties, locations)
        except ConfigError as error:  # other checks report other errors
            if error.code == "location_not_granted":
                yield error.coordinates["key"], f"{error.message}."


def _not_joinable(
    raw: Raw, resolve: Callable[[str], str] | None, policy: StaticTablesPolicy
) -> Iterator[tuple[str, str]]:
    """Yield key and error message for each static table that the operator does not allow."""
    for alias in list_of((raw.get("transforms") or "").strip()):
        prefix = f"transforms.{alias}."
        if is_sql(raw.get(f"{prefix}type") or ""):
            for name, source in split(raw, f"{prefix}{STATIC_TABLE}").items():
                why = policy.refusal((resolve or str)(source).strip())
                if why is not None:
                    yield f"{prefix}{STATIC_TABLE}{name}", f"{why}."


def _not_granted_topics(raw: Raw, policy: OutputTopicsPolicy) -> Iterator[tuple[str, str]]:
    """Yield key and error message for each output topic that the operator does not allow."""
    for name in list_of((raw.get(OUTPUTS) or "").strip()):
        key = f"{OUTPUT_PREFIX}{name}.topic"
        topic = (raw.get(key) or "").strip()
        if topic and (why := policy.refusal(topic)) is not None:
            yield key, f"{why}."
    topic = (raw.get(AGGREGATE_TOPIC) or "").strip()
    if topic and policy.patterns is not None and has_placeholder(topic):
        # the resolved name would bypass the grants
        yield AGGREGATE_TOPIC, f"{AGGREGATE_TOPIC} cannot contain a placeholder."
    elif topic and (why := policy.refusal(topic)) is not None:
        yield AGGREGATE_TOPIC, f"{why}."


def granted_tables(raw: Raw, node: Mapping[str, str]) -> str | None:
    """Return the regular expression of the tables that a connector may write; None for all."""
    return grant_of(str(raw.get("name")), GRANTS, node)


def check(raw: Raw) -> Checked:
    """Check a complete configuration of the Iceberg sink."""
    checked = check_framework(raw)
    checked.merge(check_connector(raw))
    checked.merge(check_nulls(raw))
    class_name = raw.get("connector.class")
    if class_name and class_name.strip() not in CONNECTOR_CLASSES | CONNECTOR_ALIASES:
        checked.add(
            "connector.class",
            f"Failed to find any class that implements Connector and which name matches "
            f"{class_name}.{BUILT_IN.nearest(class_name.strip(), 'sink')}",
        )
    return checked


def _readable(raw: Mapping[str, str], resolve: Callable[[str], str] | None) -> Mapping[str, str]:
    if resolve is None:
        return raw
    return {
        name: resolve(value)
        if name in KEYS
        and KEYS[name].type not in {"STRING", "PASSWORD", "CLASS"}
        and has_placeholder(value)
        else value
        for name, value in raw.items()
    }


def _resolved_overrides(
    raw: Mapping[str, str], resolve: Callable[[str], str] | None
) -> dict[str, str]:
    """Return the configuration with resolved client overrides, for checks only."""
    overrides = {name: value for name, value in raw.items() if name.startswith(PREFIXES)}
    return overrides if resolve is None else {k: resolve(v) for k, v in overrides.items()}


def _converter(kind: str, raw: Mapping[str, str], node: Mapping[str, str]) -> ConverterConfig:
    """Return the connector's converter, or the node's converter with the node's options."""
    name = f"{kind}.converter"
    source = raw if name in raw or name not in node else node
    return _converter_at(name, source, KEYS[name].default_text or "")


def _converter_at(name: str, source: Mapping[str, str], default: str = "") -> ConverterConfig:
    options = split(source, f"{name}.")
    options.pop("plugin.version", None)
    return ConverterConfig(source.get(name, default).strip(), options)


def _topic_converters(raw: Mapping[str, str]) -> tuple[TopicConverters, ...]:
    """Return the converters of topics; those of single topics are before those of patterns."""
    keys = [parsed for name in raw if (parsed := topic_key(name)) is not None]
    entries = []
    for name in sorted({key.name for key in keys}):
        key, value = (
            _converter_at(whole, raw) if whole in raw else None
            for whole in (TopicKey(name, setting).whole for setting in CONVERTER_SETTINGS)
        )
        entries.append(TopicConverters(name, raw.get(TopicKey(name, REGEX).whole), key, value))
    return tuple(sorted(entries, key=lambda entry: entry.regex is not None))


def _transforms(raw: Mapping[str, str]) -> tuple[TransformConfig, ...]:
    transforms = []
    for alias in list_of(raw.get("transforms", "").strip()):
        options = split(raw, f"transforms.{alias}.")
        class_name = options.pop("type", "").strip()
        predicate = options.pop("predicate", None)
        negate = options.pop("negate", "false").strip().lower() == "true"
        options.pop("plugin.version", None)
        transforms.append(
            TransformConfig(
                alias,
                class_name,
                options,
                None if predicate is None else _predicate(raw, predicate.strip()),
                negate,
            )
        )
    return tuple(transforms)


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

    def flag(own: Mapping[str, str], setting: str, *, default: bool) -> bool:
        return own[setting].strip().lower() == "true" if setting in own else default

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
            is_maintained=own.get("maintenance-enabled", "true").strip().lower() != "false",
            sort_enabled=flag(own, "sort-enabled", default=default.sort_enabled),
            copies_on_write=own["write-mode"].strip().lower() == COPY_ON_WRITE
            if "write-mode" in own
            else default.copies_on_write,
            copy_bytes_max=default.copy_bytes_max,
            uses_vectors=flag(own, "deletion-vectors-enabled", default=default.uses_vectors),
            vector_bytes_max=default.vector_bytes_max,
            uses_equality_deletes=flag(
                own, "equality-deletes-enabled", default=default.uses_equality_deletes
            ),
            type_conflict=cast(TypeConflict, own["type-conflict"].strip())
            if "type-conflict" in own
            else default.type_conflict,
            appends_without_key=own["no-key"].strip() == APPEND
            if "no-key" in own
            else default.appends_without_key,
            appends_keyless_changes=own["no-key-changes"].strip() == APPEND
            if "no-key-changes" in own
            else default.appends_keyless_changes,
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
        refuses_unavailable=v["iceberg.tables.unavailable-value"] == "error",
    )


def _written_tables(checked: Checked) -> tuple[str, ...]:
    """Return the tables of ``iceberg.tables``."""
    v = checked.values
    if v[FORMAT] == TOPIC:
        return (ROWS,)
    return _tables(v["iceberg.tables"] or (), v["iceberg.tables.default-namespace"] or None)


def _tables(names: Iterable[str], namespace: str | None) -> tuple[str, ...]:
    """Return tables with namespaces and without duplicates."""
    return tuple(
        dict.fromkeys(
            f"{namespace}.{name}" if namespace and "." not in name else name for name in names
        )
    )


def _default_table(checked: Checked) -> TableConfig:
    """Return the default settings of tables."""
    v = checked.values
    return TableConfig(
        name="",
        id_columns=split_terms(v["iceberg.tables.default-id-columns"]),
        partition_by=split_terms(v["iceberg.tables.default-partition-by"]),
        commit_branch=v["iceberg.tables.default-commit-branch"] or None,
        sort_by=split_terms(v["iceberg.tables.default-sort-by"]),
        location=v["iceberg.tables.default-location"] or None,
        sort_enabled=v["iceberg.tables.sort-enabled"],
        copies_on_write=v["iceberg.tables.write-mode"] == COPY_ON_WRITE,
        copy_bytes_max=v["iceberg.tables.copy-on-write-max-bytes"],
        uses_vectors=v["iceberg.tables.deletion-vectors-enabled"],
        vector_bytes_max=v["iceberg.tables.deletion-vectors-max-bytes"],
        uses_equality_deletes=v["iceberg.tables.equality-deletes-enabled"],
        type_conflict=v["iceberg.tables.type-conflict"],
        appends_without_key=v["iceberg.tables.no-key"] == APPEND,
        appends_keyless_changes=v["iceberg.tables.no-key-changes"] == APPEND,
    )


def _snapshot_expiry(checked: Checked) -> SnapshotExpiryConfig | None:
    v = checked.values
    if not v["iceberg.maintenance.expire-snapshots.enabled"]:
        return None
    return SnapshotExpiryConfig(
        max_age_ms=v["iceberg.maintenance.expire-snapshots.max-age-ms"],
        min_snapshots_to_keep=v["iceberg.maintenance.expire-snapshots.min-snapshots-to-keep"],
    )


def _start(checked: Checked, consumer: Mapping[str, str]) -> StartPosition:
    v = checked.values
    return start_position(
        v["icefloe.start.timestamp"],
        v["icefloe.start.offsets"],
        consumer.get("auto.offset.reset"),
    )


def _maintenance(checked: Checked) -> MaintenanceConfig | None:
    """Return the work of the maintenance process; None if none is enabled."""
    v = checked.values
    rewrites = v["iceberg.maintenance.rewrite-data-files.enabled"]
    has_manifests = v["iceberg.maintenance.rewrite-manifests.enabled"]
    has_orphans = v["iceberg.maintenance.remove-orphan-files.enabled"]
    if not (rewrites or has_manifests or has_orphans):
        return None
    min_input = v["iceberg.maintenance.rewrite-data-files.min-input-files"]
    min_deletes = v["iceberg.maintenance.rewrite-data-files.min-delete-files"]
    min_manifests = v["iceberg.maintenance.rewrite-manifests.min-manifests"]
    orphan_age_ms = v["iceberg.maintenance.remove-orphan-files.older-than-ms"]
    window = v["iceberg.maintenance.window"]
    return MaintenanceConfig(
        min_input_files=min_input if rewrites else None,
        min_delete_files=min_deletes if rewrites else None,
        target_file_size_bytes=v["iceberg.maintenance.rewrite-data-files.target-file-size-bytes"],
        min_manifests=min_manifests if has_manifests else None,
        orphan_age_ms=orphan_age_ms if has_orphans else None,
        orphan_interval_ms=v["iceberg.maintenance.remove-orphan-files.interval-ms"],
        bytes_per_hour=v["iceberg.maintenance.bytes-per-hour"],
        tables_at_once=v["iceberg.maintenance.tables-at-once"],
        min_interval_ms=v["iceberg.maintenance.min-interval-ms"],
        window=None if window is None else window_of(window),
    )


def _unmatched(errors: ErrorsConfig) -> Unmatched:
    """Return what happens to records without a table if the configuration does not say it."""
    return "dead-letter" if errors.tolerance_all else "fail"


def _aggregation(values: Mapping[str, Any]) -> Aggregation | None:
    if values[FORMAT] != AGGREGATE:
        return None
    return Aggregation.of(values, values[AGGREGATE_LOCATION] or "")


def _build(raw: Mapping[str, str], checked: Checked, node: Mapping[str, str]) -> ConnectorConfig:
    v, errors, default_table = checked.values, _errors(checked), _default_table(checked)
    tables, consumer = _written_tables(checked), allowed_overrides(raw, "consumer.override.")
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
        topic_converters=_topic_converters(raw),
        errors=errors,
        catalog_name=v["iceberg.catalog"],
        catalog_properties=catalog_properties(raw),
        table_format=v[FORMAT],
        multi_table_commit=v["iceberg.catalog.multi-table-commit"],
        snapshot_expiry=_snapshot_expiry(checked),
        maintenance=_maintenance(checked),
        tables=tables,
        table_configs=_table_configs(raw, default_table, tables),
        route_field=v["iceberg.tables.route-field"] or None,
        dynamic_enabled=v["iceberg.tables.dynamic-enabled"],
        default_table=default_table,
        auto_create_enabled=v["iceberg.tables.auto-create-enabled"],
        auto_create_properties=split(raw, "iceberg.tables.auto-create-props."),
        evolve_schema_enabled=v["iceberg.tables.evolve-schema-enabled"],
        schema_force_optional=is_folder(raw) or v["iceberg.tables.schema-force-optional"],
        schema_case_insensitive=is_folder(raw) or v["iceberg.tables.schema-case-insensitive"],
        cdc_field=v["iceberg.tables.cdc-field"] or None,
        upsert_enabled=v["iceberg.tables.upsert-mode-enabled"],
        write_properties=split(raw, "iceberg.tables.write-props."),
        distributes_rows=v["iceberg.tables.write-distribution-mode"] == HASH_DISTRIBUTION,
        unmatched=v["iceberg.tables.unmatched"] or _unmatched(errors),
        refused=v["iceberg.tables.refused"],
        has_typed_columns=v["icefloe.debezium.types"] == "typed",
        timestamp_unit=v["iceberg.tables.timestamp-unit"],
        max_new_columns=v["iceberg.tables.max-new-columns"],
        max_tables=v["iceberg.tables.max-tables"],
        control_topic=v["iceberg.control.topic"],
        connect_group_id_override=named_group(raw),
        framework_group_id=consumer.get("group.id") or f"connect-{v['name']}",
        coordinator_transactional_prefix=v["iceberg.coordinator.transactional.prefix"] or None,
        commit_interval_ms=v["iceberg.control.commit.interval-ms"],
        commit_timeout_ms=v["iceberg.control.commit.timeout-ms"],
        commit_kept_bytes_max=v["iceberg.control.commit.kept-max-bytes"],
        commit_threads=v["iceberg.control.commit.threads"],
        vtts_out_of_order_ms=v["iceberg.control.vtts.out-of-order-ms"],
        vtts_idle_lag_ms=v["iceberg.control.vtts.idle-lag-ms"],
        vtts_future_max_ms=v["iceberg.control.vtts.future-max-ms"],
        max_uncommitted_rounds=v["iceberg.worker.max-uncommitted-rounds"],
        drain_records=v["icefloe.drain.records"],
        batch_timeout_ms=v["icefloe.batch.timeout.ms"],
        lso_stalled_ms=v["icefloe.lso.stalled.ms"],
        end=end_position(v["icefloe.end"]) if v["icefloe.end"] else None,
        tasks_per_worker=v["icefloe.tasks.per.worker"],
        fail_on_data_loss=v["icefloe.fail-on-data-loss"],
        has_lineage=v["icefloe.lineage.enabled"],
        start=_start(checked, consumer),
        consumer_overrides=consumer,
        producer_overrides=allowed_overrides(raw, "producer.override."),
        kafka_overrides=allowed_overrides(raw, "iceberg.kafka."),
        transforms=_transforms(raw),
        topic_tables=topic_map(v["iceberg.tables.topic-to-table-map"]),
        name_template=v["iceberg.tables.name-template"] or None,
        default_namespace=v["iceberg.tables.default-namespace"] or None,
        granted_tables=granted_tables(raw, node or {}),
    )
