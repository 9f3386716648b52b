"""Rules for combinations of keys of the Iceberg sink.

Rules of this file:
- The rules are checked when a configuration is validated, created or changed. They are not checked
  for stored configurations, so that running connectors keep running.
- A combination that cannot work, or would damage data, is an error. A combination without effect is
  a warning in ``ignored_keys``, because the Java sink also accepts it.
- A value with an unresolved placeholder is not checked.
- docs/reference/configuration.md is generated from ``RULES``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from connect.config.key import Raw, invalid, missing
from connect.config.keys.iceberg_keys import CONTROL_TOPIC, topic_name
from connect.config.size_limits import RULE_SENTENCES_MAX
from connect.config.source_group import group_key, source_group
from connect.config.start_position import offsets_error, parse_offsets
from connect.config.table_formats import COPY_ON_WRITE, MERGE_ON_READ, NEW_COLUMN, TEXT
from connect.errors import ConfigError
from connect.gateways.catalog_properties import catalog_kind, client_config
from connect.records.tables.partition_spec import check_terms
from connect.records.tables.table_location import NAMESPACE, TABLE
from connect.validation.aggregate_rules import aggregate_keys
from connect.validation.config_view import ConfigView, Rule
from connect.validation.format_rules import folder_keys, folder_partition_terms, topic_keys
from connect.validation.ignored_keys import no_effect
from connect.validation.key_checks import Checked, check_connector, nearest, split_terms
from connect.validation.output_rules import output_tables, output_topics, outputs_only_add
from connect.validation.query_rules import aggregated_columns, static_tables
from connect.validation.topic_rules import matched_topics, named_topics

_DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_TABLES = "iceberg.tables"
_CATALOG_KEY = re.compile(r"iceberg\.catalog\.([\w.-]+)")
_CATALOG_NEEDS = {"rest": ("uri",), "sql": ("uri", "warehouse"), "hive": ("uri",)}
_SCHEMES = {"rest": ("http://", "https://"), "hive": ("thrift://",)}


def check_sink(raw: Raw) -> Checked:
    """Check the keys of the Iceberg sink, single keys and combinations."""
    own = check_connector(raw)
    view = ConfigView.of(raw, own)
    for rule in RULES:
        for name, sentence in islice(rule(view), RULE_SENTENCES_MAX):
            if name not in view.checked.errors:
                own.add(name, sentence)
    own.warnings.extend(no_effect(view))
    return own


def control_topic_is_not_a_source(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.control.topic` is not in `topics`."""
    control = view[CONTROL_TOPIC]
    if control and control in (view["topics"] or ()):
        yield (
            "topics",
            (
                f"The control topic '{control}' may not be included in the list of topics consumed "
                "by the connector"
            ),
        )


def dead_letter_topic_is_not_control_topic(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`errors.deadletterqueue.topic.name` is a valid name, and not `iceberg.control.topic`."""
    topic = view[_DEAD_LETTER_TOPIC]
    if not topic:
        return
    if topic == view[CONTROL_TOPIC]:
        yield (
            _DEAD_LETTER_TOPIC,
            invalid(_DEAD_LETTER_TOPIC, topic, "it is the control topic: set another topic"),
        )
    elif (why := topic_name(topic)) is not None:
        yield _DEAD_LETTER_TOPIC, invalid(_DEAD_LETTER_TOPIC, topic, why)


def topic_names_are_valid(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`topics` contains valid topic names only."""
    for topic in view["topics"] or ():
        if topic and (why := topic_name(topic)) is not None:
            yield "topics", invalid("topics", topic, why)


def replication_factor(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`errors.deadletterqueue.topic.replication.factor` is positive or -1 (broker's default)."""
    name = "errors.deadletterqueue.topic.replication.factor"
    value = view[name]
    if value is not None and value != -1 and value < 1:
        yield name, invalid(name, value, "Value must be at least 1, or -1")


def unmatched_records_need_a_target(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.unmatched=dead-letter` requires a dead letter topic or table."""
    name = "iceberg.tables.unmatched"
    somewhere = (_DEAD_LETTER_TOPIC, "errors.deadletterqueue.table")
    if view[name] == "dead-letter" and not any(map(view.has, somewhere)):
        yield name, invalid(name, "dead-letter", f"set {' or '.join(somewhere)}, too")


def table_settings_need_a_table(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.table.<table>.*` refers to a table that the connector writes to."""
    tables = {*view.tables, *view.topic_tables.values()}
    if not tables or view.named_by_record or view.has_placeholder(_TABLES):
        return
    if view.dead_letter_table:
        tables.add(view.dead_letter_table)
    for name, table, _ in view.per_table():
        if table not in tables:
            yield name, f"The connector does not write to table {table}.{nearest(table, tables)}"


def route_field_needs_a_regex(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.route-field` with `iceberg.tables` requires a `route-regex` of a table."""
    name = "iceberg.tables.route-field"
    if view[name] and view.tables and not any(view.per_table("route-regex")):
        yield (
            name,
            (
                "No table has a route-regex, so no record matches a table; set "
                f"iceberg.table.{view.tables[0]}.route-regex, or remove the route field"
            ),
        )


def mapped_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.topic-to-table-map` and `topics` contain the same topics."""
    name = "iceberg.tables.topic-to-table-map"
    mapped, topics = view.topic_tables, dict.fromkeys(view["topics"] or ())
    if not mapped or not topics or view.has("transforms"):  # which may rename topics
        return
    for topic in mapped:
        if topic not in topics:
            near = nearest(topic, topics)
            yield name, invalid(name, topic, f"the topic is not in topics.{near}")
    if view.named_by_record or view["iceberg.tables.unmatched"] == "drop":
        return
    for topic in topics:
        if topic not in mapped:
            yield (
                name,
                f"Topic {topic} is not in the topic-to-table-map; add it, or set a name-template",
            )


def started_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.start.offsets` names topics of `topics`."""
    name, topics = "icefloe.start.offsets", view["topics"]
    if not topics or not view[name] or offsets_error(view[name]) is not None:
        return
    for topic in sorted({tp.topic for tp in parse_offsets(view[name])} - set(topics)):
        near = nearest(topic, topics)
        yield name, invalid(name, view[name], f"topic {topic} is not in topics.{near}")


def mapped_tables(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.max-tables` is at least the number of tables in the topic map."""
    name = "iceberg.tables.max-tables"
    count, most = len(set(view.topic_tables.values())), view[name]
    if most is not None and count > most:
        yield name, invalid(name, most, f"topic-to-table-map contains {count} tables")


def namespace_levels(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.default-namespace` has no empty level."""
    name = "iceberg.tables.default-namespace"
    if view[name] and not all(view[name].split(".")):
        yield name, invalid(name, view[name], "a level of the namespace is empty")


def source_group_is_ascii(view: ConfigView) -> Iterator[tuple[str, str]]:
    """The group of the source offsets, `connect-<name>` by default, has printable ASCII only."""
    name, group = group_key(view.raw) or "name", source_group(view.raw)
    if view.has_placeholder(name) or (group.isascii() and group.isprintable()):
        return
    why = f"Kafka's client commits no offsets of the group {group}: use printable ASCII characters"
    yield name, invalid(name, view.raw.get(name), why)


def id_columns(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Identifier columns have names and no duplicates."""
    names = [name for name, _, _ in view.per_table("id-columns")]
    for name in ("iceberg.tables.default-id-columns", *names):
        text = view.raw.get(name) or ""
        columns = split_terms(text)
        if view.has_placeholder(name):
            continue
        if not all(columns):
            yield name, invalid(name, text, "a column name is empty")
        elif len(set(columns)) < len(columns):
            yield name, invalid(name, text, "a column is duplicated")


def partition_terms(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Partition terms do not conflict and have no duplicates."""
    names = [name for name, _, _ in view.per_table("partition-by")]
    for name in ("iceberg.tables.default-partition-by", *names):
        try:
            check_terms(split_terms(view.raw.get(name)))
        except ConfigError as error:
            yield name, invalid(name, view.raw.get(name), error.message)


def locations(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Tables have different locations: `default-location` contains the required variables."""
    default = "iceberg.tables.default-location"
    template = (view.raw.get(default) or "").strip()
    own = {
        table: (name, text)
        for name, table, _ in view.per_table("location")
        if (text := (view.raw[name] or "").strip())
    }
    if template and TABLE not in template:
        yield (
            default,
            invalid(default, template, f"several tables would have this location; add {TABLE}"),
        )
    elif template and NAMESPACE not in template:
        namespaces = sorted(view.namespaces)
        if view["iceberg.tables.dynamic-enabled"] or len(namespaces) > 1:
            where = ", ".join(namespaces) or "the records'"
            why = f"tables are in several namespaces ({where}); add {NAMESPACE}"
            yield default, invalid(default, template, why)
    taken: dict[str, str] = {}
    for table, (name, text) in own.items():
        filled = text.replace(NAMESPACE, table.rpartition(".")[0])
        filled = filled.replace(TABLE, table.rpartition(".")[2]).rstrip("/")
        if filled in taken:
            yield name, invalid(name, text, f"table {taken[filled]} has this location")
        taken.setdefault(filled, table)


def parquet_only(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`write.format.default` of `write-props` and `auto-create-props` is parquet."""
    for prefix in ("write-props", "auto-create-props"):
        name = f"iceberg.tables.{prefix}.write.format.default"
        text = view.raw.get(name)
        if text and not view.has_placeholder(name) and text.strip().lower() != "parquet":
            yield name, invalid(name, text, "only parquet is supported")


def format_version(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.auto-create-props.format-version` is 2 or 3."""
    name = "iceberg.tables.auto-create-props.format-version"
    text = view.raw.get(name)
    if text and not view.has_placeholder(name) and text.strip() not in ("2", "3"):
        yield name, invalid(name, text, "only format versions 2 and 3 are supported")


def write_mode(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`copy-on-write` needs records that replace or delete rows."""
    for name in ("iceberg.tables.write-mode", *(n for n, _, _ in view.per_table("write-mode"))):
        text = (view.raw.get(name) or "").strip().lower()
        if not text or view.has_placeholder(name):
            continue
        if name.startswith("iceberg.table.") and text not in {MERGE_ON_READ, COPY_ON_WRITE}:
            yield name, invalid(name, text, f"Must be {MERGE_ON_READ} or {COPY_ON_WRITE}")
        elif text == COPY_ON_WRITE and not view.is_row_level:
            yield (
                name,
                invalid(
                    name,
                    text,
                    "no record replaces or deletes rows: set iceberg.tables.upsert-mode-enabled or "
                    "iceberg.tables.cdc-field, too",
                ),
            )


def type_conflict(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`type-conflict` of `text` or `new-column` needs `iceberg.tables.evolve-schema-enabled`."""
    own = [name for name, _, _ in view.per_table("type-conflict")]
    for name in ("iceberg.tables.type-conflict", *own):
        text = (view.raw.get(name) or "").strip()
        if text in {TEXT, NEW_COLUMN} and view["iceberg.tables.evolve-schema-enabled"] is False:
            yield (
                name,
                invalid(
                    name, text, "set iceberg.tables.evolve-schema-enabled=true: it adds columns"
                ),
            )


def equality_deletes(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Without equality deletes there is another way to remove rows."""

    def text(table: str, setting: str) -> str:
        name = f"iceberg.tables.{setting}"
        value = view.raw.get(f"iceberg.table.{table}.{setting}") or view.raw.get(name) or ""
        return value.strip().lower()

    names = {"": "iceberg.tables.equality-deletes-enabled"}
    names.update((table, name) for name, table, _ in view.per_table("equality-deletes-enabled"))
    for table, name in names.items():
        if (
            text(table, "equality-deletes-enabled") == "false"
            and text(table, "deletion-vectors-enabled") == "false"
            and text(table, "write-mode") in {"", MERGE_ON_READ}
        ):
            yield (
                name,
                invalid(
                    name,
                    "false",
                    "no way to remove rows is left: set iceberg.tables.write-mode=copy-on-write, "
                    "or, for format version 3, iceberg.tables.deletion-vectors-enabled=true",
                ),
            )


def catalog_properties(view: ConfigView) -> Iterator[tuple[str, str]]:
    """The catalog has the properties of its type: `uri` (rest, sql, hive), `warehouse` (sql)."""
    properties = view.under("iceberg.catalog.")
    properties.pop("multi-table-commit", None)
    if any("${" in properties.get(key, "") for key in ("type", "catalog-impl")) or not properties:
        return
    if properties.get("type") and properties.get("catalog-impl"):
        yield (
            "iceberg.catalog.type",
            (
                f"Cannot create catalog {view['iceberg.catalog']}, both type and catalog-impl are "
                f"set: type={properties['type']}, catalog-impl={properties['catalog-impl']}"
            ),
        )
        return
    try:
        kind = catalog_kind(properties)
    # another check reports the type; classes are checked when a catalog is opened
    except ConfigError:
        return
    absent = [key for key in _CATALOG_NEEDS.get(kind, ()) if not properties.get(key)]
    for key in absent:
        yield f"iceberg.catalog.{key}", missing(f"iceberg.catalog.{key}")
    uri, schemes = properties.get("uri", ""), _SCHEMES.get(kind)
    is_open = view.has_placeholder("iceberg.catalog.uri")
    if absent or (is_open and kind == "sql"):
        return
    if schemes and not is_open and not uri.lower().startswith(schemes):
        yield "iceberg.catalog.uri", f"The uri of a {kind} catalog must begin with {schemes[0]}"
        return
    try:
        client_config(properties)
    except ConfigError as error:
        match = _CATALOG_KEY.search(error.message)
        name = f"iceberg.catalog.{match[1]}" if match else "iceberg.catalog"
        if not view.has_placeholder(name):
            yield name, error.message


RULES: tuple[Rule, ...] = (
    control_topic_is_not_a_source,
    source_group_is_ascii,
    dead_letter_topic_is_not_control_topic,
    topic_names_are_valid,
    replication_factor,
    unmatched_records_need_a_target,
    table_settings_need_a_table,
    route_field_needs_a_regex,
    mapped_topics,
    started_topics,
    named_topics,
    matched_topics,
    mapped_tables,
    namespace_levels,
    id_columns,
    partition_terms,
    locations,
    parquet_only,
    format_version,
    write_mode,
    equality_deletes,
    type_conflict,
    catalog_properties,
    folder_keys,
    folder_partition_terms,
    topic_keys,
    output_topics,
    outputs_only_add,
    output_tables,
    aggregate_keys,
    static_tables,
    aggregated_columns,
)
