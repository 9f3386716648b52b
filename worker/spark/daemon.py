"""The process from which Spark forks its Python workers: ``spark.python.daemon.module``.

Rules of this file:
- No archive stays on the module path. PySpark's worker calls ``importlib.invalidate_caches()`` at
  the start of every task. With ``pyspark.zip`` on the path, each call reads the directory of the
  archive again: 130 ms of CPU per task with it, 4 ms without (measured, pyspark 4.1.3).
- All modules of a task are imported once, before the fork, and frozen for the garbage collector.
  The workers share their memory.

The installed pyspark has the version of the archive, so only the path of its modules changes.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from pathlib import Path

PRELOADED = (
    "pyarrow.compute",
    "pyarrow.json",
    "pyarrow.parquet",
    "pandas",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "worker.pipeline.pipeline",
    "worker.sql.sql_read",
    "worker.sql.sql_write",
)


def without_archives(path: list[str]) -> list[str]:
    """Return the module path without Spark's archives; that of the standard library stays."""
    return [
        entry
        for entry in path
        if not entry.endswith((".zip", ".jar")) or Path(entry).name.startswith("python3")
    ]


def leave_archives() -> None:
    """Remove Spark's archives from the path, and the modules that were imported from them."""
    sys.path[:] = without_archives(sys.path)
    for entry in [e for e in sys.path_importer_cache if ".zip" in e or ".jar" in e]:
        del sys.path_importer_cache[entry]
    for name in [n for n in sys.modules if n.partition(".")[0] in {"pyspark", "py4j"}]:
        del sys.modules[name]


def preload() -> None:
    """Import the modules of tasks; skip parts that are not installed."""
    for name in PRELOADED:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    leave_archives()
    preload()
    importlib.import_module("pyspark.daemon").manager()
