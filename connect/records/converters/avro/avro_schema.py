"""Parsing of Avro schemas from registries and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson
from control_schemas.avro import (
    PRECISION_DEFAULT,
    AvroField,
    AvroType,
    BadSchema,
    Bounds,
    SchemaParser,
)

__all__ = ["PRECISION_DEFAULT", "AvroField", "AvroType", "BadSchema", "parse_avro"]

NAMESPACE: Final = "io.confluent.connect.avro"
UNION_NAME: Final = f"{NAMESPACE}.Union"
SCHEMA_BYTES_MAX: Final = 4 * 2**20
_BOUNDS: Final = Bounds(depth_max=64, weight_max=50_000, fixed_bytes_max=2**20)


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """Parse a schema.

    Args:
        text: the schema's JSON.
        references: schemas that define names used in the text, in dependency order.

    Raises:
        BadSchema: the schema is invalid.
    """
    parser = SchemaParser(_BOUNDS)
    size = 0
    for source in (*references, text):
        size += len(source)
        if size > SCHEMA_BYTES_MAX:
            raise BadSchema(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
        try:
            document = JsonReader(decimals=False).read(source.encode("utf-8", "replace"))
        except NotJson as error:
            raise BadSchema(f"the schema is not JSON: {error}") from None
        schema = parser.parse(document)
    return schema
