"""Opens the session of a starting worker in a thread, while modules are imported."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from connect.config.placeholders import has_placeholder
from worker.spark.session import Session, open_session

STATE_DIR = "icefloe.state.dir"


class SessionOpening:
    """A session that is being opened in a thread.

    Args:
        spark: the node's ``spark.*`` properties, placeholders resolved.
        folder: the node's state folder.

    Attributes:
        session: the result; errors as ``open_session``.
    """

    def __init__(self, spark: Mapping[str, str], folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        threads = ThreadPoolExecutor(1, thread_name_prefix="opening")
        self.session: Future[Session] = threads.submit(self._run)
        threads.shutdown(wait=False)

    @classmethod
    def of(cls, configure: Mapping[str, Any]) -> SessionOpening | None:
        """Start with a node's first message; return None if it has placeholders to resolve."""
        session = session_properties(configure.get("properties", {}))
        return None if session is None else cls(*session)

    def _run(self) -> Session:
        self._folder.mkdir(parents=True, exist_ok=True)
        return open_session(self._spark, folder=self._folder)


def start_daemon(context: SparkContext) -> None:
    """Start Spark's Python daemon, which imports the modules of tasks.

    So the daemon imports while the first tasks start, not during the first batch.

    Raises:
        PySparkException, Py4JError, OSError: it was not started.
    """
    context.parallelize([0], 1).foreach(bool)


def session_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], Path] | None:
    """Return what a session needs from a node's unresolved properties.

    Returns:
        ``spark.*`` properties and state folder. None if one of them has a placeholder, or if the
        folder is not set: the whole configuration must be resolved first.
    """
    spark = {name: value for name, value in properties.items() if name.startswith("spark.")}
    folder = properties.get(STATE_DIR)
    if not folder or any(map(has_placeholder, (folder, *spark.values()))):
        return None
    return spark, Path(folder)
