"""Confluent's AvroConverter, and Avro with the schema in a file."""

from __future__ import annotations

from typing import Any, ClassVar

from connect.converters.avro_data import AvroReader, avro_reader
from connect.converters.avro_resolution import resolved_reader
from connect.converters.avro_schema import AvroType, parse_avro
from connect.converters.registered import RegisteredConverter
from connect.converters.wire import Framed
from connect.gateways.schema_registry import RegisteredSchema
from connect.records import ConnectSchema


class AvroConverter(RegisteredConverter[AvroReader]):
    """Avro data: framed with the id of a schema in a registry, or bare with ``schema.file``.

    With ``use.latest.version`` data is resolved against the newest schema of the subject
    ``<topic>-key`` or ``<topic>-value``.
    """

    kind: ClassVar[str] = "AVRO"

    def compile(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> AvroReader:
        """See ``RegisteredConverter``."""
        writer = self._parsed(schema)
        if reader is None or reader.text == schema.text:
            return avro_reader(writer, self.options)
        return resolved_reader(writer, self._parsed(reader), self.options)

    def _parsed(self, schema: RegisteredSchema) -> AvroType:
        named = [inner.text for inner in self.references(schema).values()]
        return parse_avro(schema.text, named)

    def read(
        self, compiled: AvroReader, data: bytes, place: Framed
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``RegisteredConverter``."""
        return compiled.read(data, place.start)
