"""Warnings about connectors of change streams that would lose deletes, keys or values.

Rules of this file:
- A rule warns only if the configuration alone shows the trap. What the source sends is not known.
- Each message begins with the key, and says what to set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from connect.config.key import list_of
from connect.config.keys.topic_keys import topic_key
from connect.records.table_names import VARIABLE
from connect.records.transforms.transform_chain import changes_keys
from connect.validation.config_view import ConfigView, Rule

WHOLE_KEYS: Final = frozenset(
    {"ByteArray", "String", "Boolean", "Short", "Integer", "Long", "Float", "Double"}
)
"""Converters of keys without fields."""
_CDC_FIELD: Final = "iceberg.tables.cdc-field"
_SCHEMAS: Final = "value.converter.schemas.enable"
_OPERATION: Final = "_cdc.op"
_JSON: Final = frozenset(
    {"org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json", "json"}
)
_WITH_CDC: Final = frozenset({"DebeziumTransform", "DmsTransform"})
_STATES: Final = frozenset({"ExtractNewRecordState", "ExtractNewDocumentState"})
_DELETES: Final = "delete.tombstone.handling.mode"
_DROPPING: Final = frozenset({"Filter", "Sql"})
_OF_THE_SOURCE: Final = "__"
"""Fields that begin so are added to values by Debezium's `ExtractNewRecordState`."""


def has_no_fields(class_name: str) -> bool:
    """Return whether the values of a converter have no fields."""
    return class_name.strip().rpartition(".")[2].removesuffix("Converter") in WHOLE_KEYS


def changes_without_schema(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Changes in JSON without schemas, without `iceberg.tables.timestamp-unit`."""
    is_flat = (view[_CDC_FIELD] or "").startswith(_OF_THE_SOURCE)
    if _has_no_schemas(view) and (is_flat or "DebeziumTransform" in _steps(view)):
        unit = "iceberg.tables.timestamp-unit"
        if not view.has(unit):
            yield (
                _SCHEMAS,
                (
                    "is false: by Debezium's defaults, decimals then are base64 texts, and dates "
                    "and timestamps are numbers. Set decimal.handling.mode=string and "
                    "time.precision.mode=isostring at the source, or use schemas. "
                    f"{unit} says what numbers mean in timestamp and time columns, and ends this "
                    "warning"
                ),
            )


def types_without_schema(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.debezium.types=typed` and JSON without schemas."""
    name = "icefloe.debezium.types"
    if view[name] == "typed" and _has_no_schemas(view):
        yield (
            name,
            (
                f"is typed, but {_SCHEMAS} is false: values without schemas have no types. Set "
                f"{_SCHEMAS}=true in source and sink, or create the tables first"
            ),
        )


def keys_without_fields(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Changes of rows in created tables without `id-columns`, if message keys have no fields."""
    common = "iceberg.tables.default-id-columns"
    if (
        view.is_row_level
        and view["iceberg.tables.auto-create-enabled"]
        and not view.has(common)
        and not any(view.per_table("id-columns"))
        and _has_whole_keys(view)
    ):
        yield (
            "key.converter",
            (
                "gives keys without fields, and no id-columns are set: rows of new tables have no "
                f"key, and their records are errors (no_key). Set {common} or "
                "iceberg.table.<name>.id-columns, or a converter of keys with fields"
            ),
        )


def keyless_changes_without_target(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`no-key-changes=dead-letter` with `no-key=append`, without dead letters and tolerance."""
    targets = ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.table")
    if (
        view.is_row_level
        and keeps_keyless_changes(view)
        and view["errors.tolerance"] == "none"
        and not any(map(view.has, targets))
    ):
        yield (
            "iceberg.tables.no-key",
            (
                "is append, but no dead letters are set: a change of a table without key fails "
                f"the task (keyless_change). Set {targets[0]}, or "
                "iceberg.tables.no-key-changes=append"
            ),
        )


def keeps_keyless_changes(view: ConfigView) -> bool:
    """Return whether a table appends rows without key, and makes dead letters of changes."""
    no_key, no_key_changes = view["iceberg.tables.no-key"], view["iceberg.tables.no-key-changes"]
    own: dict[str, dict[str, str]] = {"": {}}
    for name, table, setting in view.per_table():
        if setting in {"no-key", "no-key-changes"}:
            own.setdefault(table, {})[setting] = (view.raw[name] or "").strip()
    return any(
        settings.get("no-key", no_key) == "append"
        and settings.get("no-key-changes", no_key_changes) == "dead-letter"
        for settings in own.values()
    )


def deletes_are_rows(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`DebeziumTransform` and changes of rows whose `cdc-field` is not `_cdc.op`."""
    steps = _steps(view)
    places = [place for place, step in enumerate(steps) if step in _WITH_CDC]
    if not places or not view.is_row_level:
        return
    step, later = steps[places[-1]], steps[places[-1] + 1 :]
    field = view[_CDC_FIELD]
    if not view.has(_CDC_FIELD) and not _DROPPING & set(later):
        yield (
            "iceberg.tables.upsert-mode-enabled",
            (
                f"is true, but {_CDC_FIELD} is not set: deletes of {step} are written as rows. "
                f"Set {_CDC_FIELD}={_OPERATION}"
            ),
        )
    elif field and field != _OPERATION and not later:
        yield (
            _CDC_FIELD,
            (
                f"is {field}, but {step} has the operation in {_OPERATION}: deletes are written "
                f"as rows. Set {_CDC_FIELD}={_OPERATION}"
            ),
        )


def record_states(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`ExtractNewRecordState` and the like without schemas, with old keys or unmarked deletes."""
    for alias, step in zip(_aliases(view), _steps(view), strict=True):
        if step not in _STATES:
            continue
        if _has_no_schemas(view):
            yield (
                "value.converter.schemas.enable",
                (
                    f"is false: {step} passes values without a schema unchanged, as Debezium's "
                    "class does. Set true at source and sink, or use DebeziumTransform"
                ),
            )
        for old in ("drop.tombstones", "delete.handling.mode"):
            if view.raw.get(f"transforms.{alias}.{old}") is not None:
                yield (
                    f"transforms.{alias}.{old}",
                    f"has no effect since Debezium 3. Set transforms.{alias}.{_DELETES}",
                )
        mode = (view.raw.get(f"transforms.{alias}.{_DELETES}") or "").strip().lower()
        is_read = view.has(_CDC_FIELD)
        if (
            mode.startswith("rewrite")
            and view["iceberg.tables.upsert-mode-enabled"]
            and not is_read
        ):
            yield (
                "iceberg.tables.upsert-mode-enabled",
                (
                    f"is true, but {_CDC_FIELD} is not set: deletes of {step} are written as "
                    f"rows. Set {_CDC_FIELD}=__deleted"
                ),
            )


def tombstones_without_table(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Upserts without `cdc-field`, whose route needs a field that message keys do not have."""
    steps = _steps(view)
    if (
        not view["iceberg.tables.upsert-mode-enabled"]
        or view.has(_CDC_FIELD)
        or view.has("iceberg.tables.topic-to-table-map")
        or (_WITH_CDC | _DROPPING) & set(steps)
        or any(map(changes_keys, steps))
    ):
        return
    is_whole = _has_whole_keys(view)
    for name, field in _route_fields(view):
        if field.startswith(_OF_THE_SOURCE) or is_whole:
            yield (
                name,
                (
                    f"uses the field {field}, which message keys do not have: tombstones find no "
                    "table (tombstone_unroutable), and their rows stay. Route by topic, or let the "
                    "source mark deletes (delete.tombstone.handling.mode=rewrite) and set "
                    f"{_CDC_FIELD}=__deleted, or drop tombstones with a Filter transformation"
                ),
            )
            return


def _has_no_schemas(view: ConfigView) -> bool:
    """Return whether values are JSON without schemas."""
    return (
        (view.raw.get("value.converter") or "").strip() in _JSON
        and (view.raw.get(_SCHEMAS) or "").strip().lower() == "false"
        and not view.has("value.converter.schema.content")
    )


def _aliases(view: ConfigView) -> list[str]:
    return list_of((view.raw.get("transforms") or "").strip())


def _steps(view: ConfigView) -> list[str]:
    """Return the simple class names of the transformations, in their order."""
    texts = (view.raw.get(f"transforms.{alias}.type") or "" for alias in _aliases(view))
    return [text.strip().rpartition(".")[2] for text in texts]


def _has_whole_keys(view: ConfigView) -> bool:
    """Return whether message keys of all topics have no fields."""
    topic_keys = filter(None, map(topic_key, view.raw))
    return (
        has_no_fields(view.raw.get("key.converter") or "")
        and not any(key.setting == "key.converter" for key in topic_keys)
        and not any(map(changes_keys, _steps(view)))
    )


def _route_fields(view: ConfigView) -> Iterator[tuple[str, str]]:
    """Yield keys and fields that decide the table of a tombstone."""
    name = "iceberg.tables.name-template"
    if view.has(name):
        for field in VARIABLE.findall(view.raw[name] or ""):
            if field not in {"topic", "schema"} and not field.isdecimal():
                yield name, field
        return
    name = "iceberg.tables.route-field"
    if view[name]:
        yield name, view[name]


RULES: tuple[Rule, ...] = (
    changes_without_schema,
    types_without_schema,
    keys_without_fields,
    keyless_changes_without_target,
    deletes_are_rows,
    record_states,
    tombstones_without_table,
)
