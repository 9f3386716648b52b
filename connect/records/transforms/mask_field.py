"""``MaskField``: replaces the values of fields and keeps their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from connect.config.key import REQUIRED, Distinct, Key
from connect.java_compat.java_numbers import decimal_of, float32_of, float64, narrowed
from connect.model.records import (
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    SinkRecord,
    Struct,
    Time,
    Timestamp,
)
from connect.records.transforms.transform import (
    KAFKA,
    NULL_DEFAULT,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    a_map,
    a_struct,
    all_values,
    java_class,
    refused,
    side_of,
    with_side,
)

_PURPOSE: Final = "mask fields"
_EMPTY: Final[Mapping[type, Any]] = {
    bool: False,
    int: 0,
    Int8: Int8(0),
    Int16: Int16(0),
    Int32: Int32(0),
    float: 0.0,
    Float32: Float32(0.0),
    Decimal: Decimal(0),
    Date: Date(0),
    Time: Time(0),
    Timestamp: Timestamp(0),
    str: "",
}


def _whole(text: str, *, bits: int) -> int:
    return narrowed(decimal_of(text), bits)


_REPLACED: Final[Mapping[type, Callable[[str], Any]]] = {
    Int8: lambda text: Int8(_whole(text, bits=8)),
    Int16: lambda text: Int16(_whole(text, bits=16)),
    Int32: lambda text: Int32(_whole(text, bits=32)),
    int: partial(_whole, bits=64),
    Float32: lambda text: float32_of(str(decimal_of(text))),
    float: lambda text: float64(decimal_of(text)),
    Decimal: decimal_of,
    str: lambda text: text,
}


def _not_empty(value: Any) -> str | None:
    return "String must be non-empty" if value == "" else None


_BITS: Final = {"int8": 8, "int16": 16, "int32": 32}


def masked(value: Any, replacement: str | None, kind: str | None = None) -> Any:
    """Return the replacement of a value.

    Args:
        value: value of the field.
        replacement: the option ``replacement``; None for the empty value of the type.
        kind: type of the field's schema.

    Raises:
        RecordError: values of this type cannot be masked.
    """
    if value is None:
        return None
    if replacement is not None:
        own = type(value)
        bits = _BITS.get(kind or "") if own is int else None
        read = _REPLACED.get(own) if bits is None else partial(_whole, bits=bits)
        if read is None:
            raise refused(
                f"Cannot mask value of type class {java_class(value)} with custom replacement.",
                "wrong_type",
            )
        try:
            return read(replacement)
        except ValueError:
            raise refused("Unable to convert the replacement to a number", "bad_text") from None
    if type(value) in _EMPTY:
        return _EMPTY[type(value)]
    if type(value) is list:
        return []
    if type(value) is dict:
        return {}
    raise refused(f"Cannot mask value of type: class {java_class(value)}", "wrong_type")


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    names = tuple(dict.fromkeys(options["fields"]))
    hidden = frozenset(names)
    replacement = options["replacement"]
    default = options["replace.null.with.default"]

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            fields = dict(a_map(value, _PURPOSE))
            fields.update({name: masked(fields.get(name), replacement) for name in names})
            return with_side(record, side, None, fields)
        struct = a_struct(value, _PURPOSE)
        values = all_values(struct, default=default)
        kinds = {n: inner.type for n, inner in struct.schema.fields if n in hidden}
        values.update({n: masked(values[n], replacement, kinds[n]) for n in names if n in kinds})
        return with_side(record, side, schema, Struct(struct.schema, values))

    return apply


DECLARATION: Final = Declaration(
    "MaskField",
    KAFKA,
    "Replaces the values of fields with the empty value of their type (0, false, empty string, "
    "empty list), or replaces strings and numbers with a given replacement. Null stays null.",
    make,
    Example(
        {"fields": "card", "replacement": "****"},
        {"value": {"id": 7, "card": "4111 1111"}},
        {"value": {"id": 7, "card": "****"}},
    ),
    keys=(
        Key("fields", "LIST", "Fields to mask.", REQUIRED, "HIGH", check=Distinct("fields")),
        Key(
            "replacement",
            "STRING",
            "Replacement of strings and numbers; for number fields it must be a number.",
            None,
            "LOW",
            check=_not_empty,
        ),
        NULL_DEFAULT,
    ),
    has_sides=True,
    is_column=True,
)
