"""Transformations of keys, and those that move fields out of the value, in both forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from tests.differential.both_paths import both
from tests.differential.chains import EVOLVE, ICEBERG, chain, value
from tests.differential.examples import generated, part
from tests.differential.support import config, decoded_by_columns, plan, run_batches, source
from worker.transforms.step_chain import steps_for

ALL = {"errors.tolerance": "all"}
JSON = "org.apache.kafka.connect.json.JsonConverter"
STORAGE = "org.apache.kafka.connect.storage."
KEYS = {
    "text": {"key.converter": f"{STORAGE}StringConverter"},
    "latin text": {
        "key.converter": f"{STORAGE}StringConverter",
        "key.converter.converter.encoding": "latin1",
    },
    "json": {"key.converter": JSON, "key.converter.schemas.enable": "false"},
    "envelope": {"key.converter": JSON, "key.converter.schemas.enable": "true"},
    "long": {"key.converter": "org.apache.kafka.connect.converters.LongConverter"},
}
KEY_KINDS: dict[str, IcebergType] = {
    "struct": StructType(
        NestedField(51, "id", LongType(), required=False),
        NestedField(52, "k", StringType(), required=False),
        NestedField(
            53,
            "in",
            StructType(NestedField(54, "id", LongType(), required=False)),
            required=False,
        ),
    ),
    "text": StringType(),
}


def key(kind: str, **keys: str) -> dict[str, str]:
    return {**value(kind, **keys), "type": f"{kind}$Key"}


def table(key_kind: IcebergType | None) -> Schema:
    """Columns of events, with or without their key."""
    cdc = [NestedField(41, "op", StringType(), required=False)]
    if key_kind is not None:
        cdc.append(NestedField(42, "key", key_kind, required=False))
    return Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "b", StringType(), required=False),
        NestedField(3, "_cdc", StructType(*cdc), required=False),
    )


DEBEZIUM = {"type": f"{ICEBERG}DebeziumTransform"}
TO_KEY = {"type": "ValueToKey", "fields": "id,k,op"}
CHAINS: dict[str, tuple[dict[str, str], ...]] = {
    "extract": (key("ExtractField", field="id"),),
    "extract deep": ({**key("ExtractField", field="in.id"), "field.syntax.version": "V2"},),
    "extract struct": (key("ExtractField", field="in"), key("ReplaceField", exclude="x")),
    "extract twice": (key("ExtractField", field="in"), key("ExtractField", field="id")),
    "hoist": (key("HoistField", field="k"),),
    "hoist and extract": (key("HoistField", field="in"), key("ExtractField", field="in")),
    "hoist and insert": (key("HoistField", field="in"), key("InsertField", topic_field="k")),
    "replace": (key("ReplaceField", renames="id:n,n:id", exclude="k"),),
    "rename": (key("ReplaceField", renames="n:id"),),
    "insert": (key("InsertField", offset_field="id", topic_field="k"),),
    "mask": (key("MaskField", fields="id,k"),),
    "cast": (key("Cast", spec="id:string,k:string"),),
    "cast to number": (key("Cast", spec="id:int8"),),
    "times": ({**key("TimestampConverter", field="id"), "target.type": "unix"},),
    "to headers": (key("HeaderFrom", fields="id", headers="h", operation="move"),),
    "copied to headers": (key("HeaderFrom", fields="id", headers="h", operation="copy"),),
    "metadata": (key("SetSchemaMetadata", schema_name="n"),),
    "of value": (TO_KEY,),
    "of value, extracted": (TO_KEY, key("ExtractField", field="op")),
    "of value, hoisted": ({**TO_KEY, "fields": "op"}, key("HoistField", field="in")),
    "predicate": ({**key("ExtractField", field="id"), "predicate": "p"},),
    "of value, predicate": (
        {**TO_KEY, "predicate": "p", "negate": "true"},
        {**key("ExtractField", field="op"), "predicate": "p"},
    ),
}
PLAIN_KEYS = ('{"id":5,"k":"x","in":{"id":7}}', "text")


def envelope(payload: Any) -> bytes:
    inner = [{"field": "id", "type": "int64", "optional": True}]
    fields = [
        *({"field": "id", "type": "int64"}, {"field": "k", "type": "string", "optional": True}),
        {"field": "in", "type": "struct", "optional": True, "fields": inner},
    ]
    schema = {"type": "struct", "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def keys_of(kind: str) -> list[bytes | None]:
    """Usual and odd keys."""
    maps: list[Any] = [
        *({"id": 5, "k": "x", "in": {"id": 7}}, {"id": 300, "k": None, "in": None}, {"id": "7"}),
        *({"k": 5}, {}, {"id": None, "n": 3}, {"id": 1, "in": 5}, {"id": 2.5}, {"in": {"x": 1}}),
        *({"id": True}, {"id": [1], "k": {}}, None, 5, "x", [1]),
    ]
    odd = [None, b"", b"\xff", b"{", b" {} ", b'{"id":1,"id":2}', b'{"\\u0069d":1}', b"\0" * 8]
    if kind == "envelope":
        typed = [{"id": 5, "k": "x", "in": {"id": 7}}, {"id": 1, "k": None}, None, {}, {"id": "x"}]
        return [envelope(one) for one in typed] + odd
    if kind == "latin text":
        return [b"x", b"\xe9", "é".encode(), None]
    return [json.dumps(one).encode() for one in maps] + odd


EVENT = '{"op":"%s","before":{"id":1,"b":"y"},"after":{"id":2,"b":"x"},"ts_ms":5,%s}'
SOURCE = '"source":{"db":"d","schema":"s","table":"t"},"id":8,"k":"z"'


@pytest.mark.parametrize("name", CHAINS)
def test_keys_of_every_kind_are_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """After transformations of keys: the same rows, refusals and requests."""
    links = CHAINS[name]
    displayed = KEY_KINDS["text" if "extract" in name or name == "predicate" else "struct"]
    columns: list[tuple[IcebergType | None, dict[str, str]]] = [(displayed, {}), (None, EVOLVE)]
    cases = [(kind, *each) for kind in KEYS for each in columns]
    for kind, column, extra in part(cases, list(CHAINS).index(name), of=4):
        keys = [*keys_of(kind), *keys_of(kind)[:1] * 9]
        values: list[bytes | None] = [(EVENT % (op, SOURCE)).encode() for op in "cud"]
        values = [*(values * len(keys))[: len(keys) - 2], b'{"op":"c"}', None]
        batches = [source(values, keys=keys), source(values, keys=keys, topic="u", start=1000)]
        connector = config(**{**ALL, **KEYS[kind], **chain(*links, DEBEZIUM), **extra})
        assert steps_for(connector) is not None
        by_column, by_record = both(connector, [plan(tmp_path, table(column))], batches)
        if extra and by_column["schemas"]:
            assert by_column["schemas"] == by_record["schemas"]
        else:
            assert by_column == by_record, (kind, column)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", CHAINS)
def test_invalid_keys_are_refused_even_if_no_table_uses_them(
    name: str, kind: str, tmp_path: Path
) -> None:
    """Where nothing asks for the key, records are refused for it all the same."""
    connector = config(**{**ALL, **KEYS[kind], **chain(*CHAINS[name])})
    keys = [*keys_of(kind), *keys_of(kind)[:1] * 9]
    values: list[bytes | None] = [b'{"id":1,"b":"x"}'] * (len(keys) - 2) + [b'{"id":"x"}', None]
    batches = [source(values, keys=keys), source(values, keys=keys, topic="u", start=1000)]
    by_column, by_record = both(connector, [plan(tmp_path, table(None))], batches)
    assert by_column == by_record


PLAIN = {
    "extract": (CHAINS["extract"], "json", b'{"id":5}'),
    "replace": ((key("ReplaceField", exclude="k"),), "json", b'{"id":5,"k":"x"}'),
    "cast": (CHAINS["cast"], "json", b'{"id":5}'),
    "hoist": (CHAINS["hoist"], "text", b"x"),
    "of value": (CHAINS["of value, extracted"], "text", None),
    "typed": (CHAINS["extract"], "envelope", envelope({"id": 5})),
}


TEXTS = {"extract", "typed", "of value"}
COLUMNS = [
    (name, column)
    for name in PLAIN
    for column in (None, *KEY_KINDS.values())
    if column != KEY_KINDS["struct" if name in TEXTS else "text"]  # not what comes out
]


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_common_keys_use_the_column_path_only(
    name: str, column: IcebergType | None, tmp_path: Path
) -> None:
    """Common records with common keys leave nothing to the reference.

    A key that is no map is no part of a row without schema; where a table has a column for it the
    reference says so.
    """
    links, kind, one = PLAIN[name]
    connector = config(**{**KEYS[kind], **chain(*links, DEBEZIUM)})
    batch = source([(EVENT % ("c", SOURCE)).encode()] * 20, keys=[one] * 20)
    (decoded,) = decoded_by_columns(connector, plan(tmp_path, table(column)), batch)
    is_left = column is not None and name not in {"replace", "cast"}
    assert (len(decoded.places), len(decoded.unexpected)) == (20, 20 if is_left else 0)


def test_upserts_by_a_key_made_of_the_value_are_equal_on_both_paths(tmp_path: Path) -> None:
    """The key columns of a table without ids are those of the key that the chain makes."""
    from worker.batch.pipeline_spec import ChangePlan

    connector = config(
        **chain({"type": "ValueToKey", "fields": "id"}),
        **{"iceberg.tables.upsert-mode-enabled": "true"},
    )
    table_plan = plan(tmp_path, table(None))
    table_plan = type(table_plan)(
        **{n: getattr(table_plan, n) for n in table_plan.__slots__ if n != "changes"},
        changes=ChangePlan((), table_plan.spec_json),
    )
    batch = source([b'{"id":%d,"b":"x%d"}' % (i % 3, i) for i in range(9)])
    by_column, by_record = both(connector, [table_plan], [batch])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) > 0
    assert run_batches(connector, [table_plan], [batch]).error is None


# ------------------------------------------------------------------ out of and around the value

VALUE_CHAINS: dict[str, tuple[dict[str, str], ...]] = {
    "moved to headers": (value("HeaderFrom", fields="id,x", headers="h,g", operation="move"),),
    "copied to headers": (value("HeaderFrom", fields="b", headers="h", operation="copy"),),
    "metadata": (value("SetSchemaMetadata", schema_name="n"),),
    "key": ({"type": "ValueToKey", "fields": "id,x"},),
    "hoist": (value("HoistField", field="_cdc"),),
    "hoist text": (value("HoistField", field="b"),),
    "hoist behind": (
        {"type": "InsertHeader", "header": "h", "value.literal": "1"},
        value("HoistField", field="b"),
        value("InsertField", offset_field="id"),
    ),
    "hoist before": (value("InsertField", topic_field="op"), value("HoistField", field="_cdc")),
    "hoist and back": (value("HoistField", field="y"), value("ExtractField", field="y")),
    "hoist and parse": (
        value("HoistField", field="b"),
        {"type": "icefloe.transforms.ParseJson", "field": "b", "target": "_cdc"},
    ),
    "hoist, predicate": ({**value("HoistField", field="b"), "predicate": "p"},),
    "key of what is hoisted": (
        value("HoistField", field="b"),
        {"type": "ValueToKey", "fields": "b"},
    ),
}
FIELDS = [
    *({"field": "id", "type": "int64", "optional": True},),
    *({"field": "b", "type": "string", "optional": True},),
    *({"field": "op", "type": "string", "optional": True, "default": "d"},),
]
DOCUMENTS: list[Any] = [
    *({"id": 1, "b": "x", "op": "c"}, {"id": None}, {"b": "y", "x": 5}, {}, {"op": 5}),
    *({"id": "x"}, {"_cdc": {"op": "q"}, "y": {"id": 5}}, {"x": {"id": 1}}, 5, "text", None, [1]),
    *({"key": {"id": 1}}, {"op": None, "b": "\u00e9"}),
]
VALUES = {
    "json": {"value.converter.schemas.enable": "false"},
    "envelope": {"value.converter.schemas.enable": "true"},
    "text": {"value.converter": f"{STORAGE}StringConverter"},
    "latin text": {
        "value.converter": f"{STORAGE}StringConverter",
        "value.converter.converter.encoding": "latin1",
    },
    "bytes": {"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"},
}


def texts(kind: str, documents: list[Any]) -> list[bytes | None]:
    if kind == "envelope":
        schema = {"type": "struct", "fields": FIELDS}
        return [json.dumps({"schema": schema, "payload": one}).encode() for one in documents]
    return [json.dumps(one).encode() for one in documents]


@pytest.mark.parametrize("name", VALUE_CHAINS)
def test_values_of_every_kind_are_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """The same rows, refusals and requests, with and without schema evolution."""
    schema = table(KEY_KINDS["struct"])
    cases = [(kind, extra) for kind in VALUES for extra in ({}, EVOLVE)]
    for kind, extra in part(cases, list(VALUE_CHAINS).index(name), of=4):
        converters = dict(VALUES[kind])
        if kind != "json" and "value.converter" in converters:
            converters["value.converter.schemas.enable"] = None  # type: ignore[assignment]
        odd: list[bytes | None] = [b"\xff", b"{", b"", None, b"\xed\xa0\x80", b'{"id":1}\0']
        lines = [*texts(kind, DOCUMENTS), *odd, *texts(kind, DOCUMENTS[:1] * 40)]
        batches = [source(lines), source(lines, topic="u", start=1000)]
        connector = config(**{**ALL, **converters, **chain(*VALUE_CHAINS[name]), **extra})
        assert steps_for(connector) is not None
        by_column, by_record = both(connector, [plan(tmp_path, schema)], batches)
        if extra and by_column["schemas"]:
            assert by_column["schemas"] == by_record["schemas"]
        else:
            assert by_column == by_record, (kind, extra)


@pytest.mark.parametrize("kind", ["text", "bytes", "json"])
def test_whole_values_use_the_column_path_only(kind: str, tmp_path: Path) -> None:
    """Texts and bytes that become a field."""
    converters = {**VALUES[kind], "value.converter.schemas.enable": None}
    if kind == "json":
        converters = VALUES[kind]
    name = {"text": "b", "bytes": "b", "json": "_cdc"}[kind]
    connector = config(**{**converters, **chain(value("HoistField", field=name))})
    batch = source([b'{"op":"c"}'] * 20)
    (decoded,) = decoded_by_columns(connector, plan(tmp_path, table(None)), batch)
    assert (len(decoded.places), len(decoded.unexpected)) == (20, 0)


_KEY_LINKS = [link for links in CHAINS.values() for link in links]
_NAMES = st.sampled_from(["id", "k", "in", "n", "x"])
_LEAVES = st.none() | st.integers(-5, 500) | st.sampled_from(["x", "7", ""]) | st.booleans()
_MAPS = st.dictionaries(_NAMES, _LEAVES | st.dictionaries(_NAMES, _LEAVES, max_size=2), max_size=4)


@generated(30)
@given(
    links=st.lists(st.sampled_from(_KEY_LINKS), min_size=1, max_size=3),
    keys=st.lists(_MAPS | _LEAVES, min_size=1, max_size=12),
    column=st.sampled_from([None, *KEY_KINDS.values()]),
)
def test_generated_chains_of_key_steps_are_equal_on_both_paths(
    links: list[dict[str, str]], keys: list[Any], column: IcebergType | None, tmp_path: Path
) -> None:
    """Chains of steps of keys over generated keys."""
    connector = config(**{**ALL, **KEYS["json"], **chain(*links, DEBEZIUM)})
    values: list[bytes | None] = [(EVENT % ("c", SOURCE)).encode()] * len(keys)
    given_keys = [None if one is None else json.dumps(one).encode() for one in keys]
    by_column, by_record = both(
        connector, [plan(tmp_path, table(column))], [source(values, keys=given_keys)]
    )
    assert by_column == by_record
