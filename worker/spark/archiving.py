"""``python -m worker.spark.archiving``: make the class archive of Spark for workers.

It opens a session, runs the warm-up of a worker, and loads the classes of the Kafka source. The JVM
writes the archive when it ends. This takes about a minute. With ``--missing`` it does nothing if a
valid archive exists.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import zipfile
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from connect.jvm.jars import resolve
from worker.spark.class_archive import archive_dir, find_archive, keep
from worker.spark.session import Session, open_session
from worker.spark.session_opening import start_daemon
from worker.spark.warm_up import warm_up, warm_up_rows

END_TIMEOUT_S = 900.0


def make_archive(cache: Path | None = None) -> Path:
    """Make the archive; ``cache`` None is the user's cache folder.

    Raises:
        ConfigError: no usable Java, or jars with wrong checksums.
        RetriableError: jars could not be downloaded.
    """
    folder = archive_dir(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder) as scratch:
        archive = Path(scratch) / "spark.jsa"
        options = [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        session = open_session({}, folder=Path(scratch), java_options=options)
        start_daemon(session.context)
        warm_up(session)
        warm_up_rows(session.spark)
        warm_up_rows(session.of_rows)
        _stream(session, Path(scratch) / "checkpoint")
        for jar in resolve("spark-kafka"):
            _load_classes(session, jar)
        session.close(end_timeout_s=END_TIMEOUT_S)
        return keep(archive, cache)


def _stream(session: Session, checkpoint: Path) -> None:
    """Run one streaming query, as a backlog does."""

    def each(rows: DataFrame, _batch: int) -> None:
        rows.count()

    stream = session.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    session.release_callbacks()


def _load_classes(session: Session, jar: Path) -> None:
    """Load the classes of a jar; skip classes with missing optional dependencies."""
    jvm = session.jvm.gateway.jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    with zipfile.ZipFile(jar) as content:
        names = [name for name in content.namelist() if name.endswith(".class")]
    for name in names:
        if not name.startswith("META-INF/") and not name.endswith("-info.class"):
            with contextlib.suppress(Py4JError):
                dotted = name.removesuffix(".class").replace("/", ".")
                jvm.java.lang.Class.forName(dotted, False, loader)  # noqa: FBT003 - Java's


def main(arguments: list[str]) -> int:
    """Make the archive and print its path."""
    existing = find_archive() if "--missing" in arguments else None
    if existing is None:
        sys.stderr.write("archiving: making an archive of Spark's classes, a minute\n")
    sys.stdout.write(f"{existing or make_archive()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
