"""The records of a read that is too small for a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Records in the memory of the driver.

    Attributes:
        batches: with the columns of ``PipelineSpec.columns``.
        ends: where the read of each partition has ended. This is after the requested end if the
            consumer has returned more records.
        as_rows: returns the same records as rows that Spark reads.
    """

    batches: tuple[pa.RecordBatch, ...]
    ends: Mapping[TopicPartition, int]
    as_rows: Callable[[], DataFrame]


BatchRows: TypeAlias = DataFrame | FewRecords
"""The records of one micro-batch."""
