"""Keys of the Iceberg sink that do not go together.

Rules of this file:
- Asked when a configuration is validated, created or changed, never for one that is stored: what
  runs goes on running.
- What cannot work, or would damage data, is an error here. What has no effect is a warning in
  ``no_effect``: a Java sink with the same keys runs, and so does ours.
- A value that still holds a placeholder is not judged.
- docs/reference/configuration.md is written from ``RULES``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from connect.config.key import Raw, invalid, missing
from connect.config.keys.iceberg_keys import CONTROL_TOPIC, topic_name
from connect.errors import ConfigError
from connect.gateways.catalog_properties import catalog_kind, client_config
from connect.records.tables.partition_spec import check_terms
from connect.records.tables.table_location import NAMESPACE, TABLE
from connect.validation.config_view import Given, Rule
from connect.validation.ignored_keys import no_effect
from connect.validation.key_checks import Checked, check_connector, nearest, split_terms

_LETTERS = "errors.deadletterqueue.topic.name"
_TABLES = "iceberg.tables"
_CATALOG_KEY = re.compile(r"iceberg\.catalog\.([\w.-]+)")
_CATALOG_NEEDS = {"rest": ("uri",), "sql": ("uri", "warehouse"), "hive": ("uri",)}
_SCHEMES = {"rest": ("http://", "https://"), "hive": ("thrift://",)}


def check_sink(raw: Raw) -> Checked:
    """Judge the keys of the Iceberg sink, each by itself and all together."""
    own = check_connector(raw)
    given = Given.of(raw, own)
    for rule in RULES:
        for name, sentence in rule(given):
            if name not in given.checked.errors:
                own.add(name, sentence)
    own.warnings.extend(no_effect(given))
    return own


def control_topic_is_no_source(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.control.topic` is none of `topics`."""
    control = given[CONTROL_TOPIC]
    if control and control in (given["topics"] or ()):
        yield (
            "topics",
            (
                f"The control topic '{control}' may not be included in the list of topics consumed "
                "by the connector"
            ),
        )


def dead_letters_are_no_events(given: Given) -> Iterator[tuple[str, str]]:
    """`errors.deadletterqueue.topic.name` is not `iceberg.control.topic`, and can be created."""
    topic = given[_LETTERS]
    if not topic:
        return
    if topic == given[CONTROL_TOPIC]:
        yield _LETTERS, invalid(_LETTERS, topic, "it is the control topic: name another")
    elif (why := topic_name(topic)) is not None:
        yield _LETTERS, invalid(_LETTERS, topic, why)


def topics_can_exist(given: Given) -> Iterator[tuple[str, str]]:
    """Each of `topics` is a name that a topic can have."""
    for topic in given["topics"] or ():
        if topic and (why := topic_name(topic)) is not None:
            yield "topics", invalid("topics", topic, why)


def replication_factor(given: Given) -> Iterator[tuple[str, str]]:
    """`errors.deadletterqueue.topic.replication.factor` is -1 (the broker's default) or above 0."""
    name = "errors.deadletterqueue.topic.replication.factor"
    value = given[name]
    if value is not None and value != -1 and value < 1:
        yield name, invalid(name, value, "Value must be at least 1, or -1")


def unmatched_letters_go_somewhere(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.unmatched=dead-letter` needs a dead letter topic or table."""
    name = "iceberg.tables.unmatched"
    somewhere = (_LETTERS, "errors.deadletterqueue.table")
    if given[name] == "dead-letter" and not any(map(given.has, somewhere)):
        yield name, invalid(name, "dead-letter", f"set {' or '.join(somewhere)} too")


def table_settings_are_of_tables(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.table.<table>.*` is about a table that the connector writes to."""
    known = {*given.tables, *given.topic_tables.values()}
    if not known or given.named_by_record or given.is_open(_TABLES):
        return
    if given.dead_letter_table:
        known.add(given.dead_letter_table)
    for name, table, _ in given.per_table():
        if table not in known:
            yield name, f"The connector does not write to table {table}.{nearest(table, known)}"


def some_table_is_matched(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.route-field` with `iceberg.tables` needs a `route-regex` of some table."""
    name = "iceberg.tables.route-field"
    if given[name] and given.tables and not any(given.per_table("route-regex")):
        yield (
            name,
            (
                "No table has a route-regex, so no record would find one; set "
                f"iceberg.table.{given.tables[0]}.route-regex, or leave the route field out"
            ),
        )


def mapped_topics(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.topic-to-table-map` and `topics` name the same topics."""
    name = "iceberg.tables.topic-to-table-map"
    mapped, topics = given.topic_tables, given["topics"]
    if not mapped or not topics or given.has("transforms"):  # which may rename topics
        return
    for topic in mapped:
        if topic not in topics:
            near = nearest(topic, topics)
            yield name, invalid(name, topic, f"topics does not list it.{near}")
    if given.named_by_record or given["iceberg.tables.unmatched"] == "drop":
        return
    for topic in topics:
        if topic not in mapped:
            yield name, f"No table is mapped to topic {topic}; map it, or set a name-template"


def mapped_tables(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.max-tables` is not below the tables that the map names."""
    name = "iceberg.tables.max-tables"
    count, most = len(set(given.topic_tables.values())), given[name]
    if most is not None and count > most:
        yield name, invalid(name, most, f"topic-to-table-map names {count} tables")


def namespace_levels(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.default-namespace` has no empty level."""
    name = "iceberg.tables.default-namespace"
    if given[name] and not all(given[name].split(".")):
        yield name, invalid(name, given[name], "a level of the namespace is empty")


def id_columns(given: Given) -> Iterator[tuple[str, str]]:
    """Identifier columns are named, each once."""
    names = [name for name, _, _ in given.per_table("id-columns")]
    for name in ("iceberg.tables.default-id-columns", *names):
        text = given.raw.get(name) or ""
        columns = split_terms(text)
        if given.is_open(name):
            continue
        if not all(columns):
            yield name, invalid(name, text, "a column's name is empty")
        elif len(set(columns)) < len(columns):
            yield name, invalid(name, text, "a column is there twice")


def partition_terms(given: Given) -> Iterator[tuple[str, str]]:
    """Partition terms do not exclude each other, and none is there twice."""
    names = [name for name, _, _ in given.per_table("partition-by")]
    for name in ("iceberg.tables.default-partition-by", *names):
        try:
            check_terms(split_terms(given.raw.get(name)))
        except ConfigError as error:
            yield name, invalid(name, given.raw.get(name), error.message)


def locations(given: Given) -> Iterator[tuple[str, str]]:
    """No two tables get one location: `default-location` has all the holes that takes."""
    default = "iceberg.tables.default-location"
    template = (given.raw.get(default) or "").strip()
    own = {
        table: (name, text)
        for name, table, _ in given.per_table("location")
        if (text := (given.raw[name] or "").strip())
    }
    if template and TABLE not in template:
        yield default, invalid(default, template, f"tables would share it; put in {TABLE}")
    elif template and NAMESPACE not in template:
        namespaces = sorted(given.namespaces)
        if given["iceberg.tables.dynamic-enabled"] or len(namespaces) > 1:
            where = ", ".join(namespaces) or "the records'"
            why = f"tables are in several namespaces ({where}); put in {NAMESPACE}"
            yield default, invalid(default, template, why)
    taken: dict[str, str] = {}
    for table, (name, text) in own.items():
        filled = text.replace(NAMESPACE, table.rpartition(".")[0])
        filled = filled.replace(TABLE, table.rpartition(".")[2]).rstrip("/")
        if filled in taken:
            yield name, invalid(name, text, f"table {taken[filled]} lies there")
        taken.setdefault(filled, table)


def parquet_only(given: Given) -> Iterator[tuple[str, str]]:
    """`write.format.default` of `write-props` and `auto-create-props` is parquet."""
    for prefix in ("write-props", "auto-create-props"):
        name = f"iceberg.tables.{prefix}.write.format.default"
        text = given.raw.get(name)
        if text and not given.is_open(name) and text.strip().lower() != "parquet":
            yield name, invalid(name, text, "only parquet is written")


def format_version(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.auto-create-props.format-version` is 2."""
    name = "iceberg.tables.auto-create-props.format-version"
    text = given.raw.get(name)
    if text and not given.is_open(name) and text.strip() != "2":
        yield name, invalid(name, text, "only format version 2 is written")


def catalog_properties(given: Given) -> Iterator[tuple[str, str]]:
    """The catalog has what its type needs: `uri` (rest, sql, hive), `warehouse` (sql)."""
    properties = given.under("iceberg.catalog.")
    properties.pop("multi-table-commit", None)
    if any("${" in properties.get(key, "") for key in ("type", "catalog-impl")) or not properties:
        return
    if properties.get("type") and properties.get("catalog-impl"):
        yield (
            "iceberg.catalog.type",
            (
                f"Cannot create catalog {given['iceberg.catalog']}, both type and catalog-impl are "
                f"set: type={properties['type']}, catalog-impl={properties['catalog-impl']}"
            ),
        )
        return
    try:
        kind = catalog_kind(properties)
    except ConfigError:  # a type has its error; a class is looked for where catalogs are opened
        return
    absent = [key for key in _CATALOG_NEEDS.get(kind, ()) if not properties.get(key)]
    for key in absent:
        yield f"iceberg.catalog.{key}", missing(f"iceberg.catalog.{key}")
    uri, schemes = properties.get("uri", ""), _SCHEMES.get(kind)
    is_open = given.is_open("iceberg.catalog.uri")
    if absent or (is_open and kind == "sql"):
        return
    if schemes and not is_open and not uri.lower().startswith(schemes):
        yield "iceberg.catalog.uri", f"The uri of a {kind} catalog begins with {schemes[0]}"
        return
    try:
        client_config(properties)
    except ConfigError as error:
        found = _CATALOG_KEY.search(error.message)
        name = f"iceberg.catalog.{found[1]}" if found else "iceberg.catalog"
        if not given.is_open(name):
            yield name, error.message


RULES: tuple[Rule, ...] = (
    control_topic_is_no_source,
    dead_letters_are_no_events,
    topics_can_exist,
    replication_factor,
    unmatched_letters_go_somewhere,
    table_settings_are_of_tables,
    some_table_is_matched,
    mapped_topics,
    mapped_tables,
    namespace_levels,
    id_columns,
    partition_terms,
    locations,
    parquet_only,
    format_version,
    catalog_properties,
)
