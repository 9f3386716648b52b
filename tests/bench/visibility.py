"""When produced records become visible in a table: a steady stream, and its delays.

Rules of this file:
- The table is asked for as little as possible, because that takes CPU from what is measured, and a
  query delays a commit to the same database. Between commits only the time of the database's file
  is read. Once that has changed, the catalog is asked where the table's metadata is, and the
  metadata for the number of rows once that has changed.
- The times are wrong by ``CLOSE_POLL_S``, and by ``POLL_S`` for a commit that comes much earlier
  than the distance of the last two.
- The broker, the worker and the coordinator of a test have just started, and Java compiles while
  it serves: the first minutes are slower than what an installation has for days. So two minutes
  are left out (``BENCH_WARM_UP_S``).
- Rows are visible when the catalog names their metadata file. To read that file takes 4 to 6 ms of
  this process, which do not count.
- A record is produced when it is sent. The producer sends it at once: it does not wait for more
  records. ``BENCH_LINGER_MS=20`` lets it wait as it did until 25 November 2026.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import MeasuredStack

LINGER_MS = float(os.environ.get("BENCH_LINGER_MS", "0"))
PERIOD_S = 0.01
WARM_UP_S = float(os.environ.get("BENCH_WARM_UP_S", "120"))
POLL_S = 0.005
CLOSE_POLL_S = 0.001  # when a commit is about to come
CLOSE_SHARE = 0.9  # of the distance of the last two commits
_WHERE = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


class VisibleRows:
    """The number of visible rows of a table.

    Args:
        running: the stack.
        table: ``namespace.table``.

    Attributes:
        changed_s: when the rows became visible that ``count`` returned last (monotonic, seconds).
    """

    def __init__(self, running: MeasuredStack, table: str) -> None:
        self.changed_s = time.monotonic()
        self._running = running
        self._table = table
        uri = running.stack.catalog_properties["uri"]
        self._database = Path(uri.removeprefix("sqlite:///"))
        self._journal = self._database.with_name(f"{self._database.name}-journal")
        self._catalog = sqlite3.connect(self._database, check_same_thread=False)
        self._seen_ns = 0
        self._distance_s = 0.0
        self._location: str | None = None
        self._rows = 0

    def count(self) -> int:
        """Return the present number of rows."""
        written_ns = self._database.stat().st_mtime_ns
        if written_ns == self._seen_ns or self._journal.exists():  # a commit deletes the journal
            return self._rows
        try:
            found = self._catalog.execute(_WHERE, self._table.split(".")).fetchone()
        except sqlite3.OperationalError:  # locked, or without tables yet
            return self._rows
        self._seen_ns = written_ns
        location = found[0] if found else None
        if location != self._location:
            now_s = time.monotonic()
            self._distance_s, self.changed_s = now_s - self.changed_s, now_s
            self._location, self._rows = location, self._running.rows(self._table)
        return self._rows

    def wait_for(self, rows: int, limit_s: float = 120.0) -> float:
        """Wait until so many rows are visible; return the time (monotonic, seconds)."""
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if self.count() >= rows:
                return self.changed_s
            self.pause()
        raise TimeoutError(f"{self.count()} of {rows} rows of {self._table} are visible")

    def pause(self) -> None:
        """Wait until the next ``count``: for less time if a commit is about to come."""
        is_close = time.monotonic() - self.changed_s > CLOSE_SHARE * self._distance_s
        time.sleep(CLOSE_POLL_S if is_close else POLL_S)

    def close(self) -> None:
        """Close the connection."""
        self._catalog.close()


@dataclass(slots=True)
class SteadyStream:
    """Records that are produced one by one.

    Attributes:
        sent_s: when each record was sent (monotonic, seconds).
    """

    sent_s: list[float] = field(default_factory=list)

    @contextmanager
    def to(self, running: MeasuredStack, topic: str) -> Iterator[SteadyStream]:
        """Produce 100 records a second to partition 0 while the block runs."""
        producer, halt = BulkProducer(running.kafka, linger_ms=LINGER_MS), threading.Event()

        def produce() -> None:
            while not halt.wait(PERIOD_S):
                self.sent_s.append(time.monotonic())
                producer.send(topic, 0, [b'{"n":%d}' % (len(self.sent_s) - 1)])

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield self
        finally:
            halt.set()
            thread.join()
            producer.finish(topic)


def delays(
    running: MeasuredStack, topic: str, table: str, *, seconds: float, warm_up_s: float = WARM_UP_S
) -> list[float]:
    """Return the sorted times from produce to visible of a steady stream.

    Args:
        running: the stack; the connector of the topic runs.
        topic: with one partition.
        table: of the connector.
        seconds: how long to measure.
        warm_up_s: before that; records of this time are left out.
    """
    found: list[tuple[float, float]] = []
    seen, end_s = 0, time.monotonic() + warm_up_s + seconds
    with closing(VisibleRows(running, table)) as rows, SteadyStream().to(running, topic) as stream:
        while time.monotonic() < end_s:
            count = rows.count()
            found += [(at_s, rows.changed_s - at_s) for at_s in stream.sent_s[seen:count]]
            seen = max(seen, count)
            rows.pause()
    settled_s = stream.sent_s[0] + warm_up_s
    return sorted(delay_s for at_s, delay_s in found if at_s > settled_s)
