"""The records of a read that is too small for a Spark job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Records in the memory of the driver.

    Attributes:
        batches: with the columns of ``PipelineSpec.columns``.
        as_rows: returns the same records as rows that Spark reads.
    """

    batches: tuple[pa.RecordBatch, ...]
    as_rows: Callable[[], DataFrame]


BatchRows: TypeAlias = DataFrame | FewRecords
"""The records of one micro-batch."""
