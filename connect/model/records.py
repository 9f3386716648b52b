"""Records on their way from Kafka bytes to typed columns.

``KafkaRecord`` is a record as the broker delivered it. ``SinkRecord`` is that record after its
converters: values in Connect's data model, with schemas if the converter returned any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class Int8(int):
    """A Connect int8 in a schemaless value; plain ``int`` is int64."""

    __slots__ = ()


class Int16(int):
    """A Connect int16 in a schemaless value."""

    __slots__ = ()


class Int32(int):
    """A Connect int32 in a schemaless value."""

    __slots__ = ()


class Float32(float):
    """A Connect float32, already rounded to 32 bits; plain ``float`` is float64."""

    __slots__ = ()


class Date(NamedTuple):
    """Connect's logical Date: days since 1970-01-01; any year, unlike ``datetime.date``."""

    days: int


class Time(NamedTuple):
    """Connect's logical Time: milliseconds since midnight."""

    millis: int


class Timestamp(NamedTuple):
    """Connect's logical Timestamp: milliseconds since 1970-01-01 UTC; any year.

    ``nanos`` are the nanoseconds within the millisecond, which Java's type does not have.
    """

    millis: int
    nanos: int = 0


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record as the broker delivered it.

    Attributes:
        topic: source topic.
        partition: source partition.
        offset: source offset.
        timestamp_ms: record timestamp, milliseconds since 1970 UTC; None when it has none.
        timestamp_type: 0 create time, 1 log append time, -1 none.
        key: raw key.
        value: raw value; None is a tombstone.
        headers: raw headers in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """A schema of Kafka Connect's data model.

    Attributes:
        type: ``int8`` ``int16`` ``int32`` ``int64`` ``float32`` ``float64`` ``boolean`` ``string``
            ``bytes`` ``array`` ``map`` ``struct``.
        optional: whether null is a value.
        name: logical or record name, e.g. ``org.apache.kafka.connect.data.Timestamp``.
        version: schema version.
        doc: documentation.
        parameters: logical type parameters, e.g. ``{"scale": "2"}``.
        default: default value in the data model's form.
        has_default: distinguishes a null default from no default.
        fields: struct fields, in order.
        key_schema: of a map.
        value_schema: of a map, or the items of an array.
        unit: time unit of a plain number, ``us`` or ``ns``, if the source's schema has one that
            Connect cannot express (Avro's ``timestamp-micros``); None otherwise.
        keeps_nulls: whether the converter leaves nulls as they are, also if there is a default.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    default: Any = None
    has_default: bool = False
    fields: tuple[tuple[str, ConnectSchema], ...] = ()
    key_schema: ConnectSchema | None = None
    value_schema: ConnectSchema | None = None
    unit: Literal["us", "ns"] | None = None
    keeps_nulls: bool = False

    @property
    def null_value(self) -> Any:
        """Return the value of a null field: the default, or None."""
        return None if self.keeps_nulls else self.default


@dataclass(frozen=True, slots=True)
class Struct:
    """A value with a struct schema; ``values`` contains every field of it."""

    schema: ConnectSchema
    values: Mapping[str, Any] = field(default_factory=dict)


class Header(NamedTuple):
    """One header of a record; ``schema`` is None when the converter returned none."""

    key: str
    value: Any
    schema: ConnectSchema | None = None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A record after its converters.

    Values have Python types: int, float (``Float32`` for float32, rounded), str, bytes, bool, list,
    dict, ``decimal.Decimal``, ``Date``/``Time``/``Timestamp`` for the logical types, ``Struct`` for
    a struct schema. Transformations may also return ``Int8``/``Int16``/``Int32``, ``uuid.UUID`` and
    ``datetime.date/time/datetime``. ``timestamp_type`` is as in ``KafkaRecord``.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Any = None
    key_schema: ConnectSchema | None = None
    value: Any = None
    value_schema: ConnectSchema | None = None
    headers: tuple[Header, ...] = ()
    timestamp_type: int = -1
