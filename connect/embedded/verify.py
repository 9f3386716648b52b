"""Are the payments in their tables, each once? Read back with PyIceberg, record by record."""

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
    """One table as an independent reader finds it; ``valid_through`` as the snapshot has it."""

    name: str
    rows: int
    rows_expected: int
    snapshots: int
    files: int
    valid_through: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        tables: figures per table.
        missing: records that no table holds.
        twice: rows beyond the first of a record.
        misrouted: rows of a kind that belongs to another table.
        unknown: rows that were never produced.
    """

    tables: tuple[TableCounts, ...]
    missing: int
    twice: int
    misrouted: int
    unknown: int

    @property
    def is_good(self) -> bool:
        """Every record is there, once, where it belongs."""
        return not (self.missing or self.twice or self.misrouted or self.unknown)


def committed_records(catalog: CatalogGateway, tables: Sequence[str]) -> int:
    """Rows that the current snapshots of these tables count; absent tables have none."""
    total = 0
    for name in tables:
        table = _load(catalog, name)
        snapshot = table.current_snapshot() if table is not None else None
        if snapshot is not None and snapshot.summary is not None:
            total += int(snapshot.summary["total-records"] or 0)
    return total


def newest_valid_through(catalog: CatalogGateway, tables: Sequence[str]) -> str | None:
    """The valid-through time that holds for all of these tables, as their snapshots have it."""
    found = []
    for name in tables:
        table = _load(catalog, name)
        if table is not None and (text := _valid_through(table)):
            found.append(text)
    return max(found, default=None)  # one round gives all tables the same, or does not touch them


def verify(catalog: CatalogGateway, tables: Mapping[str, str], records: Sequence[int]) -> Verdict:
    """Read every table and compare with what was produced.

    Args:
        catalog: where the tables are.
        tables: kind of payment -> table.
        records: how many records each partition holds; sequence numbers are 0 to that.
    """
    starts = np.concatenate(([0], np.cumsum(np.asarray(records, dtype=np.int64))))
    seen = np.zeros(int(starts[-1]), dtype=np.int32)
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
                seen += np.bincount(position, minlength=len(seen)).astype(np.int32)
                misrouted += int((codes[position] != code).sum())
        measurements.append(_measurements(name, table, rows, int((codes == code).sum())))
    return Verdict(
        tuple(measurements),
        missing=int((seen == 0).sum()),
        twice=int(np.maximum(seen - 1, 0).sum()),
        misrouted=misrouted,
        unknown=unknown,
    )


def _codes(records: Sequence[int]) -> npt.NDArray[np.int64]:
    """The kind of every produced record, partition after partition."""
    parts = [
        kind_codes(partition, np.arange(count, dtype=np.int64))
        for partition, count in enumerate(records)
    ]
    return np.concatenate(parts)


def _identities(table: Any) -> Any:
    """Partition and sequence arrays of a table's rows, block by block."""
    reader = table.scan(selected_fields=("partition", "sequence")).to_arrow_batch_reader()
    for batch in reader:
        yield (
            batch.column("partition").to_numpy(zero_copy_only=False),
            batch.column("sequence").to_numpy(zero_copy_only=False),
        )


def _load(catalog: CatalogGateway, name: str) -> Any:
    """The table, or None while it does not exist."""
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
