"""Counts the outcomes of the records of a Spark task, by source partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.model.layout import TopicPartition
from worker.batch.blocks import Block
from worker.batch.descriptors import PartitionProgress, progress_row
from worker.batch.pipeline_spec import PipelineSpec

Outcome = npt.NDArray[np.int8]

WRITTEN: Final = 0
DROPPED: Final = 1
DEAD: Final = 2

BY_COLUMN: Final = 0
ALONE: Final = ("", "no_column_form", "not_decoded", "not_converted")
"""Why a record took the record path, by code."""
NO_COLUMN_FORM: Final = ALONE.index("no_column_form")
NOT_DECODED: Final = ALONE.index("not_decoded")
NOT_CONVERTED: Final = ALONE.index("not_converted")


class ProgressCounter:
    """Counts records and takes the newest timestamp of each source partition.

    Args:
        spec: of the Spark task.
        now_ms: start of the task; timestamps that are too far before it are ignored.
    """

    def __init__(self, spec: PipelineSpec, now_ms: int) -> None:
        self._valid_through_ms = spec.valid_through_ms
        self._believed_until_ms = now_ms + spec.config.vtts_future_max_ms
        self._progress: dict[TopicPartition, PartitionProgress] = {}

    def add(self, block: Block, outcome: Outcome, alone: Outcome | None = None) -> None:
        """Count a block.

        Args:
            block: the records.
            outcome: ``WRITTEN``, ``DROPPED`` or ``DEAD`` for each record.
            alone: ``BY_COLUMN``, or why the record took the record path; None if none did.
        """
        masks = {} if alone is None else {n: alone == code for code, n in enumerate(ALONE) if code}
        masks = {reason: mask for reason, mask in masks.items() if mask.any()}
        stamps = block.timestamps_ms
        claimed_ms = pa.scalar(self._valid_through_ms, pa.int64())
        is_dated = pc.greater_equal(stamps, 0)  # -1 means that there is none
        is_late = pc.and_(is_dated, pc.less_equal(stamps, claimed_ms))
        is_future = pc.fill_null(pc.greater(stamps, self._believed_until_ms), False)  # noqa: FBT003 - Arrow's
        rows = pa.table(
            {
                "topic": block.table["topic"],
                "partition": block.table["partition"],
                "timestamp": pc.if_else(is_future, pa.scalar(None, pa.int64()), stamps),
                "future": is_future.cast(pa.int64()),
                "late": pc.fill_null(is_late, False).cast(pa.int64()),  # noqa: FBT003 - Arrow's
                "dropped": pa.array(outcome == DROPPED).cast(pa.int64()),
                "dead": pa.array(outcome == DEAD).cast(pa.int64()),
                "bytes": block.sizes,
                **{reason: pa.array(mask).cast(pa.int64()) for reason, mask in masks.items()},
            }
        )
        grouped = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
            [
                ("timestamp", "max"),
                ("future", "sum"),
                ("late", "sum"),
                ("dropped", "sum"),
                ("dead", "sum"),
                ("bytes", "sum"),
                ([], "count_all"),
                *((reason, "sum") for reason in masks),
            ]
        )
        for row in grouped.to_pylist():
            tp = TopicPartition(row["topic"], row["partition"])
            read, dropped, dead = row["count_all"], row["dropped_sum"], row["dead_sum"]
            written, stamp = read - dropped - dead, row["timestamp_max"]
            progress = PartitionProgress(
                *(read, dropped, dead, written, stamp, row["bytes_sum"]),
                future=row["future_sum"],
                late=row["late_sum"],
                alone={reason: row[f"{reason}_sum"] for reason in masks},
            )
            self._progress[tp] = self._progress.get(tp, PartitionProgress()).plus(progress)

    def descriptors(self) -> Iterator[tuple[str, bytes]]:
        """Return a descriptor for each source partition."""
        for tp, progress in self._progress.items():
            yield progress_row(tp, progress)
