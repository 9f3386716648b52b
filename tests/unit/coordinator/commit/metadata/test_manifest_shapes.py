"""Prepared forms of manifests: they are kept by their size."""

from __future__ import annotations

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from coordinator.commit.metadata.manifests import ManifestShapes


def schema_of(characters: int) -> Schema:
    """A schema with a long documentation."""
    return Schema(NestedField(1, "id", LongType(), required=False, doc="x" * characters))


def test_large_schemas_replace_each_other() -> None:
    """Owners of tables decide how large their schemas are."""
    shapes = ManifestShapes(100_000)
    large = [schema_of(30_000) for _ in range(10)]
    for schema in large:
        shapes.of(UNPARTITIONED_PARTITION_SPEC, schema, 2)
        assert shapes.kept_bytes <= 100_000
    last = shapes.of(UNPARTITIONED_PARTITION_SPEC, large[-1], 2)
    assert shapes.of(UNPARTITIONED_PARTITION_SPEC, large[-1], 2) is last
    huge = schema_of(200_000)
    assert len(shapes.of(UNPARTITIONED_PARTITION_SPEC, huge, 2)[1]["schema"]) > 200_000
    assert shapes.kept_bytes == 0


def test_small_schemas_are_kept() -> None:
    """By schema and format version; not more than a number of them."""
    shapes = ManifestShapes()
    schema = schema_of(1)
    first = shapes.of(UNPARTITIONED_PARTITION_SPEC, schema, 2)
    assert shapes.of(UNPARTITIONED_PARTITION_SPEC, schema, 2) is first
    assert shapes.of(UNPARTITIONED_PARTITION_SPEC, schema, 3) is not first
