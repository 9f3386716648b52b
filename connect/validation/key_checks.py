"""Checks of single keys in a connector's configuration: types, ranges, unknown names.

``parse`` and ``validate`` use these checks. ``parse`` rejects a configuration with errors,
``validate`` reports all errors at their keys.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from connect.config.aggregation import (
    FUNCTIONS,
    REQUIRED,
    SLIDE,
    WATERMARK,
    WINDOW,
    duration_ms,
    parse_functions,
)
from connect.config.client_overrides import override_errors
from connect.config.debezium_preset import preset_values
from connect.config.key import Key, Raw, displayed, invalid, missing, typed
from connect.config.keys.connector_keys import (
    CONNECTOR_KEYS,
    FRAMEWORK_KEYS,
    KEYS,
    PREFIXES,
    TABLE_KEYS,
    is_ours,
    prefix_of,
)
from connect.config.keys.iceberg_keys import UNKNOWN_TO_USERS
from connect.config.keys.output_keys import OUTPUT_KEYS, output_key
from connect.config.keys.topic_keys import REGEX, TOPIC_KEYS, TOPIC_PREFIX, TopicKey, topic_key
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS
from connect.config.placeholders import has_placeholder
from connect.config.size_limits import SENTENCES_MAX, SUGGESTED_NAMES_MAX
from connect.config.table_formats import (
    AGGREGATE,
    FOLDER_FORMATS,
    FORMAT,
    FORMAT_NAMES,
    ROWS_COLUMNS,
    TOPIC,
)
from connect.errors import ConfigError
from connect.gateways.catalog_properties import catalog_kind
from connect.java_compat.java_regex import compile_java_regex, fault
from connect.records.table_names import NameTemplate, topic_map
from connect.records.tables.partition_spec import parse_terms
from connect.records.tables.sort_order import parse_sort_terms
from connect.records.tables.table_location import check_location
from connect.records.transforms.sql.sql_columns import columns_schema
from connect.validation.output_checks import output_errors

NULL_VALUE = "Null value can not be supplied as the configuration value."
EITHER_TOPICS = "Must configure one of topics or topics.regex"
BOTH_TOPICS = "topics and topics.regex are mutually exclusive options, but both are set."
_MULTI_TABLE = "iceberg.catalog.multi-table-commit"
_CREATION = ("partition-by", "sort-by", "location")
_PARENTHESIS = re.compile(r"[()]")


@dataclass(slots=True)
class Checked:
    """The result of the checks of a configuration.

    Attributes:
        values: typed values of declared keys, including defaults; None for a key with an error.
        errors: error messages by key, in the order of the declarations.
        warnings: warnings about keys without effect.
    """

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, sentence: str) -> None:
        """Add an error at a key, up to a maximum number."""
        messages = self.errors.setdefault(name, [])
        if len(messages) < SENTENCES_MAX:
            messages.append(sentence)

    def merge(self, other: Checked) -> None:
        """Add the result of another check."""
        self.values.update(other.values)
        for name, sentences in other.errors.items():
            for sentence in sentences:
                self.add(name, sentence)
        self.warnings.extend(other.warnings)


def check_keys(
    raw: Raw,
    keys: Iterable[Key],
    *,
    prefix: str = "",
    is_embedded: bool = False,
    preset: Mapping[str, str] | None = None,
) -> Checked:
    """Convert the declared keys, or their defaults, to typed values.

    Args:
        raw: the whole configuration.
        keys: the declared keys.
        prefix: prefix of the keys in ``raw``. As in Kafka, error messages about keys of plugins
            contain the key without prefix, except for missing keys.
        is_embedded: whether error messages about unparsable texts contain the prefix, as for
            transformations and predicates.
        preset: texts that replace defaults.
    """
    checked = Checked()
    for key in keys:
        name = prefix + key.name
        if name not in raw:
            if key.is_required:
                checked.add(name, missing(name))
            # a missing value also fails its check as null
            text = (preset or {}).get(name, key.default_text)
        else:
            text = raw[name]
        result = typed(key, text, name=name if is_embedded else None)
        checked.values[name] = result.value
        for sentence in result.errors:
            checked.add(name, sentence)
        if key.java_only and name in raw:
            checked.warnings.append(f"{name} has no effect: {key.java_only}")
    return checked


def check_framework(raw: Raw, keys: tuple[Key, ...] = FRAMEWORK_KEYS) -> Checked:
    """Check the keys of all sink connectors, and the client overrides."""
    checked = check_keys(raw, keys)
    if "topics" in checked.values:
        _check_topics(checked)
    for name, sentence in override_errors(raw):
        checked.add(name, sentence)
    return checked


def check_nulls(raw: Raw) -> Checked:
    """Report null values, which are errors for all keys."""
    checked = Checked()
    for name, value in raw.items():
        if value is None:
            checked.add(name, NULL_VALUE)
    return checked


def check_connector(raw: Raw) -> Checked:
    """Check the keys of the Iceberg sink, including unknown keys with its prefixes."""
    checked = check_keys(raw, CONNECTOR_KEYS, preset=preset_values(raw))
    _check_names(raw, checked)
    _check_catalog(raw, checked)
    if checked.values[FORMAT] == TOPIC:
        _check_rows(raw, checked)
    else:
        _check_tables(raw, checked)
    _check_new_tables(raw, checked)
    _check_aggregates(raw, checked)
    _check_groups(raw, checked)
    _check_topic_keys(raw, checked)
    for name, why in output_errors(raw, checked.values[OUTPUTS] or []):
        checked.add(name, why)
    return checked


def _check_topics(checked: Checked) -> None:
    topics: list[str] | None = checked.values["topics"]
    pattern: str = checked.values["topics.regex"]
    why = fault(pattern) if pattern else None
    if why is not None:
        checked.add("topics.regex", invalid("topics.regex", pattern, why))
    if topics is None:
        checked.add("topics", "Configuration 'topics' values must not be null.")
    if topics and pattern:
        checked.add("topics", BOTH_TOPICS)
        checked.add("topics.regex", BOTH_TOPICS)
    elif not topics and not pattern:
        checked.add("topics", EITHER_TOPICS)
        checked.add("topics.regex", EITHER_TOPICS)
    if len(set(topics or ())) != len(topics or ()):
        checked.add("topics", "Configuration 'topics' values must not be duplicated.")
    elif topics and "" in topics:
        checked.add("topics", "Configuration 'topics' values must not be empty.")
    dead_letters: str = checked.values["errors.deadletterqueue.topic.name"]
    if dead_letters and topics and dead_letters in topics:
        checked.add(
            "topics",
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('topics={displayed(topics)}') consumed by the connector",
        )
    if not pattern or why is not None:
        return
    if dead_letters and compile_java_regex(pattern).fullmatch(dead_letters):
        checked.add(
            "topics.regex",
            f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
            f"('topics.regex={pattern}') consumed by the connector",
        )


def _check_names(raw: Raw, checked: Checked) -> None:
    table_keys = {f".{key.name}": key for key in TABLE_KEYS}
    for name, value in raw.items():
        key = table_keys.get(name[name.rfind(".") :]) if name.startswith("iceberg.table.") else None
        if key is not None and not has_placeholder(value or ""):
            for error in typed(key, value, name=name).errors:
                checked.add(name, error)
        if name.startswith("icefloe.") and (why := unknown(name)) is not None:
            checked.add(name, why)
        prefix = None if name in KEYS else prefix_of(name)
        if prefix is not None and prefix.java_only:
            checked.warnings.append(f"{name} has no effect: {prefix.java_only}")


def unknown(name: str) -> str | None:
    """Return why a key of this connector is not known, with the nearest name; None if it is."""
    if not is_ours(name) or name in KEYS or name in UNKNOWN_TO_USERS:
        return None
    prefix = prefix_of(name)
    has_table = "." in name.removeprefix("iceberg.table.")
    if prefix is None or (prefix.name == "iceberg.table." and not has_table):
        candidates = [*KEYS, *(p.name for p in PREFIXES)]
        near = nearest(name, [c for c in candidates if is_ours(c)])
        return f"Unknown configuration {name}.{near}"
    if prefix.name == TOPIC_PREFIX and topic_key(name) is None:
        ends = {key.name for key in TOPIC_KEYS}
        return f"Unknown topic setting {name}; use one of {', '.join(sorted(ends))}"
    if prefix.name == OUTPUT_PREFIX and output_key(name) is None:
        output_ends = {key.name for key in OUTPUT_KEYS}
        end = name.removeprefix(prefix.name).partition(".")[2]
        return f"Unknown output setting {name}.{nearest(end, output_ends)}"
    if prefix.name == "iceberg.table.":
        table_ends = {key.name for key in TABLE_KEYS}
        table, _, end = name.removeprefix(prefix.name).rpartition(".")
        if not table or end not in table_ends:
            return f"Unknown table setting {name}.{nearest(end, table_ends)}"
    return None


def nearest(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str:
    """Return a suggestion of the nearest known name for an error message, or an empty text.

    ``similarity`` is from 0 to 1. Among more than ``SUGGESTED_NAMES_MAX`` names none is suggested:
    a request could make it slow.
    """
    names = sorted(islice(known, SUGGESTED_NAMES_MAX + 1))
    if len(names) > SUGGESTED_NAMES_MAX:
        return ""
    matches = difflib.get_close_matches(name, names, n=1, cutoff=similarity)
    return f" Did you mean {matches[0]}?" if matches else ""


def _check_topic_keys(raw: Raw, checked: Checked) -> None:
    """Check that options of topics have a converter, and patterns a regex and a converter."""
    topic_keys = {name: key for name in raw if (key := topic_key(name)) is not None}
    has_converter = {key.name for key in topic_keys.values() if key.setting != REGEX}
    for name, key in topic_keys.items():
        text = raw[name] or ""
        if key.setting == REGEX:
            why = None if has_placeholder(text) else fault(text)
            if not text:
                why = "set a regular expression"
            elif key.name not in has_converter:
                converter_key = TopicKey(key.name, "value.converter").whole
                why = f"the topics have no converter; set {converter_key}"
            if why is not None:
                checked.add(name, invalid(name, text, why))
        elif key.option is None and not text.strip():
            checked.add(name, invalid(name, text, "set the class of a converter"))
        elif key.whole not in raw:
            checked.add(name, f"{name} needs a converter; set {key.whole}, too")


def _check_tables(raw: Raw, checked: Checked) -> None:
    values = checked.values
    tables = values["iceberg.tables"] or []
    is_dynamic = values["iceberg.tables.dynamic-enabled"]
    is_named = _check_names_of_tables(raw, checked)
    if tables and is_dynamic:
        checked.add("iceberg.tables", "Cannot specify both static and dynamic table names")
    elif is_named and (tables or is_dynamic):
        checked.add(
            "iceberg.tables",
            "iceberg.tables.topic-to-table-map and name-template cannot be combined with "
            "iceberg.tables and iceberg.tables.dynamic-enabled",
        )
    elif is_dynamic and not values["iceberg.tables.route-field"]:
        checked.add(
            "iceberg.tables.route-field", "Must specify a route field if using dynamic tables"
        )
    elif (
        not (tables or is_dynamic or is_named or values[FORMAT] == AGGREGATE)
        and "iceberg.tables.dynamic-enabled" not in checked.errors
    ):
        checked.add("iceberg.tables", "Must specify table name(s)")
    namespace = values["iceberg.tables.default-namespace"]
    _check_dead_letter_table(checked, namespace)
    for table in tables:
        levels = _qualified(table, namespace).split(".")
        if len(levels) < 2 or not all(levels):
            checked.add(
                "iceberg.tables",
                invalid("iceberg.tables", table, "a table is named <namespace>.<table>"),
            )
    for name in raw:
        if name.startswith("iceberg.table.") and name.endswith(".route-regex"):
            why = fault(raw[name] or "")
            if why is not None:
                checked.add(name, invalid(name, raw[name], why))


def _check_rows(raw: Raw, checked: Checked) -> None:
    """Check the columns and the outputs of a connector without tables."""
    if not checked.values[OUTPUTS]:
        why = f"with {FORMAT}={TOPIC} all rows go to outputs; name at least one"
        checked.add(OUTPUTS, invalid(OUTPUTS, raw.get(OUTPUTS), why))
    text = checked.values[ROWS_COLUMNS]
    if not text:
        checked.add(ROWS_COLUMNS, missing(ROWS_COLUMNS))
    elif not has_placeholder(text):
        try:
            columns_schema(text)
        except ConfigError as error:
            checked.add(ROWS_COLUMNS, invalid(ROWS_COLUMNS, text, error.message))


def _qualified(table: str, namespace: str | None) -> str:
    return f"{namespace}.{table}" if namespace and "." not in table else table


def _check_dead_letter_table(checked: Checked, namespace: str | None) -> None:
    key = "errors.deadletterqueue.table"
    table = checked.values[key]
    if not table:
        return
    if "${" in table:  # the resolved name would bypass the grants
        checked.add(key, invalid(key, table, "it cannot contain a placeholder"))
    elif ("." not in table and not namespace) or not all(table.split(".")):
        checked.add(key, invalid(key, table, "a table is named <namespace>.<table>"))
    elif _qualified(table, namespace) in {
        _qualified(each, namespace) for each in checked.values["iceberg.tables"] or []
    }:
        checked.add(key, invalid(key, table, "records are written to it: set another table"))


def _check_names_of_tables(raw: Raw, checked: Checked) -> bool:
    """Check the topic map and the name template; return whether one of them is set."""
    values = checked.values
    name = "iceberg.tables.topic-to-table-map"
    entries = values[name]
    try:
        tables = list(topic_map(entries or []).values())
    except ConfigError as error:
        checked.add(name, invalid(name, displayed(entries), error.message))
        tables = []
    named = {name: tables}
    template = values["iceberg.tables.name-template"]
    if template:
        named["iceberg.tables.name-template"] = [template]
        try:
            NameTemplate(template, raw.get("topics.regex"))
        except ConfigError as error:
            checked.add("iceberg.tables.name-template", error.message)
    for key, named_tables in named.items():
        for table in named_tables:
            if "." not in table and not values["iceberg.tables.default-namespace"]:
                why = "a table is named <namespace>.<table>, or set default-namespace"
                checked.add(key, invalid(key, table, why))
    return bool(entries or template)


def _check_catalog(raw: Raw, checked: Checked) -> None:
    """Check the catalog's type. Other properties are checked when the catalog is opened."""
    catalog = {
        name.removeprefix("iceberg.catalog."): value or ""
        for name, value in raw.items()
        if name.startswith("iceberg.catalog.") and name != _MULTI_TABLE
    }
    location = FOLDER_FORMATS.get(checked.values[FORMAT])
    if not catalog and location is None and checked.values[FORMAT] != TOPIC:
        checked.add("iceberg.catalog", "Must specify Iceberg catalog properties")
    if location is not None and not raw.get(location):
        checked.add(location, missing(location))
    named = raw.get("iceberg.catalog.type")
    if named and (chosen := named.strip().lower()) in FOLDER_FORMATS:
        why = f"{FORMAT_NAMES[chosen]} have no catalog; set {FORMAT} to {chosen}"
        checked.add("iceberg.catalog.type", why)
    elif named and "${" not in named and "iceberg.catalog.catalog-impl" not in raw:
        try:
            catalog_kind({"type": named})
        except ConfigError as error:
            checked.add("iceberg.catalog.type", error.message)
    if checked.values[_MULTI_TABLE] and not _may_be_rest(catalog):
        checked.add(
            _MULTI_TABLE,
            "Only a REST catalog can commit to several tables at once; set it to false",
        )


def _check_aggregates(raw: Raw, checked: Checked) -> None:
    """Check that the keys of aggregates are there and can be parsed."""
    values = checked.values
    if values[FORMAT] != AGGREGATE:
        return
    for name in REQUIRED:
        if not (raw.get(name) or "").strip():
            checked.add(name, missing(name))
    for name in (WINDOW, SLIDE, WATERMARK):
        text = values[name]
        if text and not has_placeholder(text):
            try:
                duration_ms(text)
            except ConfigError as error:
                checked.add(name, invalid(name, text, error.message))
    try:
        parse_functions(values[FUNCTIONS] or ())
    except ConfigError as error:
        checked.add(FUNCTIONS, invalid(FUNCTIONS, displayed(values[FUNCTIONS]), error.message))


def _may_be_rest(properties: Mapping[str, str]) -> bool:
    """Return whether the catalog may be a REST catalog. Other checks report errors."""
    if any("${" in properties.get(name, "") for name in ("type", "catalog-impl", "uri")):
        return True
    try:
        return catalog_kind(properties) == "rest"
    except ConfigError:
        return True


def split_terms(text: str | None) -> tuple[str, ...]:
    """Split a text at commas outside parentheses, and trim the terms."""
    if not text or not text.strip():
        return ()
    terms: list[str] = []
    parts: list[str] = []  # of the current term, from its end
    is_within = False  # a comma before a closing parenthesis is inside
    for part in reversed(text.split(",")):
        if parts and not is_within:
            terms.append(",".join(reversed(parts)).strip())
            parts.clear()
        parts.append(part)
        if mark := _PARENTHESIS.search(part):
            is_within = mark[0] == ")"
    terms.append(",".join(reversed(parts)).strip())
    return tuple(reversed(terms))


def _check_new_tables(raw: Raw, checked: Checked) -> None:
    """Check partition terms, sort terms and locations of new tables."""
    for name, text in raw.items():
        setting = creation_setting(name)
        if setting is None or not text:
            continue
        try:
            if setting == "location":
                if not has_placeholder(text):  # checked when it is resolved
                    check_location(text.strip())
            elif setting == "sort-by":
                parse_sort_terms(split_terms(text))
            else:
                parse_terms(split_terms(text))
        except ConfigError as error:
            checked.add(name, invalid(name, text, error.message))


def creation_setting(name: str) -> str | None:
    """Return the setting of new tables for a key: ``partition-by``, ``sort-by``, ``location``."""
    default = name.removeprefix("iceberg.tables.default-")
    if default in _CREATION and default != name:
        return default
    end = name.rpartition(".")[2]
    return end if end in _CREATION and name.startswith("iceberg.table.") else None


def _check_groups(raw: Raw, checked: Checked) -> None:
    own = raw.get("iceberg.connect.group-id")
    override = raw.get("consumer.override.group.id")
    control = raw.get("iceberg.control.group-id")
    is_tabular = (raw.get("connector.class") or "").strip().startswith("io.tabular.")
    if control and own and control != own and not is_tabular:
        checked.add(
            "iceberg.control.group-id",
            "iceberg.control.group-id and iceberg.connect.group-id name the same consumer group; "
            "set one of them",
        )
    if own and override and own != override:
        checked.add(
            "iceberg.connect.group-id",
            "iceberg.connect.group-id and consumer.override.group.id name the same consumer group; "
            "set one of them",
        )
