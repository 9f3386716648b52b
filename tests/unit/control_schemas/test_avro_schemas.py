"""Avro schemas: what the parser makes of them, for events and for records alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control_schemas.avro import AvroType, BadSchema, Bounds, SchemaParser

BOUNDS = Bounds(depth_max=8, weight_max=40, fixed_bytes_max=16)


def parsed(schema: Any, *, is_strict: bool = False) -> AvroType:
    """The type of a schema."""
    return SchemaParser(BOUNDS._replace(is_strict=is_strict)).parse(schema)


def record(*kinds: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    """A record with a field of each type."""
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields, **attributes}


FIXED = {"type": "fixed", "name": "F", "size": 2}


def test_an_identical_definition_may_be_repeated() -> None:
    """The same definition again is accepted; the strict parser rejects a different second one."""
    first, second = parsed(record(FIXED, dict(FIXED))).fields
    assert first.type is second.type
    with pytest.raises(BadSchema, match="defined twice"):
        parsed(record(FIXED, dict(FIXED)), is_strict=True)
    with pytest.raises(BadSchema, match="defined twice"):
        parsed(record(FIXED, {**FIXED, "size": 3}))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"name": "R"}, "neither text, list nor object"),
        ({"type": {"type": {"kind": "int"}}}, "neither text, list nor object"),
        ({**FIXED, "name": "1F"}, "is not a valid name"),
        ({**FIXED, "name": "int"}, "is not a valid name"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a duplicate symbol"),
        (["int", "int"], "or a type twice"),
        (record(*["int"] * 41), "after expansion"),
        (record(record(name="A"), record("A", name="A")), "defined twice"),
    ],
    ids=str,
)
def test_invalid_schemas_are_rejected(schema: Any, reason: str) -> None:
    """The error contains the reason."""
    with pytest.raises(BadSchema, match=reason):
        parsed(schema)


def test_names_are_resolved_as_in_java() -> None:
    """A simple name is resolved in the enclosing namespace, then without a namespace."""
    inner = {**FIXED, "namespace": ""}
    schema = record(inner, {"type": "F"}, record("F", name="I", aliases=["O"]), namespace="a.b")
    found = parsed(schema)
    assert found.short_name == "R"
    assert [field.type.name for field in found.fields] == ["F", "F", "a.b.I"]
    assert found.fields[2].type.aliases == ("a.b.O",)
    assert parsed("int").short_name == "int"


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ({"logicalType": "decimal", "precision": 4, "scale": 1}, ("decimal", 4, 1)),
        ({"logicalType": "decimal", "precision": "4"}, (None, 0, 0)),
        ({"logicalType": "decimal", "precision": 4, "scale": 10**6}, (None, 0, 0)),
        ({"logicalType": "date"}, (None, 0, 0)),
    ],
    ids=str,
)
def test_invalid_logical_types_are_ignored(
    logical: dict[str, Any], expected: tuple[str | None, int, int]
) -> None:
    """A logical type that does not fit its base type, or has invalid digits, has no effect."""
    found = parsed(json.loads(json.dumps({**FIXED, **logical})))
    assert (found.logical, found.precision, found.scale) == expected


def test_an_empty_union_is_a_schema() -> None:
    """Avro accepts it; no event contains one."""
    assert parsed([]).branches == ()
    with pytest.raises(BadSchema, match="a union is empty"):
        parsed([], is_strict=True)
