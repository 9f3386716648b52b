"""``ParseTimestamp`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.value_paths import steps as path_of
from worker.convert.scalars import integers
from worker.convert.texts import parse_timestamps
from worker.convert.typed_columns import DATETIME
from worker.transforms.date_format import read_texts
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Mask,
    Rows,
    at_path,
    put_at,
    valid,
    with_type_at,
)

Whole = npt.NDArray[np.int64]


_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


# years 1 to 9999, beyond which Python has no datetime
_DATETIME_MIN_US: Final = -62_135_596_800_000_000


_DATETIME_MAX_US: Final = 253_402_300_799_999_999


# after 2036 Arrow has no summer time
_ZONES_END_US: Final = 2_114_380_800_000_000


def parse_timestamp(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``ParseTimestamp``."""
    return _Parse(options)


class _Parse:
    """Converts texts or numbers at some paths to instants."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._paths = [path_of(path) for path in options["fields"]]
        form = options["format"]
        self._is_epoch = form == "epoch"
        self._format = None if form in ("iso8601", "epoch") else DateFormat(form)
        self._unit = _MICROS[options["unit"]]
        self._zone = options["timezone"]

    def plan(self, chain_plan: ChainPlan) -> None:
        guess = pa.int64() if self._is_epoch else pa.string()
        for path in self._paths:
            chain_plan.fields[path[0]] = with_type_at(
                chain_plan.fields.get(path[0]), path[1:], guess
            )

    def apply(self, rows: Rows) -> None:
        rows.lose_schema()
        for path in self._paths:
            column = at_path(rows.columns, path, rows.count)
            if column.null_count == rows.count:
                continue
            if rows.had_schema and len(path) > 1:
                rows.suspect_all()  # the structs on the way become maps
                return
            timestamps, ambiguous = self._parsed(column)
            rows.suspect(ambiguous & valid(column))
            put_at(rows.columns, path, timestamps, rows.count, makes=False)

    def _parsed(self, column: pa.Array) -> tuple[pa.Array, Mask]:
        kinds, kind = pa.types, column.type
        null = ~valid(column)
        if self._is_epoch and (kinds.is_integer(kind) or kinds.is_duration(kind)):
            numbers = integers(column.cast(pa.int64()))
            ambiguous = (numbers > _DATETIME_MAX_US // self._unit) | (
                numbers < _DATETIME_MIN_US // self._unit
            )
            return _instants(np.where(ambiguous, 0, numbers) * self._unit, null, ambiguous)
        if self._is_epoch or not kinds.is_string(kind):
            return pa.nulls(len(column), DATETIME), ~null
        if self._format is None:
            return self._of_iso(column, null)
        millis, ambiguous = read_texts(self._format, column, strict=True)
        ambiguous |= np.abs(millis) > _DATETIME_MAX_US // 1000
        micros = np.where(ambiguous, 0, millis) * 1000
        if self._format.has_zone:
            return _instants(micros, null, ambiguous)
        return self._local(micros, null, ambiguous)

    def _of_iso(self, column: pa.Array, null: Mask) -> tuple[pa.Array, Mask]:
        kind = pa.timestamp("us", "UTC")
        zoned, ambiguous = parse_timestamps(column, kind, zoned=True)
        unsure = np.zeros(len(column), np.bool_) if ambiguous is None else ambiguous
        if not (unsure & ~null).any():
            return _instants(integers(zoned.cast(pa.int64())), null, unsure)
        plain = pc.if_else(pa.array(unsure), column, pa.scalar(None, pa.string()))
        local, more = parse_timestamps(plain, pa.timestamp("us"), zoned=False)
        unknown = unsure & ~valid(local) if more is None else unsure & (more | ~valid(local))
        local_instants, worse = self._local(
            integers(local.cast(pa.int64())), ~valid(local), unknown
        )
        micros = np.where(
            unsure, integers(local_instants.cast(pa.int64())), integers(zoned.cast(pa.int64()))
        )
        return _instants(micros, null, (unsure & worse) | unknown)

    def _local(self, micros: Whole, null: Mask, ambiguous: Mask) -> tuple[pa.Array, Mask]:
        """Return the instants of local times."""
        if self._zone == "UTC":
            return _instants(micros, null, ambiguous)
        outside = (micros < 0) | (micros >= _ZONES_END_US)
        local = pa.array(np.where(ambiguous | outside, 0, micros)).cast(pa.timestamp("us"))
        # a time that the clock skips or repeats is ambiguous
        early, late = (
            pc.assume_timezone(local, self._zone, ambiguous=which, nonexistent=which)
            for which in ("earliest", "latest")
        )
        odd = ~pc.equal(early, late).to_numpy(zero_copy_only=False)
        instants = integers(early.cast(pa.int64()))
        return _instants(instants, null, ambiguous | outside | odd)


def _instants(micros: Whole, null: Mask, ambiguous: Mask) -> tuple[pa.Array, Mask]:
    ambiguous = ambiguous | (micros < _DATETIME_MIN_US) | (micros > _DATETIME_MAX_US)
    return pa.array(np.where(ambiguous, 0, micros), mask=null).cast(DATETIME), ambiguous
