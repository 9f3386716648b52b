"""When produced records become visible in a table: a steady stream, and its delays.

Rules of this file:
- The table is asked for as little as possible, because that takes CPU from what is measured: only
  where its metadata is, and what it contains once that has changed.
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

from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import MeasuredStack

LINGER_MS = float(os.environ.get("BENCH_LINGER_MS", "0"))
PERIOD_S = 0.01
POLL_S = 0.005
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
        self._catalog = sqlite3.connect(uri.removeprefix("sqlite:///"), check_same_thread=False)
        self._location: str | None = None
        self._rows = 0

    def count(self) -> int:
        """Return the present number of rows."""
        try:
            found = self._catalog.execute(_WHERE, self._table.split(".")).fetchone()
        except sqlite3.OperationalError:  # locked, or without tables yet
            return self._rows
        location = found[0] if found else None
        if location != self._location:
            self.changed_s = time.monotonic()
            self._location, self._rows = location, self._running.rows(self._table)
        return self._rows

    def wait_for(self, rows: int, limit_s: float = 120.0) -> float:
        """Wait until so many rows are visible; return the time (monotonic, seconds)."""
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if self.count() >= rows:
                return self.changed_s
            time.sleep(POLL_S)
        raise TimeoutError(f"{self.count()} of {rows} rows of {self._table} are visible")

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
    running: MeasuredStack, topic: str, table: str, *, seconds: float, warm_up_s: float = 10.0
) -> list[float]:
    """Return the sorted times from produce to visible of a steady stream.

    Args:
        running: the stack; the connector of the topic runs.
        topic: with one partition.
        table: of the connector.
        seconds: how long to measure.
        warm_up_s: records of this time at the start are left out.
    """
    found: list[tuple[float, float]] = []
    seen, end_s = 0, time.monotonic() + seconds
    with closing(VisibleRows(running, table)) as rows, SteadyStream().to(running, topic) as stream:
        while time.monotonic() < end_s:
            count = rows.count()
            found += [(at_s, rows.changed_s - at_s) for at_s in stream.sent_s[seen:count]]
            seen = max(seen, count)
            time.sleep(POLL_S)
    settled_s = stream.sent_s[0] + warm_up_s
    return sorted(delay_s for at_s, delay_s in found if at_s > settled_s)
