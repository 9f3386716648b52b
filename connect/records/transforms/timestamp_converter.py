"""``TimestampConverter``: converts timestamps between formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connect.config.key import REQUIRED, Key, one_of
from connect.errors import ConfigError
from connect.model.records import ConnectSchema, Date, SinkRecord, Struct, Time, Timestamp
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.timestamp_router import valid_format
from connect.records.transforms.transform import (
    DATE,
    KAFKA,
    NULL_DEFAULT,
    TIME,
    TIMESTAMP,
    Apply,
    Declaration,
    Example,
    Options,
    SchemaCache,
    Side,
    a_map,
    a_struct,
    all_values,
    java_class,
    refused,
    side_of,
    struct_like,
    with_side,
)

_PURPOSE: Final = "converting timestamp formats"
_DAY_MS: Final = 86_400_000
_LONG_MAX: Final = 2**63 - 1
_TARGETS: Final = ("string", "unix", "Date", "Time", "Timestamp")
_SCHEMAS: Final[Mapping[str, tuple[str, str | None, int | None]]] = {
    "string": ("string", None, None),
    "unix": ("int64", None, None),
    "Date": ("int32", DATE, 1),
    "Time": ("int32", TIME, 1),
    "Timestamp": ("int64", TIMESTAMP, 1),
}
# number of units per millisecond, and number of milliseconds per unit
_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    "seconds": (1, 1_000),
    "milliseconds": (1, 1),
    "microseconds": (1_000, 1),
    "nanoseconds": (1_000_000, 1),
}


class TimestampConversion:
    """Converts timestamps of any format to one format.

    Args:
        options: options of the transformation.

    Raises:
        ConfigError: the target type is string and no format is set.
    """

    def __init__(self, options: Options) -> None:
        self.target: str = options["target.type"]
        self._format = DateFormat(options["format"]) if options["format"] else None
        if self.target == "string" and self._format is None:
            raise ConfigError(
                "TimestampConverter requires format option to be specified when using string "
                "timestamps",
                code="transform_option",
            )
        self._per_milli, self._millis = _UNITS[options["unix.precision"]]

    def convert(self, value: Any, source: str | None = None, *, is_typed: bool = True) -> Any:
        """Convert a value.

        Args:
            value: the timestamp; null stays null.
            source: the format declared by the schema; None to infer it from the value.
            is_typed: return Date and Time as such. Otherwise return Timestamp, as Java does for
                records without schema.

        Raises:
            RecordError: the value has none of the formats.
        """
        if value is None:
            return None
        millis = self._millis_of(value, source or _form_of(value))
        if self.target == "string":
            assert self._format is not None
            return self._format.format(millis)
        if self.target == "unix":
            return self._unix(millis)
        if self.target == "Timestamp":
            return Timestamp(millis)
        days, clock = divmod(millis, _DAY_MS)
        if self.target == "Date":
            return Date(days) if is_typed else Timestamp(days * _DAY_MS)
        return Time(clock) if is_typed else Timestamp(clock)

    def _millis_of(self, value: Any, form: str) -> int:
        if form == "string" and type(value) is str:
            if self._format is None:
                raise refused("a string requires the option format", "no_format")
            try:
                millis = self._format.parse(value)
            except ValueError:
                raise refused(
                    "Could not parse timestamp: the value does not match pattern "
                    f"({self._format.pattern})",
                    "bad_text",
                ) from None
            if _held(millis) != millis:
                raise refused("the instant has more than 64 bits", "out_of_range")
            return millis
        if form == "unix" and type(value) is int:
            return _held(_toward_zero(value, self._per_milli) * self._millis)
        if isinstance(value, Date):
            return value.days * _DAY_MS
        if isinstance(value, Time | Timestamp):
            return value.millis
        raise refused(f"a {java_class(value)} where the schema says {form}", "wrong_type")

    def _unix(self, millis: int) -> int:
        return _held(_toward_zero(millis, self._millis) * self._per_milli)


def _held(number: int) -> int:
    """Clamp a number to 64 bits, as Java's ``TimeUnit`` does."""
    return max(-_LONG_MAX - 1, min(number, _LONG_MAX))


def _toward_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number < 0 else number // divisor


def _form_of(value: Any) -> str:
    if isinstance(value, Date | Time | Timestamp):
        return "Timestamp"
    if type(value) is int:
        return "unix"
    if type(value) is str:
        return "string"
    raise refused(
        f"TimestampConverter does not support class {java_class(value)} objects as timestamps",
        "wrong_type",
    )


def _form_in(schema: ConnectSchema) -> str:
    for form, (kind, name, _) in _SCHEMAS.items():
        if schema.name == name and name is not None:
            return form
        if name is None and schema.type == kind and schema.name not in (TIMESTAMP, DATE, TIME):
            return form
    raise refused(
        f"Schema {schema.type.upper()} does not correspond to a known timestamp type format",
        "wrong_type",
    )


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    conversion = TimestampConversion(options)
    field = options["field"]
    default = options["replace.null.with.default"]
    kind, name, version = _SCHEMAS[conversion.target]

    def rebuilt(schema: ConnectSchema) -> ConnectSchema:
        fields = [
            (n, ConnectSchema(kind, s.optional, name, version) if n == field else s)
            for n, s in schema.fields
        ]
        return struct_like(schema, fields, optional=schema.optional)

    new_schema = SchemaCache(rebuilt)

    def apply(record: SinkRecord) -> SinkRecord:
        schema, value = side_of(record, side)
        if schema is None:
            if value is None or not field:
                new = conversion.convert(value, is_typed=False)
                return with_side(record, side, None, new)
            fields = dict(a_map(value, _PURPOSE))
            fields[field] = conversion.convert(fields.get(field), is_typed=False)
            return with_side(record, side, None, fields)
        if not field:
            updated = ConnectSchema(kind, schema.optional, name, version)
            return with_side(record, side, updated, conversion.convert(value, _form_in(schema)))
        if schema.type != "struct":
            raise refused("Cannot list fields on non-struct type", "wrong_type")
        updated = new_schema(schema)
        if value is None:
            return with_side(record, side, updated, None)
        struct = a_struct(value, _PURPOSE)
        values = all_values(struct, default=default)
        for n, inner in struct.schema.fields:
            if n == field:
                values[n] = conversion.convert(values[n], _form_in(inner))
        return with_side(record, side, updated, Struct(updated, values))

    return apply


DECLARATION: Final = Declaration(
    "TimestampConverter",
    KAFKA,
    "Converts a field, or the whole key or value, between string, number since 1970 and Connect's "
    "Date, Time and Timestamp. All times are in UTC. Parsing is lenient, as in Java: month 13 is "
    "January of the next year, and text after the pattern is ignored. `ParseTimestamp` is strict.",
    make,
    Example(
        {
            "field": "at",
            "target.type": "unix",
            "format": "yyyy-MM-dd HH:mm:ss",
            "unix.precision": "milliseconds",
        },
        {"value": {"id": 7, "at": "2023-11-14 22:13:20"}},
        {"value": {"id": 7, "at": 1700000000000}},
    ),
    keys=(
        Key(
            "field", "STRING", "The field to convert; empty for the whole key or value.", "", "HIGH"
        ),
        Key(
            "target.type",
            "STRING",
            "`string`, `unix`, `Date`, `Time` or `Timestamp`.",
            REQUIRED,
            "HIGH",
            check=one_of(_TARGETS),
        ),
        Key(
            "format",
            "STRING",
            "Pattern of Java's `SimpleDateFormat` to parse and format strings.",
            "",
            check=valid_format,
        ),
        Key(
            "unix.precision",
            "STRING",
            "Unit of `unix` numbers.",
            "milliseconds",
            "LOW",
            check=one_of(("nanoseconds", "microseconds", "milliseconds", "seconds")),
        ),
        NULL_DEFAULT,
    ),
    has_sides=True,
    differs="The pattern letters are y M d D E a H k K h m s S u X Z z. Other letters are a "
    "configuration error. Two-digit years are 1969 to 2068.",
    is_column=True,
)
