"""Steps about topics, and predicates that read only the topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.errors import RecordError
from connect.model.records import SinkRecord
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform_chain import Link
from worker.transforms.rows import ChainPlan, ColumnStep, Mask, Rows, merged_types, numbered, valid

_DAY_MS: Final = 86_400_000
# the smallest letter of a pattern gives the instants that it writes alike
_GRAINS_MS: Final = (("S", 1), ("s", 1_000), ("m", 60_000), ("HKkha", 3_600_000))


class TopicSteps:
    """Changes the topic; the record path's transformation runs once for each distinct topic.

    Args:
        link: the transformation.
        grain_ms: milliseconds of timestamps that give one topic; 0 where timestamps do not count.
    """

    def __init__(self, link: Link, grain_ms: int = 0) -> None:
        self._link = link
        self._grain_ms = grain_ms

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del wanted

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        codes, names = distinct(rows.current_topics)
        stamps: list[int | None] = [None] * len(names)
        if self._grain_ms:
            given = rows.origins.column("timestamp")
            if given.null_count:
                rows.suspect(~valid(given))
            grains = pc.fill_null(given, 0).to_numpy(zero_copy_only=False) // self._grain_ms
            first = int(grains.min())  # there are rows
            different, inner = numbered(grains - first, int(grains.max()) - first + 1)
            different = different + first
            both, codes = numbered(codes * len(different) + inner, len(names) * len(different) + 1)
            names = [names[i // len(different)] for i in both.tolist()]
            stamps = [int(different[i % len(different)]) * self._grain_ms for i in both.tolist()]
        found = [self._changed(name, stamp) for name, stamp in zip(names, stamps, strict=True)]
        topics = pa.array(found, pa.string()).take(pa.array(codes))
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


def timestamp_topics(link: Link, options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``TimestampRouter``."""
    letters = DateFormat(options["timestamp.format"] or "").letters
    grain = next((g for some, g in _GRAINS_MS if not letters.isdisjoint(some)), _DAY_MS)
    return TopicSteps(link, grain)


class Filter:
    """Drops the rows that a predicate selects; all rows without a predicate."""

    def __init__(self, test: Callable[[SinkRecord], bool] | None) -> None:
        self._test = test

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del wanted

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        rows.drop(np.ones(rows.count, np.bool_) if self._test is None else tested(self._test, rows))


class Conditional:
    """A step for the rows that a predicate selects; mixed blocks go record by record."""

    def __init__(self, inner: ColumnStep, test: Callable[[SinkRecord], bool]) -> None:
        self._inner = inner
        self._test = test

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        before, key = dict(wanted.fields), wanted.key
        self._inner.plan(wanted)
        wanted.fields = {**before, **wanted.fields}
        if key is not None:  # some rows keep theirs
            wanted.key = key if wanted.key is None else merged_types(wanted.key, key)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        hit = tested(self._test, rows) & ~rows.dropped
        if not hit.any():
            return
        rows.suspect(~hit)
        self._inner.apply(rows)


def tested(test: Callable[[SinkRecord], bool], rows: Rows) -> Mask:
    """Return a predicate's answer for each row, of records that are no tombstones."""
    codes, names = distinct(rows.current_topics)
    answers = [test(SinkRecord(name, 0, 0, None, value={})) for name in names]
    return np.array(answers, np.bool_)[codes]


def distinct(topics: pa.Array) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the index of each row's topic, and the topics."""
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes, encoded.dictionary.to_pylist()
