"""Rules for the deliberate differences in generated Avro cases."""

from __future__ import annotations

import base64
import json
from typing import Any

from connect.model.records import ConnectSchema
from connect.records.converters.avro import avro_values
from connect.records.converters.avro.avro_data import avro_reader
from connect.records.converters.avro.avro_schema import UNION_NAME, BadSchema, parse_avro
from connect.records.converters.payload_errors import Malformed
from tests.golden import records_model as model
from tests.golden.records_rules import Case
from tests.golden.records_suite import same_value

_MARK = "io.confluent.connect.avro.field.default"


def avro_rule(case: Case) -> str | None:
    """The rule by which a case of ``converters/AvroData`` differs; None when there is none."""
    expected, source = case["expected"], case["input"]
    recorded_error = (expected.get("error") or {}).get("message") or ""
    if "error" in expected and not recorded_error.startswith("Invalid type for "):
        return None
    try:
        reader = avro_reader(parse_avro(json.dumps(source["avro_schema"])), case["config"])
        schema, value = reader.read(base64.b64decode(source["bytes"]))
    except BadSchema as error:
        return _unread_rule(expected, str(error))
    except Malformed as error:
        if "outside one day" in str(error) and "{'$timestamp': 86400000}" in str(expected):
            return "the end of a day is no time of day"
        if "outside one day" in str(error) and _is_hidden(case):
            return "a time outside its day is refused where a later entry of its key hides it, too"
        is_key = '"MapEntry"' in json.dumps(source) and error.code in _KEYS
        return _KEYS[error.code] if is_key else None
    if schema is not None and _has_twice(schema):
        return "a value of a union has the type it was written with"
    if "error" in expected:
        return None
    if isinstance(expected["schema"], str):
        return None
    ours, java = model.schema_json(schema), model.schema_json(model.schema_of(expected["schema"]))
    is_same = same_value(schema, value, expected["value"])
    return _schema_rule(case, ours, java) if is_same else None


def _unread_rule(expected: Any, why: str) -> str | None:
    """The rule by which a schema is refused that Java reads."""
    if expected.get("schema", "") is None and expected["value"] is None:
        return "a null of a schema that is refused"
    if why.endswith("is not defined") and expected.get("schema"):
        return "a type is defined before it is used"
    is_small = why.startswith("org.apache.kafka") and " is no int" in why
    return "small integers are no dates" if is_small else None


def _schema_rule(case: Case, ours: Any, java: Any) -> str | None:
    """The rule by which two schemas of equal values differ."""
    keeps = case["config"].get("connect.meta.data") != "false"
    if _essence(ours, keeps=keeps) == _essence(java, keeps=keeps):
        return "what a schema tells that no row holds"
    ours, java = (_essence(reported, keeps=keeps, keeps_structs=False) for reported in (ours, java))
    is_own = ours == java and _has_own_default(case["input"]["avro_schema"])
    return "a record's own default, however little it tells" if is_own else None


def _has_own_default(source: Any) -> bool:
    """Whether a record has a ``connect.default``."""
    if isinstance(source, list):
        return any(map(_has_own_default, source))
    if not isinstance(source, dict):
        return False
    is_own = source.get("type") == "record" and "connect.default" in source
    return is_own or any(map(_has_own_default, source.values()))


def _is_hidden(case: Case) -> bool:
    """Whether the value is Java's when times of any size are read: Java's holds none of those."""
    source, day = case["input"], avro_values._DAY_MS
    reader = avro_reader(parse_avro(json.dumps(source["avro_schema"])), case["config"])
    avro_values._DAY_MS = range(-(2**31), 2**31)  # Java has no bound
    try:
        schema, value = reader.read(base64.b64decode(source["bytes"]))
    except Malformed:
        return False
    finally:
        avro_values._DAY_MS = day
    return same_value(schema, value, case["expected"]["value"])


_KEYS = {
    "ambiguous_name": "two entries of a map with one key are refused",
    "wrong_type": "keys of maps are no containers",
}


def _has_twice(schema: ConnectSchema) -> bool:
    """Whether a union has two types that are one to Java: bytes and fixed, two maps."""
    inner = [*(s for _, s in schema.fields), schema.key_schema, schema.value_schema]
    kinds = [s.type for _, s in schema.fields]
    if schema.name == UNION_NAME and (kinds.count("bytes") > 1 or kinds.count("map") > 1):
        return True
    return any(_has_twice(s) for s in inner if s is not None)


def _essence(schema: Any, *, keeps: bool, keeps_structs: bool = True) -> Any:
    """A schema without the defaults of what is never null, and without marks of defaults.

    Args:
        schema: as ``records_model`` shows it.
        keeps: Java keeps documentation and parameters.
        keeps_structs: whether structs keep their defaults.
    """
    if isinstance(schema, list):
        return [_essence(item, keeps=keeps, keeps_structs=keeps_structs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left = dict(schema)
    is_struct = left.get("type") == "struct"
    if not left.get("optional") or (is_struct and not keeps_structs):
        left.pop("default", None)
    if not keeps:
        left.pop("doc", None)
    given = left.pop("parameters", {})
    parameters = {k: v for k, v in given.items() if k != _MARK and (keeps or k == "scale")}
    essence = {
        key: _essence(inner, keeps=keeps, keeps_structs=keeps_structs)
        for key, inner in left.items()
    }
    return {**essence, "parameters": parameters}
