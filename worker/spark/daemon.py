"""The process from which Spark forks its Python workers: ``spark.python.daemon.module``.

Rules of this file:
- No archive stays on the module path. PySpark's worker calls ``importlib.invalidate_caches()`` at
  the start of every task, and with ``pyspark.zip`` there this reads the archive's directory anew
  each time: 130 ms of CPU per task with it, 4 ms without (measured, pyspark 4.1.3).
- Whatever a task imports is imported here, once, before the fork, and frozen out of the garbage
  collector, so that the workers share its memory.

The installed pyspark is of the same version as the archive, so nothing changes but its place.
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
    """The module path less Spark's archives; the standard library's own archive stays."""
    return [
        entry
        for entry in path
        if not entry.endswith((".zip", ".jar")) or Path(entry).name.startswith("python3")
    ]


def leave_archives() -> None:
    """Forget Spark's archives and every module that came from them."""
    sys.path[:] = without_archives(sys.path)
    for entry in [e for e in sys.path_importer_cache if ".zip" in e or ".jar" in e]:
        del sys.path_importer_cache[entry]
    for name in [n for n in sys.modules if n.partition(".")[0] in {"pyspark", "py4j"}]:
        del sys.modules[name]


def preload() -> None:
    """Import what tasks use; a part that is not installed is left out."""
    for name in PRELOADED:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    leave_archives()
    preload()
    importlib.import_module("pyspark.daemon").manager()
