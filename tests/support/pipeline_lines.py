"""Records for a pipeline, and the ids in its tables."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.model.layout import TopicPartition
from tests.differential.support import rows_of
from worker.batch.descriptors import (
    BatchResult,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)


TP = TopicPartition("t", 0)


def lines(*kinds: Any) -> list[bytes | None]:
    """One record per kind, numbered from 1."""
    return [json.dumps({"id": i, "kind": kind}).encode() for i, kind in enumerate(kinds, 1)]


def ids(result: BatchResult, table: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(result, table))
