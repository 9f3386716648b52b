"""Confluent's ProtobufConverter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from connect.gateways.schema_registry.registry_client import RegisteredSchema
from connect.model.records import ConnectSchema
from connect.records.converters.converter import Role, boolean_option
from connect.records.converters.protobuf.protobuf_data import (
    ProtobufOptions,
    ProtobufReader,
    message_at,
    protobuf_reader,
)
from connect.records.converters.protobuf.protobuf_schema import pool_of
from connect.records.converters.registry.registered_schemas import RegisteredConverter
from connect.records.converters.registry.wire_format import Framed

_READERS_KEPT: Final = 256


@dataclass(slots=True)
class ProtobufFile:
    """A Protobuf schema: one file with its message types.

    Attributes:
        file: the file descriptor.
        options: options of the converter.
    """

    file: Any
    options: ProtobufOptions
    _readers: OrderedDict[tuple[int, ...], ProtobufReader] = field(default_factory=OrderedDict)

    def reader(self, indexes: tuple[int, ...]) -> ProtobufReader:
        """Return the reader of the message type at a position in the file.

        Raises:
            Malformed: the file has no message type at this position.
            BadSchema: no Connect schema corresponds to the message type.
        """
        reader = self._readers.get(indexes)
        if reader is None:
            reader = protobuf_reader(message_at(self.file, indexes), self.options)
            self._readers[indexes] = reader
            if len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
        return reader


class ProtobufConverter(RegisteredConverter[ProtobufFile]):
    """Converts Protobuf data with a schema id and the position of the message type in it."""

    kind: ClassVar[str] = "PROTOBUF"
    has_indexes: ClassVar[bool] = True
    is_serialized: ClassVar[bool] = True

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        self._data = ProtobufOptions(
            enhanced=boolean_option(options, "enhanced.protobuf.schema.support", default=False),
            index_unions=boolean_option(options, "generate.index.for.unions", default=True),
            flatten_unions=boolean_option(options, "flatten.unions", default=False),
            enums_as_numbers=boolean_option(options, "int.for.enums", default=False),
            wrapped_nullables=boolean_option(options, "wrapper.for.nullables", default=False),
            null_when_absent=boolean_option(options, "optional.for.nullables", default=False),
        )
        super().__init__(options, role)

    def compile(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> ProtobufFile:
        """See ``RegisteredConverter``. A newer file reads older messages without resolution."""
        chosen = reader or schema
        references = {name: inner.text for name, inner in self.references(chosen).items()}
        _, file = pool_of(chosen.text, references)
        return ProtobufFile(file, self._data)

    def read(
        self, compiled: ProtobufFile, data: bytes, place: Framed
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``RegisteredConverter``."""
        return compiled.reader(place.indexes).read(data, place.start)
