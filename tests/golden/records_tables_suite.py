"""Schema and routing recordings against Icefloe's inference, evolution, specs and routing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, StructType

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import SinkRecord
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.routing import Router
from connect.records.tables.partition_spec import spec_for
from connect.records.tables.schema_changes import SchemaChanges, apply_changes
from connect.records.tables.schema_evolution import changes
from connect.records.tables.table_creation import table_for
from connect.records.tables.type_inference import infer_type, type_of
from connect.validation.key_checks import split_terms
from connect.validation.parse import parse
from tests.golden import records_model as model
from tests.golden.records_rules import Case, Outcome, Result, judge
from tests.golden.records_suite import (
    input_value,
    parsed_schema,
    row_outcome,
    same_column,
    same_row,
)

_ROUNDS_MAX = 8
"""More than lists within lists take in any case."""


def config_of(keys: Mapping[str, str]) -> ConnectorConfig:
    """A connector's configuration with the keys of a case."""
    base = {
        "name": "golden",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1/",
        "iceberg.tables.unmatched": "drop",
    }
    if not any(key in keys for key in ("iceberg.tables", "iceberg.tables.dynamic-enabled")):
        base["iceberg.tables"] = "db.t"
    return parse({**base, **keys})


def type_json(kind: IcebergType | None) -> Any:
    """The recorded form of types, without field ids."""
    if kind is None:
        return None
    if isinstance(kind, StructType):
        fields = [
            {"name": f.name, "required": f.required, "type": type_json(f.field_type)}
            for f in kind.fields
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, ListType):
        return {
            "type": "list",
            "element": type_json(kind.element_type),
            "element-required": kind.element_required,
        }
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "key": type_json(kind.key_type),
            "value": type_json(kind.value_type),
            "value-required": kind.value_required,
        }
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    return str(kind)


def compare_infer(case: Case) -> Result:
    """One case of ``schema/infer``."""
    judged = {**case, "input": {"value": case["input"]}}
    try:
        kind = infer_type(model.plain(case["input"]))
    except RecordError as error:
        return judge(judged, Outcome(error.code, detail=str(error)))
    inferred, recorded = type_json(kind), case["expected"]["type"]
    is_list = isinstance(kind, ListType) and type(case["input"]) is list
    has_more = is_list and (recorded is None or len(str(inferred)) > len(str(recorded)))
    return judge(
        judged, Outcome(None, inferred, inferred == recorded, str(inferred), has_more=has_more)
    )


def compare_from_connect(case: Case) -> Result:
    """One case of ``schema/from-connect``."""
    optional = case.get("config", {}).get("iceberg.tables.schema-force-optional") == "true"
    schema = model.schema_of(case["schema"])
    assert schema is not None
    try:
        converted = type_json(type_of(schema, force_optional=optional))
    except RecordError as error:
        return judge(case, Outcome(error.code))
    return judge(
        case, Outcome(None, converted, converted == case["expected"].get("type"), str(converted))
    )


def compare_partition_spec(case: Case) -> Result:
    """One case of ``schema/partition-spec``."""
    schema = Schema.model_validate(case["schema"])
    try:
        spec = spec_for(split_terms(case["text"]), schema)
    except (ConfigError, RecordError) as error:
        return judge(case, Outcome(error.code, detail=str(error)))
    fields = [
        {
            "source": schema.find_column_name(f.source_id),
            "transform": str(f.transform),
            "name": f.name,
        }
        for f in spec.fields
    ]
    return judge(case, Outcome(None, fields, fields == case["expected"].get("fields"), str(fields)))


def compare_evolution(case: Case) -> Result:
    """One case of ``schema/evolution``: the changes, the schema after them, and the row."""
    schema = parsed_schema(case["table"]["schema"])
    if schema is None:
        return judge(case, Outcome("unsupported_type"))
    properties = case["table"]["properties"]
    value, given = input_value(case["input"])
    value_schema = value.schema if case["input"]["schemas"] else None
    record = SinkRecord("orders", 0, 0, None, value=value, value_schema=value_schema)
    config = config_of(case.get("config", {}))
    mapping = properties.get("schema.name-mapping.default")
    try:
        asked = again = changes(schema, record, config, mapping)
        after, rounds = schema, 0
        while again and rounds < _ROUNDS_MAX:  # a later item may have fields that the first lacks
            after, _ = apply_changes(after, again, after.highest_field_id)
            again, rounds = changes(after, record, config, mapping), rounds + 1
    except RecordError as error:
        return judge({**case, "given": given}, Outcome(error.code, detail=str(error)))
    outcome = row_outcome(after, properties, case.get("config", {}), value)
    if outcome.error is None and "row" in case["expected"]:
        agrees = (
            rounds < 2
            and updates_json(asked) == case["expected"]["updates"]
            and _unordered(type_json(after.as_struct()))
            == _unordered(
                _recorded_type(case["expected"].get("schema_after") or case["table"]["schema"])
            )
            and same_row(after, outcome.value, case["expected"]["row"])
        )
        detail = f"{updates_json(asked)} {again} {outcome.value} for {case['expected']}"
        has_more = not again and _has_more(outcome.value, case["expected"]["row"])
        outcome = Outcome(None, outcome.value, agrees, detail, has_more)
    return judge({**case, "given": given}, outcome)


def _has_more(row: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a row is a recorded one with more fields of structs, and with new lists."""
    lists = all(isinstance(row[name], list) for name in row.keys() - recorded.keys())
    return lists and all(
        name in row and same_column(_without_more(row[name], value), value)
        for name, value in recorded.items()
    )


def _without_more(value: Any, recorded: Any) -> Any:
    if isinstance(recorded, dict) and any(name.startswith("$") for name in recorded):
        return value  # one value, such as a variant, in a form of its own
    if isinstance(value, dict) and isinstance(recorded, dict):
        return {k: _without_more(v, recorded[k]) for k, v in value.items() if k in recorded}
    if isinstance(value, list) and isinstance(recorded, list):
        pairs = zip(value, recorded, strict=False)
        return [*(_without_more(v, r) for v, r in pairs), *value[len(recorded) :]]
    return value


def updates_json(asked: SchemaChanges) -> dict[str, Any]:
    """Changes in the recorded form."""
    return {
        "add": sorted(
            (
                {
                    "parent": ".".join(path[:-1]) or None,
                    "name": path[-1],
                    "type": type_json(kind),
                }
                for path, kind in asked.adds.items()
            ),
            key=lambda add: (add["parent"] or "", add["name"]),
        ),
        "retype": [
            {"name": ".".join(path), "type": type_json(kind)}
            for path, kind in asked.retypes.items()
        ],
        "optional": [".".join(path) for path in asked.optionals],
    }


def _recorded_type(schema: Mapping[str, Any]) -> Any:
    parsed = Schema.model_validate(schema)
    return type_json(parsed.as_struct())


def _unordered(kind: Any) -> Any:
    """Struct fields by name: new columns come in the order of a Java HashMap there."""
    if isinstance(kind, dict):
        return {
            key: sorted(map(_unordered, item), key=lambda f: str(f["name"]))
            if key == "fields"
            else _unordered(item)
            for key, item in kind.items()
        }
    return kind


def record_of(source: Mapping[str, Any]) -> SinkRecord:
    """A record of a routing case."""
    schema = None
    if source["schemas"] and source["value"] is not None:
        schema, value = model.with_schema(source["value"])
    else:
        value = model.plain(source["value"])
    return SinkRecord(
        source["topic"],
        source["partition"],
        source["offset"],
        source["timestamp"],
        value=value,
        value_schema=schema,
    )


def compare_route(case: Case) -> Result:
    """One case of ``routing/route``: rows per table, with the tables that exist."""
    existing = {t["name"]: Schema.model_validate(t["schema"]) for t in case["tables"]}
    rows: Counter[str] = Counter()
    try:
        config = config_of(case.get("config", {}))
        router = Router(config)
        _start(config, existing)
        for source in case["records"]:
            record = record_of(source)
            for table in router.route(record):
                rows[table] += _write(table, record, existing, case.get("config", {}), config)
    except (ConfigError, RecordError) as error:
        return judge(case, Outcome(error.code, detail=str(error)))
    routed = {table: count for table, count in rows.items() if count}
    expected = case["expected"].get("writes")
    if expected is not None:
        expected = {table: count for table, count in expected.items() if count}
    return judge(
        case, Outcome(None, routed, routed == expected, f"{routed} for {case['expected']}")
    )


def _start(config: ConnectorConfig, existing: Mapping[str, Schema]) -> None:
    """Load the tables as a task does when it starts (``TaskTables.refresh``)."""
    for name in config.tables:
        if name not in existing and not config.auto_create_enabled:
            raise ConfigError(f"no table {name}", code="table_missing")


def _write(
    table: str,
    record: SinkRecord,
    existing: dict[str, Schema],
    keys: Mapping[str, str],
    config: ConnectorConfig,
) -> int:
    """Write a record as the pipeline would: create or miss the table, convert the row."""
    if table not in existing:
        if config.auto_create_enabled and "." not in table:
            raise ConfigError(f"no namespace of {table}", code="table_missing")
        if config.auto_create_enabled:
            existing[table] = table_for(table, record, config).schema
        else:
            return 0
    outcome = row_outcome(existing[table], {}, keys, record.value)
    if outcome.error is not None:
        raise RecordError(outcome.detail, code=outcome.error)
    return 1


def compare_auto_create(case: Case) -> Result:
    """One case of ``routing/auto-create``."""
    tables: dict[str, Any] = {}
    try:
        config = config_of(case.get("config", {}))
        record = record_of(case["record"])
        for name in config.tables:
            new = table_for(name, record, config)
            properties = dict(new.properties)
            tables[name] = {
                "schema": type_json(new.schema.as_struct()),
                "partition": [
                    {
                        "source": new.schema.find_column_name(f.source_id),
                        "transform": str(f.transform),
                        "name": f.name,
                    }
                    for f in new.spec.fields
                ],
                "format-version": int(properties.pop("format-version", "2")),
                "properties": properties,
            }
            if record.value is not None:
                _write(name, record, {name: new.schema}, case.get("config", {}), config)
    except (ConfigError, RecordError, Unconvertible) as error:
        code = getattr(error, "code", None) or getattr(error, "reason", "")
        return judge(case, Outcome(code, detail=str(error)))
    agrees = tables == case["expected"].get("tables")
    return judge(case, Outcome(None, tables, agrees, f"{tables} for {case['expected']}"))


COMPARISONS: dict[str, Callable[[Case], Result]] = {
    "infer": compare_infer,
    "from-connect": compare_from_connect,
    "partition-spec": compare_partition_spec,
    "evolution": compare_evolution,
    "route": compare_route,
    "auto-create": compare_auto_create,
}
