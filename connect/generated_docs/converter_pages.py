"""Generates the pages of ``docs/reference/converters``, one per converter.

Each page shows a record and its converted value. A test converts the record.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from connect.generated_docs.configuration_page import key_table
from connect.validation.plugins import BUILT_IN, OWN_CONVERTER_KEYS

DEFAULT_FOLDER: Final = Path("docs/reference/converters")
_REGISTRY: Final = {"schema.registry.url": "http://registry:8081"}


@dataclass(frozen=True, slots=True)
class ConverterExample:
    """The content of a converter's page.

    Attributes:
        class_name: full class name.
        text: description of the converter.
        options: options of the example, without prefix.
        record: the bytes of the example record.
        value: the converted value, with structs as objects.
        schema: the registry's schema with id 1; None without registry.
        kind: type of the schema.
        notes: a list of notes.
    """

    class_name: str
    text: str
    options: Mapping[str, str]
    record: bytes
    value: Any
    schema: str | None = None
    kind: str = "AVRO"
    notes: str = ""

    @property
    def page(self) -> str:
        """Name of the page's file."""
        return self.class_name.rpartition(".")[2].removesuffix("Converter").lower() + ".md"


_SHARED: Final = """\
- A message begins with `0` and a 4-byte schema id, or with `1` and a 16-byte GUID. Alternatively,
  the header `__key_schema_id` or `__value_schema_id` contains one of these.
- If the registry does not answer, the batch is retried, and no record becomes a dead letter. If the
  registry does not know a schema id (40403), the record is rejected. If the registry rejects the
  credentials (401, 403), or the address is not a registry, the task fails.
- With `use.latest.version`, the converter processes one record at a time, which is slower.
"""
EXAMPLES: Final = (
    ConverterExample(
        "org.apache.kafka.connect.json.JsonConverter",
        "Converts JSON documents. With `schemas.enable` (the default, as in Kafka), a record is an "
        "envelope with `schema` and `payload`. Both forms are decoded as columns.",
        {"schemas.enable": "false"},
        b'{"id": 1, "amount": 2.5, "tags": ["a"]}',
        {"id": 1, "amount": 2.5, "tags": ["a"]},
    ),
    ConverterExample(
        "org.apache.kafka.connect.storage.StringConverter",
        "Converts text. A string alone cannot be a row of a table: use a transformation such as "
        "`ParseJson` or `HoistField`.",
        {},
        b"some text",
        "some text",
    ),
    ConverterExample(
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "Passes bytes unchanged. Bytes alone cannot be a row of a table: use a transformation such "
        "as `HoistField`.",
        {},
        b"\x01\x02",
        {"bytes": "AQI="},
    ),
    ConverterExample(
        "org.apache.kafka.connect.converters.LongConverter",
        "Converts a big-endian number, mainly for keys. `ShortConverter`, `IntegerConverter`, "
        "`FloatConverter`, `DoubleConverter` and `BooleanConverter` convert the other types.",
        {},
        b"\0\0\0\0\0\0\0\5",
        5,
    ),
    ConverterExample(
        "io.confluent.connect.avro.AvroConverter",
        "Converts Avro data with a schema registry, or with the schema in `schema.file`. The data "
        "is decoded as columns. The values are those of Java's AvroData.",
        _REGISTRY,
        b"\0\0\0\0\1\2\6Ann",
        {"id": 1, "name": "Ann"},
        '{"type":"record","name":"Person","fields":[{"name":"id","type":"long"},'
        '{"name":"name","type":"string"}]}',
        notes=_SHARED
        + """\
- Recursive schemas and schemas with more than 64 levels are rejected.
- `timestamp-micros`, `timestamp-nanos` and `time-micros` are plain numbers, as in Java. For
  timestamp and time columns they are converted with their unit; Java reads them as milliseconds.
- A union of several types becomes a struct with one field per type, of which one is set.
- Records with bytes after the datum, or with numbers out of range of a `connect.type`, are
  rejected.
""",
    ),
    ConverterExample(
        "io.confluent.connect.protobuf.ProtobufConverter",
        "Converts Protobuf data with a schema registry. The data is decoded as columns. The values "
        "are those of Java's ProtobufData.",
        _REGISTRY,
        b"\0\0\0\0\1\0\x08\1\x12\3Ann",
        {"id": 1, "name": "Ann"},
        'syntax = "proto3"; message Person { int64 id = 1; string name = 2; }',
        "PROTOBUF",
        _SHARED
        + """\
- Recursive message types are rejected, including `google.protobuf.Struct`.
- A `google.protobuf.Timestamp` keeps its microseconds, which Java truncates. Unsigned numbers keep
  their value; in Java, 64-bit numbers wrap.
- Messages with `google.type.Date`, `google.type.TimeOfDay`, `confluent.type.Decimal` or wrapper
  values, or with fields that are not in the order of their numbers, are processed one at a time.
""",
    ),
    ConverterExample(
        "io.confluent.connect.json.JsonSchemaConverter",
        "Converts JSON with a JSON Schema in a registry, or in `schema.file`. The data is decoded "
        "as columns.",
        _REGISTRY,
        b'\0\0\0\0\1{"id": 1, "name": "Ann"}',
        {"id": 1, "name": "Ann"},
        '{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"}}}',
        "JSON",
        _SHARED
        + """\
- Values are checked against the types of the schema, but not against its other rules (`pattern`,
  `minimum`).
- A `$ref` must refer to a part of the schema or to a reference in the registry. It is never fetched
  from a URL. Recursive schemas are rejected.
""",
    ),
)


def render(example: ConverterExample) -> str:
    """Return the page of a converter."""
    plugin = BUILT_IN.find(example.class_name, "converter")
    assert plugin is not None
    short = example.class_name.rpartition(".")[2]
    keys = [key for key in plugin.keys if key.name != "converter.type"]
    keys += [key for key in OWN_CONVERTER_KEYS if key not in keys]
    config = {"value.converter": example.class_name} | {
        f"value.converter.{name}": value for name, value in example.options.items()
    }
    parts = [
        f"# {short}\n",
        "Generated by `make docs`; do not edit.\n",
        f"Class: `{example.class_name}`, `{short}` or `{short.removesuffix('Converter')}`.\n",
        example.text + "\n",
        "## Example\n",
        f"```json\n{json.dumps(config, indent=2)}\n```\n",
    ]
    if example.schema is not None:
        parts.append(f"Schema with id 1:\n\n```\n{example.schema}\n```\n")
    displayed = example.record.decode("ascii", "replace")
    is_text = displayed.isprintable() and "\ufffd" not in displayed
    record = displayed if is_text else base64.b64encode(example.record).decode() + " (base64)"
    parts.append(f"Record:\n\n```\n{record}\n```\n\nConverted value:\n")
    parts.append(f"```json\n{json.dumps(example.value)}\n```\n")
    if example.notes:
        parts.append("## Notes\n")
        parts.append(example.notes)
    parts.append("## Configuration keys with the prefix `key.converter.` or `value.converter.`\n")
    parts.append(key_table(keys))
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Write the pages to a folder."""
    folder = Path(arguments[0]) if arguments else DEFAULT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        (folder / example.page).write_text(render(example), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
