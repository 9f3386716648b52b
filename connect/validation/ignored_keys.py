"""Keys of the Iceberg sink that have no effect, or another than one may think: warnings.

Rules of this file:
- A Java sink takes these keys without a word, so nothing here refuses them.
- Each sentence begins with the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from connect.config.client_overrides import PREFIXES, is_refused
from connect.config.key import list_of
from connect.config.keys.client_names import ALLOWED
from connect.gateways.catalog_properties import WITHOUT_EFFECT
from connect.validation.config_view import Given, Rule
from connect.validation.key_checks import creation_setting

_LETTERS = ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.table")
_FIXED = {
    ("consumer.override.", "isolation.level"): "read_committed",
    ("consumer.override.", "enable.auto.commit"): "false",
    ("producer.override.", "enable.idempotence"): "true",
    ("producer.override.", "acks"): "all",
}


def no_effect(given: Given) -> Iterator[str]:
    """Sentences for the log."""
    for rule in RULES:
        for name, sentence in rule(given):
            if name not in given.checked.errors:
                yield f"{name} {sentence}"


def letters_need_tolerance(given: Given) -> Iterator[tuple[str, str]]:
    """Dead letters with `errors.tolerance=none`: the first bad record fails the task."""
    if given["errors.tolerance"] == "none" and given["iceberg.tables.unmatched"] != "dead-letter":
        for name in _LETTERS:
            if given.has(name):
                yield name, "has no effect: errors.tolerance is none"


def tolerated_records_are_dropped(given: Given) -> Iterator[tuple[str, str]]:
    """`errors.tolerance=all` without dead letters: what cannot be handled is only counted."""
    if given["errors.tolerance"] == "all" and not any(map(given.has, _LETTERS)):
        yield (
            "errors.tolerance",
            (
                "is all and no dead letter topic or table is named: records that cannot be handled "
                "are dropped and counted"
            ),
        )


def refused_letters_need_tolerance(given: Given) -> Iterator[tuple[str, str]]:
    """`iceberg.tables.refused=dead-letter` with `errors.tolerance=none`: the task waits."""
    name = "iceberg.tables.refused"
    if given[name] == "dead-letter" and given["errors.tolerance"] == "none":
        yield name, "has no effect: errors.tolerance is none"


def headers_need_letters(given: Given) -> Iterator[tuple[str, str]]:
    """Dead letter context headers without a dead letter topic."""
    name = "errors.deadletterqueue.context.headers.enable"
    if given[name] and not given.has(_LETTERS[0]):
        yield name, f"has no effect: {_LETTERS[0]} is not set"


def routes_need_a_field(given: Given) -> Iterator[tuple[str, str]]:
    """`route-regex` without a route field, or where records name their tables."""
    is_named = given.named_by_record or given.topic_tables
    if given.has("iceberg.tables.route-field") and not is_named:
        for table in given.tables if any(given.per_table("route-regex")) else ():
            name = f"iceberg.table.{table}.route-regex"
            if name not in given.raw:
                yield "iceberg.tables.route-field", f"sends no record to {table}: it has no {name}"
        return
    why = "records name their tables" if is_named else "iceberg.tables.route-field is not set"
    for name, _, _ in given.per_table("route-regex"):
        yield name, f"has no effect: {why}"


def fields_need_routes(given: Given) -> Iterator[tuple[str, str]]:
    """A route field beside a map or a template."""
    name = "iceberg.tables.route-field"
    is_mapped = given.topic_tables or given["iceberg.tables.name-template"]
    if given.has(name) and is_mapped:
        yield name, "has no effect: map or template name the tables"


def creation_is_off(given: Given) -> Iterator[tuple[str, str]]:
    """Partitioning and properties of new tables where none is created."""
    if given["iceberg.tables.auto-create-enabled"] is not False:
        return
    why = "has no effect: iceberg.tables.auto-create-enabled is false"
    has_letters = given.has("errors.deadletterqueue.table")  # which is created all the same
    for name in given.raw:
        setting = creation_setting(name)
        if setting is not None and given.has(name) and not (setting == "location" and has_letters):
            yield name, why
    if not has_letters:
        for name in given.under("iceberg.tables.auto-create-props."):
            yield f"iceberg.tables.auto-create-props.{name}", why


def evolution_is_off(given: Given) -> Iterator[tuple[str, str]]:
    """Bounds and options of schema changes where there are none."""
    if given["iceberg.tables.evolve-schema-enabled"] is not False:
        return
    name = "iceberg.tables.max-new-columns"
    if given.has(name):
        yield name, "has no effect: iceberg.tables.evolve-schema-enabled is false"
    name = "iceberg.tables.schema-force-optional"
    if given[name] and given["iceberg.tables.auto-create-enabled"] is False:
        yield name, "has no effect: tables are neither created nor changed"


def listed_aliases(given: Given) -> Iterator[tuple[str, str]]:
    """Keys of transformations and predicates whose alias is not listed."""
    for kind in ("transforms", "predicates"):
        if given.is_open(kind):
            continue
        listed = set(list_of((given.raw.get(kind) or "").strip()))
        for name in given.under(f"{kind}."):
            alias = name.partition(".")[0]
            if alias not in listed:
                yield f"{kind}.{name}", f"has no effect: {kind} does not list {alias}"


def fixed_overrides(given: Given) -> Iterator[tuple[str, str]]:
    """Client overrides that exactly-once delivery does not leave free, or that no client knows."""
    for (prefix, name), fixed in _FIXED.items():
        text = (given.raw.get(prefix + name) or "").strip().lower()
        if text and text != fixed and (name, text) != ("acks", "-1"):
            yield prefix + name, f"has no effect: it is always {fixed}"
    for prefix in PREFIXES:
        for name in given.under(prefix):
            if name not in ALLOWED and not is_refused(name):
                yield prefix + name, "has no effect: Kafka's clients know no such property"
    name = "consumer.override.auto.offset.reset"
    if given.raw.get(name) == "none":
        yield name, "is none, which is taken as earliest"


def java_catalog_keys(given: Given) -> Iterator[tuple[str, str]]:
    """Catalog properties that only a Java client knows."""
    for name, why in WITHOUT_EFFECT.items():
        text = given.raw.get(f"iceberg.catalog.{name}") or ""
        if text and not (name == "io-impl" and text.startswith("org.apache.iceberg.")):
            yield f"iceberg.catalog.{name}", f"has no effect: {why}"


RULES: tuple[Rule, ...] = (
    letters_need_tolerance,
    tolerated_records_are_dropped,
    refused_letters_need_tolerance,
    headers_need_letters,
    routes_need_a_field,
    fields_need_routes,
    creation_is_off,
    evolution_is_off,
    listed_aliases,
    fixed_overrides,
    java_catalog_keys,
)
