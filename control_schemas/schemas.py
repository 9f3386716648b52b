"""The schema texts of the five events, byte for byte equal to those of Iceberg's Java classes.

Rules of this file:
- The order of attributes, the docs and the defaults are parts of the text.
- A named type is defined at its first use; later uses are its simple name.
- Types without a namespace are defined with ``"namespace":""`` and used by their simple name.

Source:
    Iceberg Kafka Connect 1.12.0, ``org.apache.iceberg.connect.events`` and
    ``org.apache.iceberg.avro.TypeToSchema``; recordings in ``tests/golden/control_events``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from control_schemas.errors import UnencodableEvent
from control_schemas.events import EventType
from control_schemas.limits import PARTITION_FIELDS_MAX, STRING_BYTES_MAX

EVENTS_NAMESPACE = "org.apache.iceberg.connect.events"
FILES_NAMESPACE = "org.apache.iceberg"

UUID = "uuid_fixed"
_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_FIXED = re.compile(r"fixed\[(\d{1,9})\]")

_RECORD_NAMES = {
    EventType.START_COMMIT: "StartCommit",
    EventType.DATA_WRITTEN: "DataWritten",
    EventType.DATA_COMPLETE: "DataComplete",
    EventType.COMMIT_TO_TABLE: "CommitToTable",
    EventType.COMMIT_COMPLETE: "CommitComplete",
}

Schema = Any  # JSON: a name, a union or an object


class PartitionType(NamedTuple):
    """One field of a partition type: the part that determines the schema text."""

    field_id: int
    name: str
    type: str


# Content file fields: name, field id, type, doc; a map is ("map", key id, value id, value type),
# a list ("list", element id, item type). The first four required ones have no union.
FILE_FIELDS: tuple[tuple[str, int, Any, str], ...] = (
    ("content", 134, "int", "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
    ("file_path", 100, "string", "Location URI with FS scheme"),
    ("file_format", 101, "string", "File format name: avro, orc, or parquet"),
    ("spec_id", 141, "int", "Partition spec ID"),
    ("partition", 102, None, "Partition data tuple, schema based on the partition spec"),
    ("record_count", 103, "long", "Number of records in the file"),
    ("file_size_in_bytes", 104, "long", "Total file size in bytes"),
    ("column_sizes", 108, ("map", 117, 118, "long"), "Map of column id to total size on disk"),
    (
        "value_counts",
        109,
        ("map", 119, 120, "long"),
        "Map of column id to total count, including null and NaN",
    ),
    ("null_value_counts", 110, ("map", 121, 122, "long"), "Map of column id to null value count"),
    (
        "nan_value_counts",
        137,
        ("map", 138, 139, "long"),
        "Map of column id to number of NaN values in the column",
    ),
    ("lower_bounds", 125, ("map", 126, 127, "bytes"), "Map of column id to lower bound"),
    ("upper_bounds", 128, ("map", 129, 130, "bytes"), "Map of column id to upper bound"),
    ("key_metadata", 131, "bytes", "Encryption key metadata blob"),
    ("split_offsets", 132, ("list", 133, "long"), "Splittable offsets"),
    ("equality_ids", 135, ("list", 136, "int"), "Equality comparison field IDs"),
    ("sort_order_id", 140, "int", "Sort order ID"),
    (
        "first_row_id",
        142,
        "long",
        "The first row ID assigned to the first row in the data file",
    ),
    (
        "referenced_data_file",
        143,
        "string",
        "Fully qualified location (URI with FS scheme) of a data file that all deletes reference",
    ),
    ("content_offset", 144, "long", "The offset in the file where the content starts"),
    ("content_size_in_bytes", 145, "long", "The length of referenced content stored in the file"),
)
REQUIRED_FILE_FIELDS = frozenset(
    {"file_path", "file_format", "partition", "record_count", "file_size_in_bytes"}
)


def schema_text(event_type: EventType, partition: Sequence[PartitionType]) -> str:
    """Return the schema text of an event.

    Args:
        event_type: the type of the event.
        partition: the partition type of its files; empty except for DataWritten.

    Raises:
        UnencodableEvent: Iceberg does not have the partition type.
    """
    uuid = {"type": "fixed", "name": UUID, "namespace": "", "size": 16, "logicalType": "uuid"}
    fields = [
        _field("id", uuid, 10500),
        _field("type", "int", 10501),
        _field("timestamp", _TIMESTAMP, 10502),
        _field("group_id", "string", 10503),
        _field("payload", _payload(event_type, partition), 10504),
    ]
    return _text(_record("Event", fields, namespace=EVENTS_NAMESPACE))


def _payload(event_type: EventType, partition: Sequence[PartitionType]) -> Schema:
    if event_type is EventType.START_COMMIT:
        fields = [_field("commit_id", UUID, 10200)]
    elif event_type is EventType.DATA_WRITTEN:
        fields = _data_written_fields(partition)
    elif event_type is EventType.DATA_COMPLETE:
        assignment = _record(
            "TopicPartitionOffset",
            [
                _field("topic", "string", 10700),
                _field("partition", "int", 10701),
                _optional("offset", "long", 10702),
                _optional("timestamp", _TIMESTAMP, 10703),
            ],
        )
        fields = [
            _field("commit_id", UUID, 10100),
            _optional("assignments", _list(assignment, 10102), 10101),
        ]
    elif event_type is EventType.COMMIT_TO_TABLE:
        fields = [
            _field("commit_id", UUID, 10400),
            _field("table_reference", _table_reference(), 10401),
            _optional("snapshot_id", "long", 10402),
            _optional("valid_through_ts", _TIMESTAMP, 10403),
        ]
    else:  # COMMIT_COMPLETE
        fields = [
            _field("commit_id", UUID, 10000),
            _optional("valid_through_ts", _TIMESTAMP, 10001),
        ]
    return _record(_RECORD_NAMES[event_type], fields)


def _data_written_fields(partition: Sequence[PartitionType]) -> list[Schema]:
    data = _file_record("GenericDataFile", _partition_record(partition), is_first=True)
    delete = _file_record("GenericDeleteFile", "PartitionData", is_first=False)
    return [
        _field("commit_id", UUID, 10300),
        _field("table_reference", _table_reference(), 10301),
        _optional("data_files", _list(data, 10303), 10302),
        _optional("delete_files", _list(delete, 10305), 10304),
    ]


def _table_reference() -> Schema:
    fields = [
        _field("catalog", "string", 10600),
        _field("namespace", _list("string", 10602), 10601),
        _field("name", "string", 10603),
        _optional("table_uuid", UUID, 10604),
    ]
    return _record("TableReference", fields)


def _file_record(name: str, partition: Schema, *, is_first: bool) -> Schema:
    fields: list[Schema] = []
    for field, field_id, kind, doc in FILE_FIELDS:
        if kind is None:
            schema: Schema = partition
        elif isinstance(kind, str):
            schema = kind
        elif kind[0] == "list":
            schema = _list(kind[2], kind[1])
        else:
            schema = _map(*kind[1:], is_first=is_first)
        form = _field if field in REQUIRED_FILE_FIELDS else _optional
        fields.append(form(field, schema, field_id, doc=doc))
    return _record(name, fields, namespace=FILES_NAMESPACE)


def _map(key_id: int, value_id: int, value: str, *, is_first: bool) -> Schema:
    """Return Iceberg's form of a map, a list of pairs: keys of Avro maps are always strings."""
    name = f"k{key_id}_v{value_id}"
    fields = [_field("key", "int", key_id), _field("value", value, value_id)]
    pair = _record(name, fields, namespace="") if is_first else name
    return {"type": "array", "items": pair, "logicalType": "map"}


# ---------------------------------------------------------------- partitions


def _partition_record(partition: Sequence[PartitionType]) -> Schema:
    if len(partition) > PARTITION_FIELDS_MAX:
        raise UnencodableEvent(f"{len(partition)} partition fields, over {PARTITION_FIELDS_MAX}")
    defined: set[str] = set()
    names: set[str] = set()
    fields = []
    for item in partition:
        schema = avro_type(item.type)
        if isinstance(schema, dict) and "name" in schema:
            if schema["name"] in defined:
                schema = schema["name"]
            else:
                defined.add(schema["name"])
        name = avro_name(item.name)
        own = item.name if name != item.name else ""
        names.add(name)
        fields.append(_optional(name, schema, item.field_id, iceberg_name=own))
    if not len(partition) == len(names) == len({item.field_id for item in partition}):
        raise UnencodableEvent("two partition fields have the same name or id")  # Java fails, too
    return _record("PartitionData", fields)


def avro_type(text: str) -> Schema:
    """Return the Avro type of an Iceberg primitive type.

    Raises:
        UnencodableEvent: not a primitive type for partition fields.
    """
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= len(_DECIMAL_BYTES) and scale <= precision:
            return {
                "type": "fixed",
                "name": f"decimal_{precision}_{scale}",
                "namespace": "",
                "size": _DECIMAL_BYTES[precision - 1],
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
    if (match := _FIXED.fullmatch(text)) and 0 < int(match[1]) <= STRING_BYTES_MAX:
        size = int(match[1])
        return {"type": "fixed", "name": f"fixed_{size}", "namespace": "", "size": size}
    raise UnencodableEvent(f"{text[:80]!r} is not a type of partition fields")


def _timestamp(unit: str, *, is_utc: bool) -> Schema:
    return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": is_utc}


_PRIMITIVES: dict[str, Schema] = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string")},
    "binary": "bytes",
    "uuid": UUID,
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": _timestamp("micros", is_utc=False),
    "timestamptz": _timestamp("micros", is_utc=True),
    "timestamp_ns": _timestamp("nanos", is_utc=False),
    "timestamptz_ns": _timestamp("nanos", is_utc=True),
}

# Bytes of the smallest two's complement number that holds each precision from 1 to 38.
_DECIMAL_BYTES = tuple((10**p - 1).bit_length() // 8 + 1 for p in range(1, 39))


def avro_name(name: str) -> str:
    """Return a partition field's name in Java's form: characters illegal in Avro are escaped.

    Java escapes UTF-16 code units: a character outside the Basic Multilingual Plane becomes two
    escapes.

    Raises:
        UnencodableEvent: the name is empty.
    """
    if not name:
        raise UnencodableEvent("a partition field has no name")
    utf16 = name.encode("utf-16-be", "surrogatepass")
    units = [chr(int.from_bytes(utf16[i : i + 2])) for i in range(0, len(utf16), 2)]
    return "".join(_legal(unit, is_first=i == 0) for i, unit in enumerate(units))


def _legal(unit: str, *, is_first: bool) -> str:
    category = unicodedata.category(unit)
    if unit == "_" or category in ("Lu", "Ll", "Lt", "Lm", "Lo"):
        return unit
    if category == "Nd":
        return "_" + unit if is_first else unit
    return f"_x{ord(unit):X}"


# ---------------------------------------------------------------- pieces


def _record(name: str, fields: list[Schema], *, namespace: str | None = None) -> Schema:
    inside = {} if namespace is None else {"namespace": namespace}
    return {"type": "record", "name": name, **inside, "fields": fields}


def _list(items: Schema, element_id: int) -> Schema:
    return {"type": "array", "items": items, "element-id": element_id}


def _field(name: str, schema: Schema, field_id: int, *, doc: str | None = None) -> Schema:
    docs = {} if doc is None else {"doc": doc}
    return {"name": name, "type": schema, **docs, "field-id": field_id}


def _optional(
    name: str, schema: Schema, field_id: int, *, doc: str | None = None, iceberg_name: str = ""
) -> Schema:
    docs = {} if doc is None else {"doc": doc}
    own = {"iceberg-field-name": iceberg_name} if iceberg_name else {}
    union = ["null", schema]
    return {"name": name, "type": union, **docs, "default": None, **own, "field-id": field_id}


# Jackson's escapes: upper-case hex, nothing else escaped.
_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    ord("\b"): r"\b",
    ord("\t"): r"\t",
    ord("\n"): r"\n",
    ord("\f"): r"\f",
    ord("\r"): r"\r",
    ord('"'): r"\"",
    ord("\\"): r"\\",
}


def _text(schema: Schema) -> str:
    """Format JSON like Jackson."""
    if isinstance(schema, dict):
        return "{" + ",".join(f"{_text(k)}:{_text(v)}" for k, v in schema.items()) + "}"
    if isinstance(schema, list):
        return "[" + ",".join(map(_text, schema)) + "]"
    if isinstance(schema, str):
        return f'"{schema.translate(_ESCAPES)}"'
    if schema is None:
        return "null"
    return str(schema).lower()  # a number or a boolean
