"""Confluent's JsonSchemaConverter, and JSON with a JSON Schema file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from connect.gateways.schema_registry.registry_client import RegisteredSchema
from connect.model.records import ConnectSchema
from connect.records.converters.converter import Role, boolean_option
from connect.records.converters.json.json_schema import ReadableSchema
from connect.records.converters.json.json_schema_data import readable_json_schema
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.registry.registered_schemas import RegisteredConverter
from connect.records.converters.registry.wire_format import Framed


class JsonSchemaConverter(RegisteredConverter[ReadableSchema]):
    """Converts JSON documents with a schema id of a registry, or bare ones with ``schema.file``."""

    kind: ClassVar[str] = "JSON"

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        self._by_required = boolean_option(options, "use.optional.for.nonrequired", default=False)
        self._reader = JsonReader(decimals=True)
        super().__init__(options, role)

    def compile(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> ReadableSchema:
        """See ``RegisteredConverter``. A newer schema reads older documents without resolution."""
        chosen = reader or schema
        named = {name: inner.text for name, inner in self.references(chosen).items()}
        return readable_json_schema(chosen.text, named, optional_unless_required=self._by_required)

    def read(
        self, compiled: ReadableSchema, data: bytes, place: Framed
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``RegisteredConverter``."""
        value = compiled.read(self._reader.read(data[place.start :]))
        return (None, None) if value is None else (compiled.schema, value)
