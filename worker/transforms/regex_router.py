"""``RegexRouter`` by columns, and other steps that change only the topic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.errors import RecordError
from connect.model.records import SinkRecord
from connect.records.transforms.transform_chain import ChainedTransform
from worker.transforms.rows import ChainPlan, Rows, numbered, valid


class TopicSteps:
    """Changes the topic; the record path's transformation runs once for each distinct topic.

    Args:
        link: the transformation.
        grain_ms: milliseconds of timestamps that give one topic; 0 where timestamps do not count.
    """

    def __init__(self, link: ChainedTransform, grain_ms: int = 0) -> None:
        self._link = link
        self._grain_ms = grain_ms

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del chain_plan

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        codes, names = distinct(rows.current_topics)
        stamps: list[int | None] = [None] * len(names)
        if self._grain_ms:
            timestamps = rows.origins.column("timestamp")
            if timestamps.null_count:
                rows.suspect(~valid(timestamps))
            grains = pc.fill_null(timestamps, 0).to_numpy(zero_copy_only=False) // self._grain_ms
            first = int(grains.min())  # there are rows
            different, inner = numbered(grains - first, int(grains.max()) - first + 1)
            different = different + first
            both, codes = numbered(codes * len(different) + inner, len(names) * len(different) + 1)
            names = [names[i // len(different)] for i in both.tolist()]
            stamps = [int(different[i % len(different)]) * self._grain_ms for i in both.tolist()]
        changed = [self._changed(name, stamp) for name, stamp in zip(names, stamps, strict=True)]
        topics = pa.array(changed, pa.string()).take(pa.array(codes))
        if topics.null_count:
            rows.suspect(~valid(topics))
            topics = topics.fill_null("")
        rows.topics = topics

    def _changed(self, name: str, stamp: int | None) -> str | None:
        try:
            changed = self._link.apply(SinkRecord(name, 0, 0, stamp, value={}))
        except RecordError:
            return None
        return changed.topic if isinstance(changed, SinkRecord) else None


def distinct(topics: pa.Array) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the index of each row's topic, and the topics."""
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes, encoded.dictionary.to_pylist()
