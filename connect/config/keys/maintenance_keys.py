"""Keys ``iceberg.maintenance.*``: work on a connector's tables other than commits of new data."""

from __future__ import annotations

import re
from typing import Final

from connect.config.key import Key, at_least, between, where_read

_DAY_MS: Final = 86_400_000
_TIME: Final = "([01][0-9]|2[0-3]):([0-5][0-9])"
_WINDOW: Final = re.compile(rf"{_TIME}-{_TIME}")


def window_of(text: str) -> tuple[int, int] | None:
    """Return the first and the end minute of a daily window, UTC; None if it cannot be read.

    A window whose end is not after its start lasts until the next day.
    """
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        return None
    first_hour, first_minute, end_hour, end_minute = map(int, match.groups())
    return first_hour * 60 + first_minute, end_hour * 60 + end_minute


def window_error(text: str) -> str | None:
    """Return the error of a window that cannot be read, or None."""
    if window_of(text) is not None:
        return None
    return "a window has two times of day (UTC), such as 22:00-05:30"


MAINTENANCE_KEYS: tuple[Key, ...] = (
    Key(
        "iceberg.maintenance.expire-snapshots.enabled",
        "BOOLEAN",
        "Remove old snapshots of the connector's tables with its commits, and delete the files "
        "that only they need.",
        "false",
    ),
    Key(
        "iceberg.maintenance.expire-snapshots.max-age-ms",
        "LONG",
        "Age from which snapshots are removed; a table's property "
        "history.expire.max-snapshot-age-ms replaces it. 5 days if neither is set.",
        None,
        unit="ms",
        check=where_read(at_least(0)),
    ),
    Key(
        "iceberg.maintenance.expire-snapshots.min-snapshots-to-keep",
        "INT",
        "Number of snapshots that each branch keeps at any age; a table's property "
        "history.expire.min-snapshots-to-keep replaces it. 1 if neither is set.",
        None,
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.maintenance.rewrite-data-files.enabled",
        "BOOLEAN",
        "Compact small files, and apply delete files, in a maintenance process (Spark).",
        "false",
    ),
    Key(
        "iceberg.maintenance.rewrite-data-files.min-input-files",
        "INT",
        "Number of small files in one partition, committed since its last compaction, from which "
        "they are compacted.",
        "50",
        unit="files",
        check=where_read(at_least(2)),
    ),
    Key(
        "iceberg.maintenance.rewrite-data-files.min-delete-files",
        "INT",
        "Number of delete files in a table from which they are applied to its data files.",
        "10",
        unit="files",
        check=where_read(at_least(1)),
    ),
    Key(
        "iceberg.maintenance.rewrite-data-files.target-file-size-bytes",
        "LONG",
        "Size of compacted files; the table's property write.target-file-size-bytes if not set. "
        "A file is small below three quarters of it.",
        None,
        unit="bytes",
        check=where_read(at_least(1_048_576)),
    ),
    Key(
        "iceberg.maintenance.rewrite-manifests.enabled",
        "BOOLEAN",
        "Rewrite the manifests of tables with many manifests, in the maintenance process.",
        "false",
    ),
    Key(
        "iceberg.maintenance.rewrite-manifests.min-manifests",
        "INT",
        "Number of manifests in a table's newest snapshot from which they are rewritten.",
        "200",
        unit="manifests",
        check=where_read(at_least(2)),
    ),
    Key(
        "iceberg.maintenance.remove-orphan-files.enabled",
        "BOOLEAN",
        "Delete files below a table's location that no snapshot lists, in the maintenance process.",
        "false",
    ),
    Key(
        "iceberg.maintenance.remove-orphan-files.older-than-ms",
        "LONG",
        "Age from which such a file is deleted. It is raised to the age that "
        "`icefloe tables orphan-age` prints.",
        str(3 * _DAY_MS),
        unit="ms",
        check=where_read(at_least(_DAY_MS)),
    ),
    Key(
        "iceberg.maintenance.remove-orphan-files.interval-ms",
        "LONG",
        "Interval of the removal of orphan files, counted from 1970-01-01 UTC.",
        str(_DAY_MS),
        unit="ms",
        check=where_read(between(60_000, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.maintenance.bytes-per-hour",
        "LONG",
        "Data files that the maintenance of a connector rewrites in one hour, approximately.",
        str(50 * 2**30),
        unit="bytes",
        check=where_read(at_least(1_048_576)),
    ),
    Key(
        "iceberg.maintenance.tables-at-once",
        "INT",
        "Number of tables that are maintained at the same time.",
        "1",
        unit="tables",
        check=where_read(between(1, 100)),
    ),
    Key(
        "iceberg.maintenance.min-interval-ms",
        "LONG",
        "Time from the end of work on a table to the next begin of the same work.",
        "600000",
        unit="ms",
        check=where_read(between(0, 365 * _DAY_MS)),
    ),
    Key(
        "iceberg.maintenance.window",
        "STRING",
        "Time of day (UTC) in which the maintenance process may start, such as `22:00-05:30`; "
        "always if not set.",
        None,
        check=lambda value: None if value is None else window_error(value),
    ),
)
