"""Lineage events of connectors, as values without the library that sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

from connect.model.table_description import TableDescription

EventKind: TypeAlias = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]
"""OpenLineage's types of run events."""

_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}


class DatasetName(NamedTuple):
    """A dataset by OpenLineage's naming specification."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class InputTopic:
    """A source topic.

    Attributes:
        dataset: its name.
        records: read since the last event; None if none were read.
    """

    dataset: DatasetName
    records: int | None = None


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table.

    Attributes:
        description: where it is, and its columns.
        identity_columns: columns with the value of the field of that name in ``sources``.
        sources: the topics whose records have these fields.
        commit: what was committed since the last event; None if nothing was.
    """

    description: TableDescription
    identity_columns: tuple[str, ...] = ()
    sources: tuple[DatasetName, ...] = ()
    commit: TableTotals | None = None


@dataclass(frozen=True, slots=True)
class TableTotals:
    """What was committed to a table since the last event.

    Attributes:
        records: rows of data files.
        files: data and delete files.
        size_bytes: of these files.
        commits: number of snapshots.
        snapshot_id: the last one; for a Delta table, the version.
        commit_id: of the last round.
        valid_through_us: of the last round, microseconds since 1970 UTC; None if it has none.
    """

    records: int
    files: int
    size_bytes: int
    commits: int
    snapshot_id: int
    commit_id: str
    valid_through_us: int | None

    def after(self, earlier: TableTotals | None) -> TableTotals:
        """Return this commit together with the earlier ones."""
        if earlier is None:
            return self
        known_us = earlier.valid_through_us
        return TableTotals(
            earlier.records + self.records,
            earlier.files + self.files,
            earlier.size_bytes + self.size_bytes,
            earlier.commits + self.commits,
            self.snapshot_id,
            self.commit_id,
            known_us if self.valid_through_us is None else self.valid_through_us,
        )


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """One event of a run.

    Attributes:
        kind: of the event.
        namespace: of the job.
        job: name of the connector.
        run_id: the same in all events of a run.
        time_ms: milliseconds since 1970 UTC.
        is_bounded: the run ends at fixed offsets.
        inputs: source topics.
        outputs: tables that were described in this run.
        output_topics: topics that receive rows or aggregates.
        error: why it failed, without secrets; None if it did not.
    """

    kind: EventKind
    namespace: str
    job: str
    run_id: UUID
    time_ms: int
    is_bounded: bool = False
    inputs: tuple[InputTopic, ...] = ()
    outputs: tuple[OutputTable, ...] = ()
    output_topics: tuple[DatasetName, ...] = ()
    error: str | None = None


def topic_dataset(bootstrap_servers: str, topic: str) -> DatasetName:
    """Return the name of a topic: its namespace is the first broker."""
    first = bootstrap_servers.split(",", maxsplit=1)[0].strip()
    _, _, address = first.rpartition("://")  # Java accepts a protocol before the address
    return DatasetName(f"kafka://{address}", topic)


def table_dataset(location: str) -> DatasetName:
    """Return the name of the table at a location."""
    parts = urlsplit(location)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/") or "/"
    if scheme in {"", "file"}:
        return DatasetName("file", path)
    if scheme in {"hdfs", "viewfs"}:
        return DatasetName(f"{scheme}://{parts.netloc}", path)
    return DatasetName(f"{scheme}://{parts.netloc}", path.lstrip("/") or "/")
