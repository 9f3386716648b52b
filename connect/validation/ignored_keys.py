"""Warnings about keys of the Iceberg sink without effect, or with an unexpected effect.

Rules of this file:
- The Java sink accepts these keys silently, so they are not errors.
- Each message begins with the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from connect.config.client_overrides import PREFIXES, is_refused
from connect.config.key import list_of
from connect.config.keys.client_names import ALLOWED
from connect.gateways.catalog_properties import WITHOUT_EFFECT
from connect.validation import change_stream_traps
from connect.validation.config_view import ConfigView, Rule
from connect.validation.key_checks import creation_setting, unknown

_DEAD_LETTER_TARGETS = ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.table")
_FIXED = {
    ("consumer.override.", "isolation.level"): "read_committed",
    ("consumer.override.", "enable.auto.commit"): "false",
    ("producer.override.", "enable.idempotence"): "true",
    ("producer.override.", "acks"): "all",
}


def no_effect(view: ConfigView) -> Iterator[str]:
    """Yield warnings for the log."""
    for rule in RULES:
        for name, sentence in rule(view):
            if name not in view.checked.errors:
                yield f"{name} {sentence}"


def dead_letters_need_tolerance(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Dead letters with `errors.tolerance=none`: the first record with an error fails the task."""
    is_used = view["iceberg.tables.unmatched"] == "dead-letter" or (
        view.is_row_level and change_stream_traps.keeps_keyless_changes(view)
    )
    if view["errors.tolerance"] == "none" and not is_used:
        for name in _DEAD_LETTER_TARGETS:
            if view.has(name):
                yield name, "has no effect: errors.tolerance is none"


def tolerated_records_are_dropped(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`errors.tolerance=all` without dead letters: records with errors are only counted."""
    if view["errors.tolerance"] == "all" and not any(map(view.has, _DEAD_LETTER_TARGETS)):
        yield (
            "errors.tolerance",
            (
                "is all, but no dead letter topic or table is set: records with errors are dropped "
                "and counted"
            ),
        )


def refused_tables_need_tolerance(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.refused=dead-letter` with `errors.tolerance=none`: the task waits."""
    name = "iceberg.tables.refused"
    if view[name] == "dead-letter" and view["errors.tolerance"] == "none":
        yield name, "has no effect: errors.tolerance is none"


def headers_need_a_dead_letter_topic(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Dead letter context headers without a dead letter topic."""
    name = "errors.deadletterqueue.context.headers.enable"
    if view[name] and not view.has(_DEAD_LETTER_TARGETS[0]):
        yield name, f"has no effect: {_DEAD_LETTER_TARGETS[0]} is not set"


def route_regexes_need_a_route_field(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`route-regex` without a route field, or with tables that depend on the record."""
    is_named = view.named_by_record or view.topic_tables
    if view.has("iceberg.tables.route-field") and not is_named:
        for table in view.tables if any(view.per_table("route-regex")) else ():
            name = f"iceberg.table.{table}.route-regex"
            if name not in view.raw:
                yield (
                    "iceberg.tables.route-field",
                    f"sends no records to {table}: {name} is not set",
                )
        return
    why = "tables depend on the record" if is_named else "iceberg.tables.route-field is not set"
    for name, _, _ in view.per_table("route-regex"):
        yield name, f"has no effect: {why}"


def route_field_needs_static_tables(view: ConfigView) -> Iterator[tuple[str, str]]:
    """A route field together with a topic map or a name template."""
    name = "iceberg.tables.route-field"
    is_mapped = view.topic_tables or view["iceberg.tables.name-template"]
    if view.has(name) and is_mapped:
        yield name, "has no effect: topic map or name template determine the tables"


def creation_is_off(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Partitioning and properties of new tables if tables are not created."""
    if view["iceberg.tables.auto-create-enabled"] is not False:
        return
    why = "has no effect: iceberg.tables.auto-create-enabled is false"
    # the dead letter table is created in any case
    has_dead_letter_table = view.has("errors.deadletterqueue.table")
    for name in view.raw:
        setting = creation_setting(name)
        if (
            setting is not None
            and view.has(name)
            and not (setting == "location" and has_dead_letter_table)
        ):
            yield name, why
    if not has_dead_letter_table:
        for name in view.under("iceberg.tables.auto-create-props."):
            yield f"iceberg.tables.auto-create-props.{name}", why


def evolution_is_off(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Limits and options of schema evolution if schemas are not changed."""
    if view["iceberg.tables.evolve-schema-enabled"] is not False:
        return
    name = "iceberg.tables.max-new-columns"
    if view.has(name):
        yield name, "has no effect: iceberg.tables.evolve-schema-enabled is false"
    name = "iceberg.tables.schema-force-optional"
    if view[name] and view["iceberg.tables.auto-create-enabled"] is False:
        yield name, "has no effect: tables are neither created nor changed"


def listed_aliases(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Keys of transformations and predicates whose alias is not listed."""
    for kind in ("transforms", "predicates"):
        if view.has_placeholder(kind):
            continue
        listed = set(list_of((view.raw.get(kind) or "").strip()))
        for name in view.under(f"{kind}."):
            alias = name.partition(".")[0]
            if alias not in listed:
                yield f"{kind}.{name}", f"has no effect: {alias} is not in {kind}"


def fixed_overrides(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Client overrides that exactly-once delivery requires to be fixed, and unknown overrides."""
    for (prefix, name), fixed in _FIXED.items():
        text = (view.raw.get(prefix + name) or "").strip().lower()
        if text and text != fixed and (name, text) != ("acks", "-1"):
            yield prefix + name, f"has no effect: the value is always {fixed}"
    for prefix in PREFIXES:
        for name in view.under(prefix):
            if name not in ALLOWED and not is_refused(name):
                yield prefix + name, "has no effect: Kafka's clients do not have this property"
    name = "consumer.override.auto.offset.reset"
    if view.raw.get(name) == "none":
        yield name, "is none, which is treated as earliest"


def java_catalog_keys(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Catalog properties of Java clients."""
    for name, why in WITHOUT_EFFECT.items():
        text = view.raw.get(f"iceberg.catalog.{name}") or ""
        if text and not (name == "io-impl" and text.startswith("org.apache.iceberg.")):
            yield f"iceberg.catalog.{name}", f"has no effect: {why}"


def unknown_keys(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Unknown keys with the prefix `iceberg.`, of a later version or misspelled."""
    for name in view.under("iceberg."):
        if (why := unknown(f"iceberg.{name}")) is not None:
            yield f"iceberg.{name}", f"has no effect: {why}"


RULES: tuple[Rule, ...] = (
    dead_letters_need_tolerance,
    tolerated_records_are_dropped,
    refused_tables_need_tolerance,
    headers_need_a_dead_letter_topic,
    route_regexes_need_a_route_field,
    route_field_needs_static_tables,
    creation_is_off,
    evolution_is_off,
    listed_aliases,
    fixed_overrides,
    java_catalog_keys,
    unknown_keys,
    *change_stream_traps.RULES,
)
