"""Base of the converters with a schema registry or a schema file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from connect.errors import ConfigError
from connect.gateways.schema_registry.registry_client import (
    RegisteredSchema,
    SchemaNotFound,
    SchemaRegistry,
    schema_registry,
)
from connect.model.records import ConnectSchema
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.converters.converter import Headers, Role, boolean_option, refusal
from connect.records.converters.payload_errors import Malformed, NotJson, PayloadMismatch
from connect.records.converters.registry.wire_format import Framed, framed
from control_schemas.avro import BadSchema

READERS_KEPT: Final = 1000
FILE_BYTES_MAX: Final = 8 * 2**20
SCHEMA_FILE: Final = "schema.file"
REFUSALS: Final = (
    Malformed,
    BadSchema,
    SchemaNotFound,
    NotJson,
    PayloadMismatch,
    Unconvertible,
    RecursionError,
)
"""Errors about the record: the record or its schema cannot be read."""

Compiled = TypeVar("Compiled")


class RegisteredConverter(ABC, Generic[Compiled]):
    """Base class of the converters with schemas: finds schemas and caches compiled readers.

    Args:
        options: options of the converter, see ``connect.config.keys.registry_keys``.
        role: key, value or header.

    Attributes:
        kept_bytes_max: size of the schemas of the readers that are kept. A reader takes several
            times as much.

    Raises:
        ConfigError: an option is invalid, or the schema file cannot be read.
    """

    kind: ClassVar[str]
    has_indexes: ClassVar[bool] = False
    is_serialized: ClassVar[bool] = False
    kept_bytes_max: ClassVar[int] = 32 * 2**20

    def __init__(self, options: Mapping[str, str], role: Role) -> None:
        self._role: Role = role
        self.options = options
        self._built: OrderedDict[Hashable, tuple[Compiled, int]] = OrderedDict()
        self._built_bytes = self._referenced_bytes = 0
        self.registry: SchemaRegistry | None = None
        self._fixed: Compiled | None = None
        self._latest = boolean_option(options, "use.latest.version", default=False)
        path = options.get(SCHEMA_FILE)
        if path:
            if "schema.registry.url" in options:
                raise ConfigError(
                    f"{SCHEMA_FILE} and schema.registry.url exclude each other: set one of them",
                    code="converter_option",
                )
            self._fixed = self._of_file(path)
        else:
            self.registry = schema_registry(options)

    @property
    def is_resolving(self) -> bool:
        """Return whether data is resolved to a reader schema."""
        return self._latest

    @abstractmethod
    def compile(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> Compiled:
        """Build the reader of data with a schema.

        Args:
            schema: the writer schema.
            reader: the reader schema if ``use.latest.version`` is set.

        Raises:
            BadSchema: the schema is invalid.
        """

    @abstractmethod
    def read(
        self, compiled: Compiled, data: bytes, place: Framed
    ) -> tuple[ConnectSchema | None, Any]:
        """Read the datum of a message."""

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """See ``Converter``. An outage of the registry raises a RetriableError."""
        if data is None:
            return None, None
        try:
            place = self.place(headers, data)
            return self.read(self.compiled(topic, place.schema), data, place)
        except REFUSALS as error:
            raise refusal(self._role, *reported(error)) from None

    def place(self, headers: Headers, data: bytes) -> Framed:
        """Return the schema id and the position of the datum; see ``framed``."""
        if self._fixed is not None:
            return Framed(0, 0)
        return framed(self._role, headers, data, has_indexes=self.has_indexes)

    def compiled(self, topic: str, schema: int | str) -> Compiled:
        """Return the reader of data with a schema.

        Raises:
            BadSchema, SchemaNotFound: the schema is invalid or missing; rejects the record.
            RetriableError, ConfigError: the registry does not answer, or rejects the request.
        """
        if self._fixed is not None:
            return self._fixed
        assert self.registry is not None
        reader = self._reader_schema(topic)
        key = (schema, reader)
        if (kept := self._built.get(key)) is not None:
            self._built.move_to_end(key)
            return kept[0]
        writer = (
            self.registry.by_id(schema, serialized=self.is_serialized)
            if isinstance(schema, int)
            else self.registry.by_guid(schema, serialized=self.is_serialized)
        )
        if writer.kind != self.kind:
            raise SchemaNotFound(f"schema {schema} has the type {writer.kind}, not {self.kind}")
        self._referenced_bytes = 0
        compiled = self.compile(writer, reader)
        size = len(writer.text) + (len(reader.text) if reader else 0) + self._referenced_bytes
        self._built[key] = compiled, size
        self._built_bytes += size
        while len(self._built) > 1 and (
            len(self._built) > READERS_KEPT or self._built_bytes > self.kept_bytes_max
        ):
            self._built_bytes -= self._built.popitem(last=False)[1][1]
        return compiled

    def _reader_schema(self, topic: str) -> RegisteredSchema | None:
        if not self._latest:
            return None
        assert self.registry is not None
        schema = self.registry.version(f"{topic}-{self._role}", None, serialized=self.is_serialized)
        if schema.kind != self.kind:
            raise SchemaNotFound(
                f"subject {topic}-{self._role} has schemas of type {schema.kind}, not {self.kind}"
            )
        return schema

    def references(self, schema: RegisteredSchema) -> dict[str, RegisteredSchema]:
        """Return the references of a schema in dependency order."""
        if self.registry is None:
            return {}
        referenced = self.registry.referenced(schema, serialized=self.is_serialized)
        self._referenced_bytes += sum(len(each.text) for each in referenced.values())
        return referenced

    def _of_file(self, path: str) -> Compiled:
        try:
            if Path(path).stat().st_size > FILE_BYTES_MAX:
                raise ConfigError(
                    f"{SCHEMA_FILE} {path} has more than {FILE_BYTES_MAX} bytes",
                    code="converter_option",
                )
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{SCHEMA_FILE} {path} cannot be read ({type(error).__name__}); the file must "
                "exist on every worker",
                code="converter_option",
            ) from None
        try:
            return self.compile(RegisteredSchema(self.kind, text), None)
        except BadSchema as error:
            raise ConfigError(f"{SCHEMA_FILE} {path}: {error}", code="converter_option") from None


def reported(error: Exception) -> tuple[str, str]:
    """Return the code and message of an error about a record."""
    if isinstance(error, RecursionError):
        return "too_deep", "the value is nested too deeply"
    if isinstance(error, SchemaNotFound):
        return "unknown_schema", f"the schema registry does not have the schema: {error}"
    if isinstance(error, BadSchema):
        return "bad_schema", str(error)
    if isinstance(error, PayloadMismatch):
        return "schema_mismatch", str(error)
    if isinstance(error, Unconvertible):
        return error.reason, error.message
    code = getattr(error, "code", "bad_data")
    return code, f"not valid JSON: {error}" if code == "bad_json" else str(error)
