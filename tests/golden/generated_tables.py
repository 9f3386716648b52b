"""Generate cases of columns, schemas, routes and new tables from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.golden import generated_values as generated
from tests.golden.generated_records import Case, record, recorded

_COLUMNS = [
    *("int", "long", "float", "double", "boolean", "string", "date", "time", "timestamp"),
    *("timestamptz", "uuid", "binary", "fixed[3]", "decimal(10, 2)", "decimal(38, 10)"),
    *("decimal(4, 2)", "decimal(10, 0)", "decimal(38, 0)"),
]
_LIKELY = {
    "date": generated.DATES + generated.INSTANTS,
    "time": generated.TIMES + generated.INSTANTS,
    "timestamp": generated.INSTANTS + generated.DATES,
    "timestamptz": generated.INSTANTS + generated.DATES,
    "uuid": generated.IDENTIFIERS,
    "binary": generated.ENCODED,
    "fixed[3]": generated.ENCODED,
    "boolean": generated.LITERALS,
}


def _scalar(rng: Random, column: str) -> Any:
    if rng.random() < 0.4:
        value: str = rng.choice(_LIKELY.get(column, generated.NUMBERS))
        return generated.changed(rng, value) if rng.random() < 0.4 else value
    return generated.scalar(rng)


def conversion(rng: Random) -> Case:
    """One case of ``record-conversion/``: a column and one value for it."""
    column = rng.choice(_COLUMNS)
    field: Any = column
    typed = rng.random() < 0.4
    schema = generated.schema(rng, 2 if column == "string" and rng.random() < 0.5 else 0)
    schema.pop("default", None)  # what is stored then was not given
    value = generated.payload(rng, schema) if typed else _scalar(rng, column)
    wrap = 1.0 if column == "uuid" else rng.random()
    if wrap < 0.1:
        field = {"type": "list", "element-id": 2, "element": column, "element-required": False}
        value = [value]
        schema = {"type": "array", "items": schema, "optional": False}
    elif wrap < 0.2:
        inner = {"id": 2, "name": "a", "required": rng.random() < 0.2, "type": column}
        field = {"type": "struct", "fields": [inner]}
        value = {"a": value}
        schema = {"type": "struct", "fields": [{**schema, "field": "a"}], "optional": False}
    elif wrap < 0.3:
        field = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": column}
        field["value-required"] = False
        value = {"k": value}
        keys = {"type": "string", "optional": False}
        schema = {"type": "map", "keys": keys, "values": schema, "optional": False}
    value = {"c": value}
    if typed:
        whole = {"type": "struct", "optional": False, "fields": [{**schema, "field": "c"}]}
        value = {"schema": whole, "payload": value}
    return {
        "column": column,
        "table": _table([{"id": 1, "name": "c", "required": False, "type": field}]),
        "config": {},
        "input": {"schemas": typed, "value": value},
    }


def _table(fields: list[Case]) -> Case:
    return {"schema": {"type": "struct", "schema-id": 0, "fields": fields}, "properties": {}}


def evolution(rng: Random) -> Case:
    """One case of ``schema/evolution``: a recorded table and a record, changed."""
    one, other = (
        rng.choice(recorded("schema", "evolution")),
        rng.choice(recorded("schema", "evolution")),
    )
    given = other["input"]
    if not given["schemas"]:
        given = {"schemas": False, "value": generated.mutated(rng, given["value"])}
    if rng.random() < 0.4:
        schema = generated.struct(rng)
        value = {"schema": schema, "payload": generated.payload(rng, schema)}
        given = {"schemas": True, "value": value}
    return {"table": one["table"], "config": one["config"], "input": given}


def infer(rng: Random) -> Case:
    """One case of ``schema/infer``."""
    value = generated.value(rng)
    return {"input": {"$map": [[None, value], ["a", value]]} if rng.random() < 0.1 else value}


def from_connect(rng: Random) -> Case:
    """One case of ``schema/from-connect``."""
    config = {"iceberg.tables.schema-force-optional": rng.choice(("true", "false"))}
    return {"schema": generated.schema(rng, 3), "config": config}


def partition_spec(rng: Random) -> Case:
    """One case of ``schema/partition-spec``."""
    source = rng.choice(recorded("schema", "partition-spec"))
    names = ("i", "s", "ts1", "ts2", "d", "st.a", "a.b", "dbl", "zz", "I")
    forms = (
        *("{}", "year({})", "month({})", "day({})", "hour({})", "bucket({}, 4)", "truncate({}, 3)"),
        *("bucket({},0)", "bucket({})", "bucket(4, {})", "truncate({}, -1)", "DAY({})", "days({})"),
        *(
            "identity({})",
            "void({})",
            " {} ",
            "bucket({}, 4",
            "({})",
            "year( {} )",
            "bucket({}, x)",
        ),
    )
    terms = (rng.choice(forms).format(rng.choice(names)) for _ in range(rng.choice((1, 1, 2, 3))))
    return {"text": rng.choice((",", ", ", ",,")).join(terms), "schema": source["schema"]}


_ROUTES = (
    *("type.*", "TYPE1", "type1|type2", "", "\\w+", ".*\\d", "[a-z]+1", "(?i)TYPE1", "5(\\.0)?"),
    *("null", "true|false", "\\{.*\\}", "[^t].*", ".", "type1\\b.*", "(type)\\1?1", "\\p{Alpha}+1"),
)
_KINDS = (
    "type1",
    "type1",
    "type2",
    "TYPE1",
    "",
    "type1\n",
    5,
    5.0,
    1e7,
    True,
    None,
    "5",
    ["type1"],
)


def route(rng: Random) -> Case:
    """One case of ``routing/route``: recorded keys and tables, other records."""
    one, other = rng.choice(recorded("routing", "route")), rng.choice(recorded("routing", "route"))
    config = dict(one["config"])
    for key in config:
        if key.endswith("route-regex") and rng.random() < 0.4:
            config[key] = rng.choice(_ROUTES)
        if key.endswith("route-field") and rng.random() < 0.3:
            config[key] = rng.choice(("id", "kind", "m", "m.kind", "", "m.", ".kind", "zz"))
    records = [dict(source) for source in other["records"]]
    for source in records:
        if not source["schemas"]:
            source["value"] = generated.mutated(rng, source["value"])
            if isinstance(source["value"], dict) and rng.random() < 0.4:
                source["value"] |= {"kind": rng.choice(_KINDS)}
    return {"config": config, "tables": one["tables"], "records": records}


def auto_create(rng: Random) -> Case:
    """One case of ``routing/auto-create``: keys of all kinds, any record."""
    config = {
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables": rng.choice(("db.t", "db.t", "db.t", "a.b.c.t", "db.t, db.u", " db.t")),
    }
    for key, choices in _CREATION.items():
        if rng.random() < 0.15:
            config[f"iceberg.{key}"] = rng.choice(choices)
    if rng.random() < 0.4:
        terms = (rng.choice(_TERMS).format(rng.choice(_FIELDS)) for _ in range(rng.choice((1, 2))))
        key = rng.choice(("tables.default-partition-by", "table.db.t.partition-by"))
        config[f"iceberg.{key}"] = ",".join(terms)
    given = record(rng, _FIELDS)
    value = given["value"]
    if not given["schemas"] and isinstance(value, dict) and rng.random() < 0.9:
        value.pop("", None)
    if given["schemas"] and value is not None:
        for field in value["schema"].get("fields", ()):
            if not field["field"]:  # no field of an envelope
                field["field"] = "e"
                if value["payload"] is not None:
                    value["payload"]["e"] = value["payload"].pop("", None)
    return {"config": config, "record": given}


_FIELDS = ("id", "a", "b", "ts", "name")
_TERMS = ("{}", "day({})", "hour({})", "month({})", "bucket({}, 4)", "truncate({}, 3)", "void({})")
_BOOLEANS = ("true", "false", "TRUE")
_CREATION = {
    "tables.schema-force-optional": _BOOLEANS,
    "tables.schema-case-insensitive": _BOOLEANS,
    "tables.evolve-schema-enabled": _BOOLEANS,
    "tables.default-id-columns": ("id", "id", "id,a", " id , ts "),
    "tables.auto-create-props.format-version": ("1", "2", "3"),
    "tables.auto-create-props.write.metadata.metrics.default": ("full", ""),
    "tables.auto-create-props.write.parquet.compression-codec": ("snappy",),
}
"""Keys of new tables, below ``iceberg.``, and what they may be."""
