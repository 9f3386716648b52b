"""Spark's classes in the form that the JVM uses them in, made once and mapped at each start.

Half of what a worker's start costs is the loading and checking of some ten thousand classes.

Rules of this file:
- An archive is for one Java and one Spark; both are in its name, and the JVM itself passes over
  one that does not fit its class path.
- A JVM ends in a crash where an archive is cut off, so its length is in its name, too: one that
  has another length is not used.
- ``make setup`` and the image's build make one, see ``worker.spark.archiving``. A worker never
  does: that takes a minute and 200 MB.
- A session without one starts as well, only slower.

Source:
    JDK 17, ``java`` tool reference: application class data sharing. Figures in
    docs/evidence/performance.md.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyspark

from connect.jvm.jars import cache_dir, pyspark_jars_dir, read_lock
from connect.jvm.java import find_java

_CONTENT = "2"  # another number where the archive is to hold other classes


def archive_dir(cache: Path | None = None) -> Path:
    """Where archives are: beside the jars; ``cache`` None is the user's cache folder."""
    return (cache or cache_dir()) / "classes"


def archive_stem() -> str:
    """Begin of an archive's name: says for which Java, Spark and Kafka source."""
    source = json.dumps(read_lock()["spark-kafka"], sort_keys=True)
    java, spark = str(find_java().resolve()), pyspark.__version__
    parts = (java, spark, str(pyspark_jars_dir()), source, _CONTENT)
    return f"spark-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


def find_archive(cache: Path | None = None) -> Path | None:
    """The archive for this Java and this Spark, None when there is none that may be used."""
    for file in sorted(archive_dir(cache).glob(f"{archive_stem()}-*.jsa")):
        size = file.stem.rpartition("-")[2]
        if size == str(file.stat().st_size) and not any(map(str.isspace, str(file))):
            return file
    return None


def archive_options(cache: Path | None = None) -> list[str]:
    """Options of a JVM that uses the archive; none when there is no archive."""
    file = find_archive(cache)
    if file is None:
        return []
    silent = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # about one that does not fit
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={file}", *silent]


def keep(made: Path, cache: Path | None = None) -> Path:
    """Put an archive in its place, under a name that says what it is."""
    target = archive_dir(cache) / f"{archive_stem()}-{made.stat().st_size}.jsa"
    for old in archive_dir(cache).glob(f"{archive_stem()}-*.jsa"):
        if old != target:
            old.unlink()
    made.rename(target)
    return target
