"""``python -m worker.archiving``: make the archive of Spark's classes that workers start with.

A session is opened, does what each first batch does, and its JVM writes down at its end which
classes that took. Takes about a minute; workers that start later use it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from worker.class_archive import archive_dir, keep
from worker.session import open_session

END_TIMEOUT_S = 900.0


def make_archive(cache: Path | None = None) -> Path:
    """Make the archive; ``cache`` None is the user's cache folder.

    Raises:
        ConfigError: no usable Java, or jars that do not match their check sums.
        RetriableError: jars could not be downloaded.
    """
    folder = archive_dir(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder) as scratch:
        made = Path(scratch) / "spark.jsa"
        options = [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        session = open_session({}, folder=Path(scratch), java_options=options)
        rows = session.spark.range(1_000).mapInArrow(_same, "id long")
        rows.collect()
        session.close(end_timeout_s=END_TIMEOUT_S)
        return keep(made, cache)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> int:
    """Make the archive and say where it is."""
    sys.stdout.write(f"{make_archive()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
