"""One stack that many fault tests share, and the check after each fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.checkers import check_progress
from tests.faults.payments_producer import PaymentsProducer
from tests.faults.payments_stack import NODE, CheckResult, PaymentsStack

RECORDS = int(os.environ.get("FAULT_POINT_RECORDS", "20000"))
RECORDS_PER_S = 4_000
LOAD = 10_000_000  # more records than any fault lasts
INTERVAL_MS = 1_000
WAREHOUSE_MB = 512
NODE_PROPERTIES = {
    **NODE,
    "icefloe.drain.grace.ms": "5000",
    "icefloe.metadata.refresh.ms": "500",
    "icefloe.child.silence.max.ms": "600000",  # frozen processes are to continue
}


@dataclass
class SharedStack:
    """A running stack, its producer of payments, and the faults so far.

    Attributes:
        run: the stack.
        producer: of payments.
        config: the present configuration of the connector.
        armed: folder; a file in it arms a failpoint.
        is_small: the warehouse is a file system of ``WAREHOUSE_MB`` of its own.
        recoveries: per fault its name, the rows when it ended, and the rows later.
        interrupted_s: per change the longest time without a commit, minus the interval.
    """

    run: PaymentsStack
    producer: PaymentsProducer
    config: dict[str, str]
    armed: Path
    is_small: bool
    recoveries: list[tuple[str, int, int]] = field(default_factory=list)
    interrupted_s: dict[str, float] = field(default_factory=dict)
    node_sizes: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Produce records while the block runs; then check tables, offsets and counts."""
        run, producer = self.run, self.producer
        producer.start(LOAD, LOAD)
        began = run.committed()
        try:
            run.wait_until(lambda: run.committed() > began, "progress before the fault")
            yield
            recovered = run.committed()
            run.wait_until(lambda: run.committed() > recovered, "progress after the fault")
        finally:
            producer.stop()
        run.wait_until_committed(producer.rows)
        self.recoveries.append((name, recovered, run.committed()))
        result = self.check()
        assert result.records == producer.sent

    def check(self) -> CheckResult:
        """Check everything that is stored now."""
        result = self.run.check_result()
        assert not result.findings
        assert not check_progress(self.recoveries)
        node = psutil.Process(self.run.wait_until(self.run.node_pid, "a node"))
        self.node_sizes.append((node.num_threads(), node.num_fds()))
        return result

    def arm(self, point: str, action: str) -> None:
        """Arm a failpoint."""
        hidden = self.armed / f".{point}"
        hidden.write_text(action)
        hidden.rename(self.armed / point)

    def wait_until_hit(self, point: str) -> None:
        """Wait until a process has reached an armed failpoint."""
        self.run.wait_until(lambda: not (self.armed / point).exists(), f"hit of {point}")
