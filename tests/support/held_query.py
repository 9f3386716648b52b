"""Runs ``Sql`` queries over one record each, in a process that a test can kill.

Usage: python -m tests.support.held_query FOLDER. Each line of its input is a condition and a text
as JSON; a line of its output says what became of the record.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path

from connect.errors import ConfigError
from connect.gateways.catalog.catalog import open_catalog
from tests.support.sql_harness import SqlHarness, counts
from worker.spark.session import open_session

ANSWER = "answer: "
END_S = 60


class QueryProcess:
    """The process, seen by a test; it starts with the first query.

    Args:
        folder: of the process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def run(self, condition: str, text: str, timeout_s: float) -> str | None:
        """Return what became of the record; None, and no process, when it took too long."""
        if self._process is None:
            self._process = self._started()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([condition, text]) + "\n")
        self._process.stdin.flush()
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.close(grace_s=0)
            return None

    def close(self, grace_s: float = END_S) -> None:
        """End the process; kill it if it does not end."""
        if self._process is None:
            return
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
        self._process = None

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.held_query", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = queue.SimpleQueue[str | None]()
        threading.Thread(target=self._listen, args=(process, self._answers), daemon=True).start()
        return process

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.SimpleQueue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:  # Spark may print others
            if line.startswith(ANSWER):
                answers.put(line.removeprefix(ANSWER).strip())
        answers.put(None)


def result(sql: SqlHarness, condition: str, text: str) -> str:
    """Return what became of a record with that text."""
    try:
        query = sql.query(f"SELECT id FROM records WHERE {condition}")
    except ConfigError:
        return "the query is refused"
    results = counts(sql.run(query, [{"id": 1, "device": text}]))
    dead, dropped, written = results.dead_lettered, results.dropped, results.written
    return f"dead-lettered {dead}, dropped {dropped}, written {written}"


def main(folder: Path) -> None:
    """Answer queries until the end of the input."""
    session = open_session({}, folder=folder)
    uri = f"sqlite:///{folder}/catalog.db"
    catalog = open_catalog("c", {"type": "sql", "uri": uri, "warehouse": str(folder)})
    sql = SqlHarness(session, folder, catalog)
    for line in sys.stdin:
        print(ANSWER + result(sql, *json.loads(line)), flush=True)
    session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
