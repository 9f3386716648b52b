"""``docs/reference/converters/*.md`` from declarations.

``python -m connect.generated_docs.converter_pages [FOLDER]`` writes them.

Every page shows one record and the value it becomes; a test converts the record.
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
    """A converter's page.

    Attributes:
        class_name: full name.
        text: what it does, and what differs from Java's.
        options: of the example, without prefix.
        record: bytes of a record.
        value: what becomes of it, structs as objects.
        schema: what the registry has under id 1; None without registry.
        kind: the schema's kind.
        notes: what to know, a list.
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
- A message names its schema by `0` and a 4-byte id, by `1` and a 16-byte GUID, or by the header
  `__key_schema_id` / `__value_schema_id` that holds one of these.
- A registry that does not answer is waited for: the batch is tried again, and no record becomes a
  dead letter. A schema id that the registry does not know (40403) is an error of the record;
  refused credentials (401, 403) and an address without the API stop the task.
- With `use.latest.version` records go one by one through the reference path, which is slower.
"""
EXAMPLES: Final = (
    ConverterExample(
        "org.apache.kafka.connect.json.JsonConverter",
        "JSON documents; with `schemas.enable` (Kafka's default) envelopes of `schema` and "
        "`payload`. Both are decoded column by column.",
        {"schemas.enable": "false"},
        b'{"id": 1, "amount": 2.5, "tags": ["a"]}',
        {"id": 1, "amount": 2.5, "tags": ["a"]},
    ),
    ConverterExample(
        "org.apache.kafka.connect.storage.StringConverter",
        "Text. A text alone is no row of a table: a transformation such as `ParseJson` or "
        "`HoistField` makes one of it.",
        {},
        b"some text",
        "some text",
    ),
    ConverterExample(
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "Bytes as they are. Bytes alone are no row of a table: a transformation such as "
        "`HoistField` makes one of them.",
        {},
        b"\x01\x02",
        {"bytes": "AQI="},
    ),
    ConverterExample(
        "org.apache.kafka.connect.converters.LongConverter",
        "One big-endian number, mostly for keys. So do `ShortConverter`, `IntegerConverter`, "
        "`FloatConverter`, `DoubleConverter` and `BooleanConverter`.",
        {},
        b"\0\0\0\0\0\0\0\5",
        5,
    ),
    ConverterExample(
        "io.confluent.connect.avro.AvroConverter",
        "Avro with a schema registry, or with the schema in `schema.file`. Decoded column by "
        "column. Values are those of Java's AvroData.",
        _REGISTRY,
        b"\0\0\0\0\1\2\6Ann",
        {"id": 1, "name": "Ann"},
        '{"type":"record","name":"Person","fields":[{"name":"id","type":"long"},'
        '{"name":"name","type":"string"}]}',
        notes=_SHARED
        + """\
- A schema that contains itself is refused, so are schemas of more than 64 levels.
- `timestamp-micros`, `timestamp-nanos` and `time-micros` are plain numbers, as in Java; in a
  timestamp or time column they are read in their unit, where Java reads milliseconds.
- A union of several types is a struct with a field for each, of which one is set.
- Bytes after the datum, and numbers outside of a `connect.type`, are refused.
""",
    ),
    ConverterExample(
        "io.confluent.connect.protobuf.ProtobufConverter",
        "Protobuf with a schema registry. Decoded column by column. Values are those of Java's "
        "ProtobufData.",
        _REGISTRY,
        b"\0\0\0\0\1\0\x08\1\x12\3Ann",
        {"id": 1, "name": "Ann"},
        'syntax = "proto3"; message Person { int64 id = 1; string name = 2; }',
        "PROTOBUF",
        _SHARED
        + """\
- A message type that contains itself is refused, so is `google.protobuf.Struct`.
- A `google.protobuf.Timestamp` keeps its microseconds, which Java cuts; unsigned numbers keep
  their value, where Java's 64-bit ones wrap.
- `google.type.Date`, `google.type.TimeOfDay`, `confluent.type.Decimal` and wrapped values that
  are set, and fields out of the order of their numbers, are read record by record.
""",
    ),
    ConverterExample(
        "io.confluent.connect.json.JsonSchemaConverter",
        "JSON with a JSON Schema in a registry, or in `schema.file`. Decoded column by column.",
        _REGISTRY,
        b'\0\0\0\0\1{"id": 1, "name": "Ann"}',
        {"id": 1, "name": "Ann"},
        '{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"}}}',
        "JSON",
        _SHARED
        + """\
- Values are held to the types of the schema, not to its other rules (`pattern`, `minimum`).
- Nothing is fetched for a `$ref`: it names a part of the schema or a reference that the
  registry knows. A schema that contains itself is refused.
""",
    ),
)


def render(example: ConverterExample) -> str:
    """One page."""
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
        "Written by `make docs`; do not edit.\n",
        f"`{example.class_name}`, `{short}` or `{short.removesuffix('Converter')}`.\n",
        example.text + "\n",
        "## Example\n",
        f"```json\n{json.dumps(config, indent=2)}\n```\n",
    ]
    if example.schema is not None:
        parts.append(f"With schema 1\n\n```\n{example.schema}\n```\n")
    displayed = example.record.decode("ascii", "replace")
    is_text = displayed.isprintable() and "\ufffd" not in displayed
    record = displayed if is_text else base64.b64encode(example.record).decode() + " (base64)"
    parts.append(f"the record\n\n```\n{record}\n```\n\nbecomes\n")
    parts.append(f"```json\n{json.dumps(example.value)}\n```\n")
    if example.notes:
        parts.append("## To know\n")
        parts.append(example.notes)
    parts.append("## Keys, below `key.converter.` or `value.converter.`\n")
    parts.append(key_table(keys))
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Write the pages."""
    folder = Path(arguments[0]) if arguments else DEFAULT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for example in EXAMPLES:
        (folder / example.page).write_text(render(example), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
