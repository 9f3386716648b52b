"""A connector's configuration, parsed and typed.

Rules of this file:
- This module contains types and derived names only. Keys, defaults and checks are declared in
  ``config/keys``; ``validation/parse`` builds the typed configuration.
- Values contain ``${provider:path:key}`` placeholders until the process that needs the values
  resolves them. A resolved configuration never leaves that process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from connect.config.aggregation import Aggregation
from connect.config.end_position import EndPosition
from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.output_config import OutputConfig
from connect.config.start_position import StartPosition
from connect.config.static_tables_policy import EVERY_STATIC_TABLE, StaticTablesPolicy
from connect.java_compat.java_regex import compile_java_regex

Unmatched = Literal["drop", "dead-letter", "fail"]
Refused = Literal["wait", "dead-letter"]
TypeConflict = Literal["dead-letter", "text", "new-column", "fail"]
TableFormat = Literal["iceberg", "delta", "parquet", "topic", "aggregate"]


@dataclass(frozen=True, slots=True)
class ConverterConfig:
    """A converter: its class as configured, and its options without prefix."""

    class_name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConverters:
    """``icefloe.topic.<name>.*``: the converters of one topic, or of the topics of a pattern.

    Attributes:
        name: the topic; with ``regex`` a name of the pattern.
        regex: Java regular expression for whole topic names; None for the topic ``name``.
        key: converter of keys; None is the connector's.
        value: converter of values; None is the connector's.
    """

    name: str
    regex: str | None = None
    key: ConverterConfig | None = None
    value: ConverterConfig | None = None

    def has_topic(self, topic: str) -> bool:
        """Return whether the converters are those of a topic."""
        if self.regex is None:
            return topic == self.name
        return compile_java_regex(self.regex).fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class PredicateConfig:
    """``predicates.<alias>.*``: the class as configured, and the options without prefix."""

    alias: str
    class_name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransformConfig:
    """``transforms.<alias>.*``: class, options and predicate."""

    alias: str
    class_name: str
    options: Mapping[str, str] = field(default_factory=dict)
    predicate: PredicateConfig | None = None
    negate: bool = False


@dataclass(frozen=True, slots=True)
class ErrorsConfig:
    """``errors.*``: handling of records with errors.

    ``refuses_unavailable`` makes an error of a value that the source of a change did not send.
    """

    tolerance_all: bool = False
    log_enable: bool = False
    log_include_messages: bool = False
    dead_letter_topic: str | None = None
    dead_letter_replication_factor: int = 3
    dead_letter_context_headers: bool = False
    dead_letter_ratio_max: float = 0.5
    dead_letter_run_max: int = 0
    dead_letter_table: str | None = None
    refuses_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class TableConfig:
    """``iceberg.table.<name>.*`` with the connector's defaults.

    ``partition_by`` and ``sort_by`` contain terms as configured, e.g. ``day(ts)``, ``id desc``.
    ``location`` is a template; None lets the catalog choose. ``commit_branch`` None is main.
    ``sort_enabled`` sorts the rows of data files by the table's sort order, if it has one.
    ``copies_on_write`` removes rows by writing data files again, and not with delete files; at most
    ``copy_bytes_max`` per commit. ``uses_vectors`` removes rows of tables of format version 3 by
    deletion vectors, and not by equality deletes; at most ``vector_bytes_max`` of key columns are
    read per commit. ``uses_equality_deletes`` allows equality deletes where neither is possible.
    ``type_conflict`` is the action for values whose type their column does not take.
    ``appends_without_key`` adds the inserts of records without message key if nothing else gives
    the table a key, and ``appends_keyless_changes`` their updates and deletes.
    """

    name: str
    route_regex: str | None = None
    id_columns: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    commit_branch: str | None = None
    sort_by: tuple[str, ...] = ()
    location: str | None = None
    is_maintained: bool = True
    sort_enabled: bool = False
    copies_on_write: bool = False
    copy_bytes_max: int = 2**30
    uses_vectors: bool = True
    vector_bytes_max: int = 2**28
    uses_equality_deletes: bool = True
    type_conflict: TypeConflict = "dead-letter"
    appends_without_key: bool = False
    appends_keyless_changes: bool = False

    @property
    def identifier(self) -> tuple[str, ...]:
        """Return the namespace levels and the name."""
        return tuple(self.name.split("."))


@dataclass(frozen=True, slots=True)
class SnapshotExpiryConfig:
    """``iceberg.maintenance.expire-snapshots.*``; None leaves it to the table's properties."""

    max_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """``iceberg.maintenance.*`` of the work that Spark does in the maintenance process.

    Attributes:
        min_input_files: small files of one partition; None compacts nothing.
        min_delete_files: delete files of a table; None applies none.
        target_file_size_bytes: None leaves it to the table's properties.
        min_manifests: manifests of a table; None rewrites none.
        orphan_age_ms: age of orphan files; None removes none.
        orphan_interval_ms: interval of their removal.
        bytes_per_hour: of data files that are rewritten.
        tables_at_once: tables that are maintained at the same time.
        min_interval_ms: time between two runs of the same work on a table.
        window: first and end minute of the day, UTC; None is always.
    """

    min_input_files: int | None = None
    min_delete_files: int | None = None
    target_file_size_bytes: int | None = None
    min_manifests: int | None = None
    orphan_age_ms: int | None = None
    orphan_interval_ms: int = 86_400_000
    bytes_per_hour: int = 50 * 2**30
    tables_at_once: int = 1
    min_interval_ms: int = 600_000
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """The typed configuration of a connector. ``raw`` is the JSON as sent."""

    name: str
    raw: Mapping[str, str]
    connector_class: str
    tasks_max: int
    topics: tuple[str, ...]
    topics_regex: str | None
    key_converter: ConverterConfig
    value_converter: ConverterConfig
    header_converter: ConverterConfig
    errors: ErrorsConfig
    catalog_name: str
    catalog_properties: Mapping[str, str]
    tables: tuple[str, ...]
    table_configs: Mapping[str, TableConfig]
    route_field: str | None
    dynamic_enabled: bool
    default_table: TableConfig
    auto_create_enabled: bool
    auto_create_properties: Mapping[str, str]
    evolve_schema_enabled: bool
    # without Iceberg no column can become optional later; names of columns ignore the case
    schema_force_optional: bool
    schema_case_insensitive: bool
    cdc_field: str | None
    upsert_enabled: bool
    write_properties: Mapping[str, str]
    unmatched: Unmatched
    refused: Refused
    has_typed_columns: bool
    timestamp_unit: Literal["ms", "us", "ns", "s"]
    max_new_columns: int
    max_tables: int
    control_topic: str
    connect_group_id_override: str | None
    framework_group_id: str
    coordinator_transactional_prefix: str | None
    commit_interval_ms: int
    commit_timeout_ms: int
    commit_kept_bytes_max: int
    commit_threads: int
    vtts_out_of_order_ms: int
    vtts_idle_lag_ms: int
    vtts_future_max_ms: int
    max_uncommitted_rounds: int
    drain_records: int
    batch_timeout_ms: int
    lso_stalled_ms: int
    end: EndPosition | None
    tasks_per_worker: int
    start: StartPosition
    fail_on_data_loss: bool
    consumer_overrides: Mapping[str, str]
    producer_overrides: Mapping[str, str]
    kafka_overrides: Mapping[str, str]
    table_format: TableFormat = "iceberg"
    aggregation: Aggregation | None = None
    state_properties: Mapping[str, str] = field(default_factory=dict)
    multi_table_commit: bool = False
    snapshot_expiry: SnapshotExpiryConfig | None = None
    maintenance: MaintenanceConfig | None = None
    transforms: tuple[TransformConfig, ...] = ()
    topic_converters: tuple[TopicConverters, ...] = ()
    distributes_rows: bool = False
    topic_tables: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[OutputConfig, ...] = ()
    rows_columns: str | None = None
    has_lineage: bool = True
    name_template: str | None = None
    default_namespace: str | None = None
    granted_tables: str | None = None
    locations: LocationPolicy = EVERYWHERE
    static_tables: StaticTablesPolicy = EVERY_STATIC_TABLE

    def with_converters(self, own: TopicConverters) -> ConnectorConfig:
        """Return the configuration with the converters of some topics."""
        return replace(
            self,
            key_converter=own.key or self.key_converter,
            value_converter=own.value or self.value_converter,
        )

    def for_topic(self, topic: str) -> ConnectorConfig:
        """Return the configuration with the converters of a topic."""
        own = next((each for each in self.topic_converters if each.has_topic(topic)), None)
        return self if own is None else self.with_converters(own)

    @property
    def converter_sets(self) -> tuple[ConnectorConfig, ...]:
        """Return the configuration, and one with the converters of each entry for topics."""
        return (self, *map(self.with_converters, self.topic_converters))

    @property
    def is_row_level(self) -> bool:
        """Return whether records replace or delete rows by key."""
        return self.upsert_enabled or self.cdc_field is not None

    @property
    def appends_without_key(self) -> bool:
        """Return whether a table appends rows without key."""
        tables = (self.default_table, *self.table_configs.values())
        return self.is_row_level and any(each.appends_without_key for each in tables)

    @property
    def keeps_keyless_changes(self) -> bool:
        """Return whether changes without key become dead letters without tolerance, too."""
        has_target = self.errors.dead_letter_topic or self.errors.dead_letter_table
        tables = (self.default_table, *self.table_configs.values())
        return bool(self.is_row_level and has_target) and any(
            each.appends_without_key and not each.appends_keyless_changes for each in tables
        )

    @property
    def is_iceberg(self) -> bool:
        """Return whether the tables are Iceberg tables; others have no catalog, no snapshots."""
        return self.table_format == "iceberg"

    @property
    def has_tables(self) -> bool:
        """Return whether rows are written to tables; otherwise they only go to topics."""
        return self.table_format not in {"topic", "aggregate"}

    @property
    def has_catalog(self) -> bool:
        """Return whether a catalog is configured; without tables, it has static tables only."""
        return self.has_tables or any(
            self.catalog_properties.get(name) for name in ("type", "catalog-impl", "uri")
        )

    @property
    def sends_refused_to_dead_letters(self) -> bool:
        """Return whether records of an inaccessible table become dead letters."""
        return self.errors.tolerance_all and self.refused == "dead-letter"

    @property
    def names_tables_by_record(self) -> bool:
        """Return whether the table depends on the record: dynamic, by topic or by template."""
        return bool(self.dynamic_enabled or self.topic_tables or self.name_template)

    def qualified(self, name: str) -> str:
        """Return a table name with its namespace."""
        if "." in name or not self.default_namespace:
            return name
        return f"{self.default_namespace}.{name}"

    @property
    def connect_group_id(self) -> str:
        """Return the consumer group of the source offsets, the ``group_id`` of control events."""
        return self.connect_group_id_override or f"connect-{self.name}"

    @property
    def is_tabular(self) -> bool:
        """Return whether the JSON is for the older sink, which uses another consumer group."""
        return self.connector_class.strip().startswith("io.tabular.")

    @property
    def fallback_group_id(self) -> str | None:
        """Return the group for source offsets that ``connect_group_id`` lacks."""
        return self.framework_group_id if self.is_tabular else None

    @property
    def member_groups(self) -> tuple[str, ...]:
        """Return the consumer groups of running tasks of the Java sink."""
        other = self.fallback_group_id
        return (self.connect_group_id,) if other is None else (self.connect_group_id, other)

    @property
    def control_group_id(self) -> str:
        """Return the consumer group of the control offsets."""
        return f"{self.connect_group_id}-coord"

    @property
    def offsets_property(self) -> str:
        """Return the snapshot summary key of a table's control offsets."""
        return f"kafka.connect.offsets.{self.control_topic}.{self.connect_group_id}"

    @property
    def offsets_mirror_property(self) -> str:
        """Return the table property that mirrors the latest control offsets."""
        return f"icefloe.offsets.{self.control_topic}.{self.connect_group_id}"

    @property
    def valid_through_mirror_property(self) -> str:
        """Return the table property that mirrors the latest VTTS."""
        return f"icefloe.valid-through.{self.control_topic}.{self.connect_group_id}"

    @property
    def valid_through_reset_property(self) -> str:
        """Return the table property of the control offsets at the last reset of the VTTS."""
        return f"icefloe.valid-through-reset.{self.control_topic}.{self.connect_group_id}"

    @property
    def topic_id_property(self) -> str:
        """Return the table property that remembers the control topic's id."""
        return f"icefloe.topic-id.{self.control_topic}.{self.connect_group_id}"

    def is_granted(self, name: str) -> bool:
        """Return whether the node's operator allows this connector to write to a table."""
        if self.granted_tables is None:
            return True
        return compile_java_regex(self.granted_tables).fullmatch(name) is not None

    def may_write(self, name: str) -> bool:
        """Return whether the configuration allows this connector to write to a table."""
        if not self.is_granted(name):
            return False
        listed = {*self.tables, *self.topic_tables.values(), self.errors.dead_letter_table}
        is_open = self.dynamic_enabled or self.name_template is not None
        return is_open or name in {self.qualified(table) for table in listed if table}

    def table(self, name: str) -> TableConfig:
        """Return the settings of a table with the connector's defaults."""
        declared = self.table_configs.get(name)
        if declared is not None:
            return declared
        return replace(self.default_table, name=name)
