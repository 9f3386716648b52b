"""One input through the column path and the record path, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from connect.config.connector import ConnectorConfig
from tests.differential.support import rows_of, run_batches
from worker.batch.descriptors import BatchResult
from worker.pipeline.pipeline import PipelineLimits, TablePlan

ALL = {"errors.tolerance": "all"}


def seen(result: BatchResult, tables: Sequence[str]) -> dict[str, Any]:
    """What an observer of a batch can tell, in an order that does not depend on the path."""
    return {
        "error": None if result.error is None else reported(result.error),
        "rows": {
            table: sorted(map(repr, rows_of(result, table))) if result.is_usable else []
            for table in tables
        },
        "progress": dict(result.progress) if result.is_usable else {},
        "letters": [(d.record, *reported(d.error)) for d in result.dead_letters],
        "tables": {request.table for request in result.table_requests},
        "schemas": {request.table for request in result.schema_requests},
        "losses": result.losses,
        "conflicts": dict(result.conflicts),
    }


def reported(error: Any) -> tuple[Any, ...]:
    at = error.coordinates
    return error.stage, error.code, error.message, at.get("offset"), at.get("column")


def both(
    connector: ConnectorConfig,
    plans: Sequence[TablePlan],
    batches: Sequence[pa.RecordBatch],
    limits: PipelineLimits | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same records through both paths."""
    names = [p.name for p in plans]
    by_column = run_batches(connector, plans, batches, limits=limits)
    by_record = run_batches(connector, plans, batches, limits=limits, reference_only=True)
    return seen(by_column, names), seen(by_record, names)
