"""Confluent's AvroConverter, and Avro with a schema file."""

from __future__ import annotations

from typing import Any, ClassVar

from connect.gateways.schema_registry.registry_client import RegisteredSchema
from connect.model.records import ConnectSchema
from connect.records.converters.avro.avro_data import AvroReader, avro_reader
from connect.records.converters.avro.avro_resolution import resolved_reader
from connect.records.converters.avro.avro_schema import AvroType, parse_avro
from connect.records.converters.registry.registered_schemas import RegisteredConverter
from connect.records.converters.registry.wire_format import Framed


class AvroConverter(RegisteredConverter[AvroReader]):
    """Converts Avro data with a schema id of a registry, or bare Avro data with ``schema.file``.

    With ``use.latest.version``, data is resolved to the latest schema of the subject
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
