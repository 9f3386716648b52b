"""Checks what must be true of the tables after any run; pure functions of what was read back.

Rules of this file:
- No I/O. Each check returns its findings as text. ``tests/unit/harness/test_checkers.py`` tests
  each check with a bad history.
- The source log is the truth. A record that the producer wrote twice has two offsets and must be
  in the tables twice.
- A finding carries counts and a few examples, never a million lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Partition = TypeVar("Partition")
EXAMPLES = 3
NEVER = np.iinfo(np.int64).max
_SEQUENCE_BITS = 40


@dataclass(frozen=True, slots=True)
class Log:
    """All records of the source topic; arrays of equal length.

    Attributes:
        partitions: of each record.
        sequences: the record's own number within its partition.
        timestamps_ms: Kafka's timestamp, never decreasing within a partition.
        tables: index of the table that the record belongs to; higher numbers are
            other destinations: dead letter, dropped.
    """

    partitions: Numbers
    sequences: Numbers
    timestamps_ms: Numbers
    tables: Numbers

    def of(self, table: int) -> Log:
        """The records of one table."""
        chosen = self.tables == table
        return Log(
            self.partitions[chosen],
            self.sequences[chosen],
            self.timestamps_ms[chosen],
            self.tables[chosen],
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table; ``added_at`` is the sequence number of the snapshot that added them."""

    partitions: Numbers
    sequences: Numbers
    added_at: Numbers


@dataclass(frozen=True, slots=True)
class ObservedSnapshot:
    """One snapshot: its sequence number and its summary.

    ``manifest_numbers``: sequence numbers of the manifests that it added.
    """

    sequence_number: int
    commit_id: str | None = None
    control_offsets: Mapping[int, int] | None = None
    valid_through_ms: int | None = None
    manifest_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """One live manifest entry; ``stored_bytes`` is None if the file does not exist."""

    path: str
    size_bytes: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class ObservedRange:
    """One announced range of a source partition, ``start`` to ``end``, with its counts."""

    start: int
    end: int
    read: int
    dropped: int
    dead_lettered: int
    written: int


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """One table as an independent reader reads it; snapshots are its ancestry, oldest first."""

    name: str
    snapshots: tuple[ObservedSnapshot, ...]
    files: tuple[ObservedFile, ...]
    rows: Rows


def findings(log: Log, tables: Sequence[ObservedTable]) -> list[str]:
    """Return all findings; ``tables`` are in the order of the indices in ``log.tables``."""
    out = []
    for index, table in enumerate(tables):
        expected = log.of(index)
        parts = [
            *check_rows(expected, table.rows),
            *check_files(table.files),
            *check_commits(table.snapshots),
            *check_sequence_numbers(table.snapshots),
            *check_control_offsets(table.snapshots),
            *check_valid_through(expected, table.rows, table.snapshots),
        ]
        out += [f"{table.name}: {part}" for part in parts]
    return out


def check_rows(log: Log, rows: Rows) -> list[str]:
    """Each record is a row as often as it is in the log; there are no other rows."""
    wanted, wanted_counts = np.unique(_keys(log.partitions, log.sequences), return_counts=True)
    found, found_counts = np.unique(_keys(rows.partitions, rows.sequences), return_counts=True)
    keys = np.union1d(wanted, found)
    excess = _aligned(keys, found, found_counts) - _aligned(keys, wanted, wanted_counts)
    is_known = np.isin(keys, wanted)
    kinds = (
        ("missing", (excess < 0) & is_known),
        ("twice", (excess > 0) & is_known),
        ("unknown", ~is_known),
    )
    return [
        f"{int(np.abs(excess[chosen]).sum())} rows {kind}, first {_displayed(keys[chosen])}"
        for kind, chosen in kinds
        if chosen.any()
    ]


def check_files(files: Sequence[ObservedFile]) -> list[str]:
    """Each path is in at most one live entry, and the file exists with its size."""
    counts = Counter(file.path for file in files)
    twice = sorted(path for path, count in counts.items() if count > 1)
    absent = sorted(file.path for file in files if file.stored_bytes is None)
    resized = sorted(
        file.path for file in files if file.stored_bytes not in {None, file.size_bytes}
    )
    kinds = (("listed twice", twice), ("not there", absent), ("of another size", resized))
    return [f"{len(p)} files {kind}, first {p[:EXAMPLES]}" for kind, p in kinds if p]


def check_commits(snapshots: Sequence[ObservedSnapshot]) -> list[str]:
    """A round adds at most one snapshot to a table."""
    counts = Counter(s.commit_id for s in snapshots if s.commit_id is not None)
    twice = sorted(commit for commit, count in counts.items() if count > 1)
    return [f"{len(twice)} rounds with two snapshots, first {twice[:EXAMPLES]}"] if twice else []


def check_sequence_numbers(snapshots: Sequence[ObservedSnapshot]) -> list[str]:
    """A new manifest has its snapshot's number; with a lower one, older deletes apply to it."""
    wrong = [s.sequence_number for s in snapshots if {*s.manifest_numbers} - {s.sequence_number}]
    return (
        [f"{len(wrong)} snapshots with stale manifests, first {wrong[:EXAMPLES]}"] if wrong else []
    )


def check_control_offsets(snapshots: Sequence[ObservedSnapshot]) -> list[str]:
    """Along the ancestry no offset of a control partition decreases or disappears."""
    out, last = [], dict[int, int]()
    for snapshot in snapshots:
        if snapshot.control_offsets is None:
            continue
        for partition, before in last.items():
            now = snapshot.control_offsets.get(partition)
            if now is None or now < before:
                out.append(
                    f"control offset of partition {partition} goes from {before} to {now} "
                    f"in snapshot {snapshot.sequence_number}"
                )
        last = {**last, **snapshot.control_offsets}
    return out[:EXAMPLES]


def check_valid_through(log: Log, rows: Rows, snapshots: Sequence[ObservedSnapshot]) -> list[str]:
    """The VTTS never decreases, and its snapshot contains every older record.

    A record with the very millisecond of the VTTS may come later: the log gives one timestamp to
    many records, and reading may stop between two of them.
    """
    out = []
    added_at = _added_at(log, rows)
    last_ms: int | None = None
    for snapshot in snapshots:
        given_ms = snapshot.valid_through_ms
        if given_ms is None:
            continue
        if last_ms is not None and given_ms < last_ms:
            out.append(
                f"VTTS goes from {last_ms} to {given_ms} in snapshot {snapshot.sequence_number}"
            )
        last_ms = given_ms
        late = (log.timestamps_ms < given_ms) & (added_at > snapshot.sequence_number)
        if late.any():
            keys = _keys(log.partitions[late], log.sequences[late])
            out.append(
                f"VTTS {given_ms} of snapshot {snapshot.sequence_number} is not true of "
                f"{int(late.sum())} records, first {_displayed(keys)}"
            )
    return out[:EXAMPLES]


def check_source_offsets(
    committed: Mapping[Partition, int | None], ends: Mapping[Partition, int]
) -> list[str]:
    """The group has committed exactly the end of each partition of the log."""
    return [
        f"partition {partition} ends at {end}, but the group committed {committed.get(partition)}"
        for partition, end in ends.items()
        if committed.get(partition) != end
    ]


def check_ranges(
    ranges: Mapping[Partition, Sequence[ObservedRange]], ends: Mapping[Partition, int]
) -> list[str]:
    """Announced ranges are contiguous, in order, from 0 to the end of each partition."""
    out = []
    for partition, end in ends.items():
        at = 0
        for seen in ranges.get(partition, ()):
            if seen.start != at or seen.end < seen.start:
                out.append(f"partition {partition}: [{seen.start}, {seen.end}) announced at {at}")
            at = max(at, seen.end)
        if at != end:
            out.append(f"partition {partition}: announced to {at}, which ends at {end}")
    return out[:EXAMPLES]


def check_record_counts(
    ranges: Iterable[ObservedRange], *, records: int, rows: int, dead_letters: int, dropped: int
) -> list[str]:
    """Source = tables + dead letters + dropped, in the records read and in the announced counts.

    Args:
        ranges: every committed announcement.
        records: of the source.
        rows: of all tables.
        dead_letters: on the dead letter topic.
        dropped: records of the source that belong to no table.
    """
    seen = list(ranges)
    counts = (
        ("read", sum(r.read for r in seen), records),
        ("written", sum(r.written for r in seen), rows),
        ("dead-lettered", sum(r.dead_lettered for r in seen), dead_letters),
        ("dropped", sum(r.dropped for r in seen), dropped),
    )
    out = [
        f"{announced} records reported {what}, {found} found"
        for what, announced, found in counts
        if announced != found
    ]
    if records != rows + dead_letters + dropped:
        out.append(
            f"{records} records are {rows} rows + {dead_letters} dead letters + {dropped} dropped"
        )
    return out


def check_progress(recoveries: Sequence[tuple[str, int, int]]) -> list[str]:
    """After each fault the tables received more rows.

    Args:
        recoveries: name of the fault, rows when it ended, and rows some time later.
    """
    return [
        f"no progress after {what}: {before} rows, later {after}"
        for what, before, after in recoveries
        if after <= before
    ]


def check_secrets(texts: Mapping[str, bytes], canaries: Sequence[str]) -> list[str]:
    """No text contains a canary; a finding does not repeat the canary."""
    return [
        f"secret {number} is in {where}"
        for where, text in texts.items()
        for number, canary in enumerate(canaries)
        if canary.encode() in text
    ][:EXAMPLES]


def check_no_growth(what: str, values: Sequence[float], *, slack: float) -> list[str]:
    """A series may vary by ``slack`` but must not grow: compares the medians of its halves.

    The first quarter is warm-up. Fewer than eight values are a finding too.
    """
    if len(values) < 8:
        return [f"{what}: {len(values)} values are too few"]
    later = values[len(values) // 4 :]
    early, late = (float(np.median(part)) for part in np.array_split(later, 2))
    return [f"{what} grows from {early:.0f} to {late:.0f}"] if late > early + slack else []


def check_counts_at_least(wanted: Mapping[str, int], happened: Mapping[str, int]) -> list[str]:
    """Each event happened at least as often as wanted."""
    return [
        f"{what} happened {happened.get(what, 0)} times of {least}"
        for what, least in wanted.items()
        if happened.get(what, 0) < least
    ]


def _keys(partitions: Numbers, sequences: Numbers) -> Numbers:
    return (partitions << _SEQUENCE_BITS) | sequences


def _displayed(keys: Numbers) -> list[str]:
    mask = (1 << _SEQUENCE_BITS) - 1
    return [f"{key >> _SEQUENCE_BITS}:{key & mask}" for key in keys[:EXAMPLES].tolist()]


def _aligned(keys: Numbers, some: Numbers, values: Numbers) -> Numbers:
    """Return ``values`` of ``some`` at their positions in ``keys``; 0 for other keys."""
    out = np.zeros(len(keys), np.int64)
    out[np.searchsorted(keys, some)] = values
    return out


def _added_at(log: Log, rows: Rows) -> Numbers:
    """Return the snapshot that first contained each record; ``NEVER`` if there is none."""
    row_keys = _keys(rows.partitions, rows.sequences)
    order = np.lexsort((rows.added_at, row_keys))
    row_keys, added_at = row_keys[order], rows.added_at[order]
    keys = _keys(log.partitions, log.sequences)
    places = np.searchsorted(row_keys, keys)
    inside = np.minimum(places, max(len(row_keys) - 1, 0))
    if not len(row_keys):
        return np.full(len(keys), NEVER, np.int64)
    return np.where(row_keys[inside] == keys, added_at[inside], NEVER)
