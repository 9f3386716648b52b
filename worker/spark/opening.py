"""The session of a worker that starts, opened in a thread while modules are imported."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from connect.config.placeholders import has_placeholder
from worker.spark.session import Session, open_session

STATE_DIR = "icefloe.state.dir"


class Opening:
    """A session that is being opened.

    Args:
        spark: the node's ``spark.*`` properties, placeholders resolved.
        folder: the node's state folder.
    """

    def __init__(self, spark: Mapping[str, str], folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        threads = ThreadPoolExecutor(1, thread_name_prefix="opening")
        self._session = threads.submit(self._run)
        threads.shutdown(wait=False)

    @classmethod
    def of(cls, configure: Mapping[str, Any]) -> Opening | None:
        """Begin with what the first message of a node says; None when it needs resolving first."""
        given = early(configure.get("properties", {}))
        return None if given is None else cls(*given)

    def result(self) -> Session:
        """The session, once it is open; raises what ``open_session`` raised."""
        return self._session.result()

    def _run(self) -> Session:
        self._folder.mkdir(parents=True, exist_ok=True)
        return open_session(self._spark, folder=self._folder)


def early(properties: Mapping[str, str]) -> tuple[dict[str, str], Path] | None:
    """What a session needs of a node's properties as they are.

    Returns:
        ``spark.*`` properties and state folder. None where one of them holds a placeholder, or the
        folder is not named: then the whole configuration is to be read first.
    """
    spark = {name: value for name, value in properties.items() if name.startswith("spark.")}
    folder = properties.get(STATE_DIR)
    if not folder or any(map(has_placeholder, (folder, *spark.values()))):
        return None
    return spark, Path(folder)
