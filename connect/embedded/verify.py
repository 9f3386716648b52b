"""Verifies with PyIceberg that each payment is in its table exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from connect.embedded.payments import KINDS, kind_codes
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway

VALID_THROUGH_PROPERTY = "kafka.connect.valid-through-ts"


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Figures of one table, from a scan and from the properties of its snapshots."""

    name: str
    rows: int
    rows_expected: int
    snapshots: int
    files: int
    valid_through: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    Attributes:
        tables: figures per table.
        missing: produced records that are in no table.
        twice: duplicate rows: all but the first row of each record.
        misrouted: rows of a kind that belongs to another table.
        unknown: rows that match no produced record.
    """

    tables: tuple[TableCounts, ...]
    missing: int
    twice: int
    misrouted: int
    unknown: int

    @property
    def is_good(self) -> bool:
        """Return whether every record is in its table exactly once."""
        return not (self.missing or self.twice or self.misrouted or self.unknown)


def committed_records(catalog: CatalogGateway, tables: Sequence[str]) -> int:
    """Return the sum of ``total-records`` of the tables' current snapshots."""
    total = 0
    for name in tables:
        table = _load(catalog, name)
        snapshot = table.current_snapshot() if table is not None else None
        if snapshot is not None and snapshot.summary is not None:
            total += int(snapshot.summary["total-records"] or 0)
    return total


def newest_valid_through(catalog: CatalogGateway, tables: Sequence[str]) -> str | None:
    """Return the newest valid-through time in the snapshots of these tables."""
    timestamps = []
    for name in tables:
        table = _load(catalog, name)
        if table is not None and (text := _valid_through(table)):
            timestamps.append(text)
    return max(timestamps, default=None)  # a round gives all its tables the same valid-through time


def verify(catalog: CatalogGateway, tables: Mapping[str, str], records: Sequence[int]) -> Verdict:
    """Read every table and compare it with the produced records.

    Args:
        catalog: of the tables.
        tables: kind of payment -> table.
        records: number of records of each partition; sequence numbers start at 0.
    """
    starts = np.concatenate(([0], np.cumsum(np.asarray(records, dtype=np.int64))))
    counts = np.zeros(int(starts[-1]), dtype=np.int32)
    codes = _codes(records)
    measurements, misrouted, unknown = [], 0, 0
    for kind, name in tables.items():
        code = KINDS.index(kind)
        table = _load(catalog, name)
        rows = 0
        if table is not None:
            for partition, sequence in _identities(table):
                rows += len(partition)
                is_known = (partition >= 0) & (partition < len(records)) & (sequence >= 0)
                limits = np.diff(starts)[np.where(is_known, partition, 0)]
                is_known &= sequence < limits
                unknown += int((~is_known).sum())
                position = starts[partition[is_known]] + sequence[is_known]
                counts += np.bincount(position, minlength=len(counts)).astype(np.int32)
                misrouted += int((codes[position] != code).sum())
        measurements.append(_measurements(name, table, rows, int((codes == code).sum())))
    return Verdict(
        tuple(measurements),
        missing=int((counts == 0).sum()),
        twice=int(np.maximum(counts - 1, 0).sum()),
        misrouted=misrouted,
        unknown=unknown,
    )


def _codes(records: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the kind of every produced record, ordered by partition and sequence number."""
    parts = [
        kind_codes(partition, np.arange(count, dtype=np.int64))
        for partition, count in enumerate(records)
    ]
    return np.concatenate(parts)


def _identities(table: Any) -> Any:
    """Yield partition and sequence arrays of a table's rows, batch by batch."""
    reader = table.scan(selected_fields=("partition", "sequence")).to_arrow_batch_reader()
    for batch in reader:
        yield (
            batch.column("partition").to_numpy(zero_copy_only=False),
            batch.column("sequence").to_numpy(zero_copy_only=False),
        )


def _load(catalog: CatalogGateway, name: str) -> Any:
    """Return the table, or None if it does not exist."""
    try:
        return catalog.load(tuple(name.split(".")))
    except CommitRefused as error:
        if error.code == "table_missing":
            return None
        raise


def _valid_through(table: Any) -> str | None:
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return None if summary is None else summary.additional_properties.get(VALID_THROUGH_PROPERTY)


def _measurements(name: str, table: Any, rows: int, expected: int) -> TableCounts:
    if table is None:
        return TableCounts(name, 0, expected, 0, 0, None)
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return TableCounts(
        name,
        rows,
        expected,
        snapshots=len(table.metadata.snapshots),
        files=int(summary["total-data-files"] or 0) if summary is not None else 0,
        valid_through=_valid_through(table),
    )
