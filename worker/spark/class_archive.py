"""Finds the class archive (application class data sharing) that makes Spark's JVM start faster.

Loading and verifying about ten thousand classes takes half of a worker's start time.

Rules of this file:
- An archive belongs to one Java and one Spark. Both are part of its name. The JVM ignores an
  archive that does not fit its class path.
- A truncated archive crashes the JVM. So the file size is part of the name, and an archive with
  another size is not used.
- ``make setup`` and the image build make an archive, see ``worker.spark.archiving``. A worker never
  does: it takes a minute and 200 MB.
- A session also starts without an archive, but more slowly.

Source:
    JDK 17, ``java`` tool reference: application class data sharing. Measurements in
    docs/evidence/performance.md.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyspark

from connect.jvm.jars import cache_dir, pyspark_jars_dir, read_lock
from connect.jvm.java import find_java

_CONTENT = "3"  # increased when the archive must contain other classes


def archive_dir(cache: Path | None = None) -> Path:
    """Return the folder of archives next to the jars, by default in the user's cache folder."""
    return (cache or cache_dir()) / "classes"


def archive_stem() -> str:
    """Return the prefix of an archive's name: a hash of Java, Spark and Kafka source."""
    source = json.dumps(read_lock()["spark-kafka"], sort_keys=True)
    java, spark = str(find_java().resolve()), pyspark.__version__
    parts = (java, spark, str(pyspark_jars_dir()), source, _CONTENT)
    return f"spark-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def find_archive(cache: Path | None = None) -> Path | None:
    """Return the archive for this Java and Spark; None if there is no valid one."""
    for file in sorted(archive_dir(cache).glob(f"{archive_stem()}-*.jsa")):
        size = file.stem.rpartition("-")[2]
        if size == str(file.stat().st_size) and not any(map(str.isspace, str(file))):
            return file
    return None


def archive_options(cache: Path | None = None) -> list[str]:
    """Return the JVM options that use the archive; empty without an archive."""
    file = find_archive(cache)
    if file is None:
        return []
    silent = (
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
    )  # no message about an archive that does not fit
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={file}", *silent]


def keep(archive: Path, cache: Path | None = None) -> Path:
    """Move an archive to the folder of archives, under its final name."""
    target = archive_dir(cache) / f"{archive_stem()}-{archive.stat().st_size}.jsa"
    for old in archive_dir(cache).glob(f"{archive_stem()}-*.jsa"):
        if old != target:
            old.unlink()
    archive.rename(target)
    return target
