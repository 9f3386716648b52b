"""Conversion of Protobuf messages to Connect's data model, as Java's ProtobufData does.

Rules of this file:
- Recursive message types are an error, because no table can store them.
- Unsigned numbers keep their value (in Java they wrap at 64 bits). Instants keep their digits below
  milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor as Kind
from google.protobuf.message import DecodeError

from connect.model.records import ConnectSchema, Float32, Struct
from connect.records.converters.payload_errors import Malformed
from connect.records.converters.protobuf.protobuf_types import (
    MESSAGES,
    decimal_schema,
    meta_of,
    read_decimal,
)
from control_schemas.avro import BadSchema

DEPTH_MAX: Final = 64
NODES_MAX: Final = 50_000
ITEMS_MAX: Final = 4_000_000
MESSAGE_BYTES_MAX: Final = 64 * 2**20
UNION: Final = "io.confluent.connect.protobuf.Union."
_TAG: Final = "io.confluent.connect.protobuf.Tag"
_ENUM: Final = "io.confluent.connect.protobuf.Enum"

Reader = Callable[[Any], Any]

_SCALARS: Final[Mapping[int, str]] = {
    **dict.fromkeys((Kind.TYPE_INT32, Kind.TYPE_SINT32, Kind.TYPE_SFIXED32), "int32"),
    **dict.fromkeys(
        (
            Kind.TYPE_UINT32,
            Kind.TYPE_FIXED32,
            Kind.TYPE_INT64,
            Kind.TYPE_UINT64,
            Kind.TYPE_SINT64,
            Kind.TYPE_FIXED64,
            Kind.TYPE_SFIXED64,
        ),
        "int64",
    ),
    Kind.TYPE_FLOAT: "float32",
    Kind.TYPE_DOUBLE: "float64",
    Kind.TYPE_BOOL: "boolean",
    Kind.TYPE_STRING: "string",
    Kind.TYPE_BYTES: "bytes",
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """Options of the converter with Java's defaults.

    Attributes:
        enhanced: use full names for structs and enums.
        index_unions: append an index to the names of oneofs.
        flatten_unions: convert the members of a oneof to fields of the message.
        enums_as_numbers: convert enums to numbers.
        wrapped_nullables: wrapper messages become nullable scalars; plain scalars are never null.
        null_when_absent: an unset field with presence becomes null instead of its default.
    """

    enhanced: bool = False
    index_unions: bool = True
    flatten_unions: bool = False
    enums_as_numbers: bool = False
    wrapped_nullables: bool = False
    null_when_absent: bool = False


@dataclass(frozen=True, slots=True)
class ProtobufReader:
    """Reads messages of one message type.

    Attributes:
        descriptor: the message type.
        schema: the corresponding Connect schema.
        options: options of the converter.
    """

    descriptor: Any
    schema: ConnectSchema
    options: ProtobufOptions
    _factory: Any
    _read: Reader
    _items: _Items

    def read(self, data: bytes, position: int = 0) -> tuple[ConnectSchema | None, Any]:
        """Read one message that ends at the end of the data.

        Raises:
            Malformed: the bytes are not a message of this type, or a value is out of range.
        """
        if len(data) > MESSAGE_BYTES_MAX:
            raise Malformed(f"the message has more than {MESSAGE_BYTES_MAX} bytes", "too_large")
        message = self._factory()
        try:
            message.ParseFromString(data[position:])
            if not message.IsInitialized():
                raise Malformed("a required field is not set", "bad_protobuf")
        except DecodeError:
            raise Malformed("the bytes are not a message of the schema", "bad_protobuf") from None
        self._items.left = ITEMS_MAX
        try:
            return self.schema, self._read(message)
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8", "bad_text") from None


def protobuf_reader(descriptor: Any, options: ProtobufOptions) -> ProtobufReader:
    """Build the reader of a message type.

    Raises:
        BadSchema: the message type is recursive or too large, or no Connect schema corresponds
            to it.
    """
    compiler = _ProtobufCompiler(options)
    schema, read = compiler.message(descriptor, ())
    factory = message_factory.GetMessageClass(descriptor)
    return ProtobufReader(descriptor, schema, options, factory, read, compiler.items)


def message_at(file: Any, indexes: tuple[int, ...]) -> Any:
    """Return the message type at a position in a file.

    Raises:
        Malformed: the file has no message type at this position.
    """
    names = list(file.message_types_by_name.values())
    message = None
    for index in indexes:
        if not 0 <= index < len(names):
            raise Malformed("the schema has no message type at this place", "bad_framing")
        message = names[index]
        names = list(message.nested_types)
    if message is None:
        raise Malformed("the schema has no message type at this place", "bad_framing")
    return message


def union_name(oneof: Any, options: ProtobufOptions) -> str:
    """Return the name of the field for a oneof."""
    return f"{oneof.name}_{oneof.index}" if options.index_unions else str(oneof.name)


def real_oneof(field: Any) -> Any:
    """Return the oneof of a field, or None. Synthetic oneofs, which track presence, are ignored."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{field.name}"):
        return None
    return oneof


class _ProtobufCompiler:
    """Builds schemas and readers of message types."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._nodes = 0
        self.items = _Items()

    def message(self, descriptor: Any, above: tuple[str, ...]) -> tuple[ConnectSchema, Reader]:
        """Return the struct schema and the reader of a message type."""
        if descriptor.full_name in above:
            raise BadSchema(f"the message type {descriptor.full_name[:200]} is recursive")
        if len(above) >= DEPTH_MAX:
            raise BadSchema(f"the schema is nested deeper than {DEPTH_MAX} levels")
        above = (*above, descriptor.full_name)
        fields: list[tuple[str, ConnectSchema]] = []
        readers: list[tuple[str, Reader]] = []
        unions: list[str] = []
        for field in descriptor.fields:
            oneof = real_oneof(field)
            if oneof is None or self._options.flatten_unions:
                schema, read = self.field(field, above)
                fields.append((field.name, schema))
                readers.append((field.name, read))
            elif oneof.name not in unions:
                unions.append(oneof.name)
        united = [self._union(descriptor.oneofs_by_name[name], above) for name in unions]
        fields[:0] = [(name, schema) for name, schema, _ in united]
        readers[:0] = [(name, read) for name, _, read in united]
        names = [name for name, _ in fields]
        if len(set(names)) != len(names):
            raise BadSchema(f"two fields of {descriptor.full_name[:200]} have the same name")
        name = descriptor.full_name if self._options.enhanced else descriptor.name
        schema = ConnectSchema("struct", name=name, fields=tuple(fields))
        return schema, _struct_reader(schema, readers)

    def _union(self, oneof: Any, above: tuple[str, ...]) -> tuple[str, ConnectSchema, Reader]:
        members = [(field, *self.field(field, above)) for field in oneof.fields]
        fields = tuple((field.name, schema) for field, schema, _ in members)
        schema = ConnectSchema("struct", optional=True, name=UNION + oneof.name, fields=fields)
        readers = {field.name: read for field, _, read in members}
        names = dict.fromkeys(readers)

        def read_union(message: Any) -> Struct | None:
            chosen = message.WhichOneof(oneof.name)
            if chosen is None:
                return None
            return Struct(schema, {**names, chosen: readers[chosen](message)})

        return union_name(oneof, self._options), schema, read_union

    def field(self, field: Any, above: tuple[str, ...]) -> tuple[ConnectSchema, Reader]:
        """Return the schema of a field, and the function that reads it from a message."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise BadSchema(f"the schema has more than {NODES_MAX} fields at all levels")
        is_map = _is_map(field)
        schema, convert = self._map(field, above) if is_map else self._value(field, above)
        if field.is_repeated and not is_map:
            item = replace(schema, optional=True)
            schema, read = (
                ConnectSchema("array", value_schema=item),
                _list_reader(field, convert, self.items),
            )
        elif is_map:
            read = _map_reader(field, convert, self.items)
        else:
            read = _field_reader(field, convert, self._options)
        optional = schema.optional or not self._options.wrapped_nullables
        optional = optional or field.is_repeated or field.message_type is not None
        parameters = {**(schema.parameters or {}), _TAG: str(field.number)}
        return replace(schema, optional=optional, parameters=parameters), read

    def _map(self, field: Any, above: tuple[str, ...]) -> tuple[ConnectSchema, Reader]:
        entry = field.message_type.fields_by_name
        key, read_key = self.field(entry["key"], above)
        value, _ = self.field(entry["value"], above)
        _, convert = self._value(entry["value"], above)
        del read_key
        name = field.message_type.name.removesuffix("Entry")
        name = name[:1].lower() + name[1:]
        return ConnectSchema("map", name=name, key_schema=key, value_schema=value), convert

    def _value(self, field: Any, above: tuple[str, ...]) -> tuple[ConnectSchema, Reader]:
        """Return the schema of a single value of a field, and its converter."""
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is None:
            kind = _SCALARS[field.type]
            small = meta_of(field).get("connect.type")
            if kind == "int32" and small in _SMALL:
                return ConnectSchema(small), _small_reader(small)
            return ConnectSchema(kind), Float32 if kind == "float32" else _as_is
        name = field.message_type.full_name
        well_known = MESSAGES.get(name)
        if well_known is not None:
            return well_known
        if name == "confluent.type.Decimal":
            return decimal_schema(field), read_decimal
        if self._options.wrapped_nullables and name in _WRAPPERS:
            schema, convert = self._value(field.message_type.fields_by_name["value"], above)
            return replace(schema, optional=True), lambda message: convert(message.value)
        return self.message(field.message_type, above)

    def _enum(self, enum: Any) -> tuple[ConnectSchema, Reader]:
        name = enum.full_name if self._options.enhanced else enum.name
        parameters = {_ENUM: name, **{f"{_ENUM}.{v.name}": str(v.number) for v in enum.values}}
        if self._options.enums_as_numbers:
            return ConnectSchema("int32", name=name, optional=True, parameters=parameters), _as_is
        names = {number: value.name for number, value in enum.values_by_number.items()}
        unknown = f"UNKNOWN_ENUM_VALUE_{enum.name}_"
        schema = ConnectSchema("string", name=name, optional=True, parameters=parameters)
        return schema, lambda number: names.get(number) or f"{unknown}{number}"


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


_SMALL: Final = {"int8": (-128, 127), "int16": (-32768, 32767)}


def _small_reader(kind: str) -> Reader:
    low, high = _SMALL[kind]

    def read(value: int) -> int:
        if not low <= value <= high:
            raise Malformed(f"the number is outside the range of {kind}", "out_of_range")
        return value

    return read


def _as_is(value: Any) -> Any:
    return value


# ------------------------------------------------------------------ readers of fields


def _struct_reader(schema: ConnectSchema, readers: list[tuple[str, Reader]]) -> Reader:
    return lambda message: Struct(schema, {name: read(message) for name, read in readers})


def _field_reader(field: Any, convert: Reader, options: ProtobufOptions) -> Reader:
    name = field.name
    needs_presence = field.message_type is not None or real_oneof(field) is not None
    if needs_presence or (options.null_when_absent and field.has_presence):

        def read_present(message: Any) -> Any:
            return convert(getattr(message, name)) if message.HasField(name) else None

        return read_present
    return lambda message: convert(getattr(message, name))


@dataclass(slots=True)
class _Items:
    """Limits the number of items in lists and maps of a message, at all levels together."""

    left: int = ITEMS_MAX

    def counted(self, values: Any) -> Any:
        self.left -= len(values)
        if self.left < 0:
            raise Malformed(f"the message has more than {ITEMS_MAX} items", "too_large")
        return values


def _list_reader(field: Any, convert: Reader, items: _Items) -> Reader:
    name = field.name
    return lambda message: [convert(item) for item in items.counted(getattr(message, name))]


def _map_reader(field: Any, convert: Reader, items: _Items) -> Reader:
    name = field.name
    is_message = field.message_type.fields_by_name["value"].message_type is not None

    def read(message: Any) -> dict[Any, Any]:
        values = items.counted(getattr(message, name))
        if is_message:  # in some implementations, access by key creates the item
            return {key: convert(value) for key, value in values.items()}
        return {key: convert(values[key]) for key in values}

    return read
