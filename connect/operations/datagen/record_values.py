"""Values of generated records, and their form as JSON and Avro.

Rules of this file:
- Values follow from the seed and the number of the record, timestamps aside.
- Only this module needs the library mimesis: it is an extra (``icefloe[datagen]``).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import fastavro

from connect.errors import ConfigError
from connect.java_compat.iso_time import instant_text
from connect.operations.datagen.record_spec import (
    AnyField,
    BooleanField,
    ChoiceField,
    DoubleField,
    FakeField,
    IntegerField,
    ListField,
    ObjectField,
    RecordSpec,
    SequenceField,
    TimestampField,
)

Make: TypeAlias = Callable[[int, int], Any]
"""Takes the number of the record and the time in milliseconds; returns a value."""
ScalarField: TypeAlias = IntegerField | DoubleField | BooleanField | ChoiceField | FakeField

_MAGIC = b"\0"


class RecordValues:
    """Makes the records of a specification, one after the other.

    Args:
        spec: what to generate.

    Raises:
        ConfigError: ``datagen_missing``, mimesis is not installed; ``datagen_spec``, it has no
            such provider, method or locale.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._spec = spec
        self._is_avro = spec.format == "avro"
        self._fakes = _fakes(spec)
        self._random = self._fakes.get_random_instance()
        self._fields = {name: self._maker(field) for name, field in spec.fields.items()}

    def next(self, number: int, now_ms: int) -> tuple[bytes | None, dict[str, Any]]:
        """Return key and value of a record.

        Args:
            number: of the record, from 0.
            now_ms: the time of generation.
        """
        value = {name: make(number, now_ms) for name, make in self._fields.items()}
        key = None if self._spec.key is None else value[self._spec.key]
        return None if key is None else str(key).encode(), value

    def _maker(self, field: AnyField) -> Make:
        make = self._make(field)
        if not field.nulls:
            return make
        share, chance = field.nulls, self._random
        return lambda number, now_ms: None if chance.random() < share else make(number, now_ms)

    def _make(self, field: AnyField) -> Make:
        match field:
            case SequenceField():
                return lambda number, _: field.start + number * field.step
            case TimestampField():
                if self._is_avro:
                    return lambda _, now_ms: now_ms
                return lambda _, now_ms: instant_text(now_ms * 1_000_000)
            case ObjectField():
                inner = {name: self._maker(each) for name, each in field.fields.items()}
                return lambda number, now_ms: {n: make(number, now_ms) for n, make in inner.items()}
            case ListField():
                make_item, chance = self._maker(field.of), self._random
                return lambda number, now_ms: [
                    make_item(number, now_ms) for _ in range(chance.randint(field.min, field.max))
                ]
            case _:
                return self._scalar(field)

    def _scalar(self, field: ScalarField) -> Make:
        chance = self._random
        match field:
            case IntegerField():
                return lambda *_: chance.randint(field.min, field.max)
            case DoubleField():
                return lambda *_: round(chance.uniform(field.min, field.max), field.digits)
            case BooleanField():
                return lambda *_: chance.random() < field.chance
            case ChoiceField():
                return lambda *_: chance.choices(field.values, field.weights)[0]
            case FakeField():
                return self._fake(field)

    def _fake(self, field: FakeField) -> Make:
        def make(*_: int) -> str:
            return str(self._fakes(field.fake, **field.args))

        try:
            make()
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ConfigError(
                f"mimesis has no value {field.fake} with these arguments: {error}",
                code="datagen_spec",
            ) from error
        return make


class RecordEncoder:
    """Encodes values.

    Args:
        schema_id: of the registered Avro schema; None for JSON.
        schema: that schema.
    """

    def __init__(self, schema_id: int | None = None, schema: Any = None) -> None:
        self._head = b"" if schema_id is None else _MAGIC + schema_id.to_bytes(4, "big")
        self._schema = None if schema is None else fastavro.parse_schema(schema)

    def encode(self, value: Mapping[str, Any]) -> bytes:
        """Return a value as JSON, or as Avro behind the id of its schema."""
        if self._schema is None:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        out = io.BytesIO()
        out.write(self._head)
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()


def avro_schema(spec: RecordSpec) -> dict[str, Any]:
    """Return the Avro schema of a specification's values."""
    return _record("Generated", spec.fields, set())


def _record(name: str, fields: Mapping[str, AnyField], taken: set[str]) -> dict[str, Any]:
    while name in taken:
        name += "_"
    taken.add(name)
    listed = [
        {"name": key, "type": _type(field, f"{name}_{key}", taken)} for key, field in fields.items()
    ]
    return {"type": "record", "name": name, "fields": listed}


def _type(field: AnyField, name: str, taken: set[str]) -> Any:
    avro_type: Any
    match field:
        case SequenceField() | IntegerField():
            avro_type = "long"
        case DoubleField():
            avro_type = "double"
        case BooleanField():
            avro_type = "boolean"
        case TimestampField():
            avro_type = {"type": "long", "logicalType": "timestamp-millis"}
        case ObjectField():
            avro_type = _record(name, field.fields, taken)
        case ListField():
            avro_type = {"type": "array", "items": _type(field.of, name, taken)}
        case _:
            avro_type = "string"
    return ["null", avro_type] if field.nulls else avro_type


def _fakes(spec: RecordSpec) -> Any:
    try:
        from mimesis import Field, Locale  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "icefloe datagen needs mimesis: pip install 'icefloe[datagen]'", code="datagen_missing"
        ) from None
    try:
        return Field(Locale(spec.locale), seed=spec.seed)
    except ValueError as error:
        raise ConfigError(
            f"mimesis has no locale {spec.locale}: use another one, for example en or de",
            code="datagen_spec",
        ) from error
