"""What a soak sees of its tables and statuses while processes are killed.

Rules of this file:
- The tables are loaded by a catalog client of its own, so that expired snapshots are known too.
- An entry of a node's log stays when the node is killed; what its REST API showed does not.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.faults.checkers import ObservedSnapshot
from tests.faults.readback import COMMIT_ID, OFFSETS_PREFIX, VALID_THROUGH
from worker.maintenance.table_actions import SUMMARY_PROPERTY

PAUSE_S = 5.0
MAINTAINED = "table maintained"


class TableWatch:
    """A thread that loads tables every ``PAUSE_S``.

    Args:
        catalog: properties of the catalog.
        tables: their names.
        read_states: returns the states of connectors and tasks.

    Attributes:
        snapshots: table -> sequence number -> the snapshot, also of those that have expired.
        expired: table -> number of snapshots that were seen and have expired.
        snapshots_max: table -> the highest number of snapshots at one time.
        files_max: table -> the highest number of data files and delete files at one time.
        files_added: table -> data files that the snapshots seen have added.
        rewrites: (table, work) -> number of commits of the maintenance process.
        states: number of times that each state was seen.
    """

    def __init__(
        self,
        catalog: Mapping[str, str],
        tables: tuple[str, ...],
        read_states: Callable[[], list[str]],
    ) -> None:
        self.snapshots: dict[str, dict[int, ObservedSnapshot]] = {name: {} for name in tables}
        self.expired: Counter[str] = Counter()
        self.snapshots_max: Counter[str] = Counter()
        self.files_max: Counter[str] = Counter()
        self.files_added: Counter[str] = Counter()
        self.rewrites: Counter[tuple[str, str]] = Counter()
        self.states: Counter[str] = Counter()
        self._catalog = load_catalog("iceberg", **catalog)
        self._read_states = read_states
        self._failures: list[BaseException] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; raise what ended the thread."""
        self._stopping.set()
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        is_stopping = False
        try:
            while not is_stopping:
                for name in self.snapshots:
                    self.observe(name, self._catalog.load_table(name))
                self.states.update(self._read_states())
                is_stopping = self._stopping.wait(PAUSE_S)
        except BaseException as error:  # raised by stop
            self._failures.append(error)

    def observe(self, name: str, table: Table) -> None:
        """Take a table as it is now."""
        known = self.snapshots[name]
        present = {s.sequence_number or 0 for s in table.metadata.snapshots}
        for snapshot in table.metadata.snapshots:
            number = snapshot.sequence_number or 0
            if number in known or snapshot.summary is None:
                continue
            summary = snapshot.summary.additional_properties
            known[number] = _observed(number, summary)
            self.files_added[name] += int(summary.get("added-data-files", 0))
            if work := summary.get(SUMMARY_PROPERTY):
                self.rewrites[name, work] += 1
            self.files_max[name] = max(self.files_max[name], files_of(summary))
        self.expired[name] = len(known.keys() - present)
        self.snapshots_max[name] = max(self.snapshots_max[name], len(present))


def _observed(number: int, summary: Mapping[str, str]) -> ObservedSnapshot:
    offsets = [json.loads(v) for k, v in summary.items() if k.startswith(OFFSETS_PREFIX)]
    given = summary.get(VALID_THROUGH)
    return ObservedSnapshot(
        number,
        summary.get(COMMIT_ID),
        {int(p): offset for p, offset in offsets[0].items()} if offsets else None,
        None if given is None else round(datetime.fromisoformat(given).timestamp() * 1000),
    )


def files_of(summary: Mapping[str, str]) -> int:
    """Return the number of data files and delete files of a snapshot, by its summary."""
    return int(summary.get("total-data-files", 0)) + int(summary.get("total-delete-files", 0))


def maintained(logs: list[Path]) -> Counter[tuple[str, str, str]]:
    """Return how often work of the maintenance ended: by table, work, and ``DONE`` or its code."""
    found: Counter[tuple[str, str, str]] = Counter()
    for file in logs:
        for line in file.read_text("utf-8", "replace").splitlines():
            entry: dict[str, Any] = {}
            with suppress(ValueError):  # a killed node may leave half a line
                entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("event") == MAINTAINED:
                found[entry["table"], entry["work"], entry.get("code") or entry["state"]] += 1
    return found
