"""Readers of schemas that a converter keeps are bounded by the size of their schemas."""

from __future__ import annotations

from typing import Any

from connect.gateways.schema_registry.registry_client import RegisteredSchema
from connect.records.converters.registry.registered_schemas import RegisteredConverter


class Registry:
    """Has a schema for every id."""

    def by_id(self, schema: int, *, serialized: bool) -> RegisteredSchema:
        """Return one of 1,000 characters; id 9 is as large as all that are kept."""
        assert not serialized
        return RegisteredSchema("AVRO", "x" * (10_000 if schema == 9 else 1_000))

    def referenced(self, _: RegisteredSchema, *, serialized: bool) -> dict[str, RegisteredSchema]:
        """Return one reference."""
        assert not serialized
        return {"r": RegisteredSchema("AVRO", "y" * 1_000)}


class Counting(RegisteredConverter[int]):
    """Counts the schemas that it reads."""

    kind = "AVRO"
    kept_bytes_max = 10_000

    def __init__(self) -> None:
        super().__init__({"schema.registry.url": "http://localhost:1"}, "value")
        self.registry: Any = Registry()
        self.count = 0

    def compile(self, schema: RegisteredSchema, reader: RegisteredSchema | None) -> int:
        """Return how many were read."""
        assert reader is None
        self.references(schema)
        self.count += 1
        return self.count

    def read(self, *_: Any) -> Any:
        """Read nothing."""
        raise AssertionError


def test_readers_are_kept_by_the_size_of_their_schemas() -> None:
    """References count as well; the reader that was used last is always kept."""
    converter = Counting()
    for schema in (1, 2, 3, 4, 5, 1, 2, 3, 4, 5):
        converter.compiled("t", schema)
    assert converter.count == 5
    converter.compiled("t", 6)
    converter.compiled("t", 2)
    assert converter.count == 6
    converter.compiled("t", 1)
    assert converter.count == 7
    for _ in range(3):
        converter.compiled("t", 9)
    assert (converter.count, len(converter._built)) == (8, 1)
