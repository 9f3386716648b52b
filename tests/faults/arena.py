"""One stack for the faults that leave it standing, and what each of them must leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.chaos import NODE, Field, Verdict
from tests.faults.checkers import check_progress
from tests.faults.production import Production

RECORDS = int(os.environ.get("FAULT_POINT_RECORDS", "20000"))
RECORDS_PER_S = 4_000
LOAD = 10_000_000  # more than any fault lasts
INTERVAL_MS = 1_000
WAREHOUSE_MB = 512
NODE_PROPERTIES = {
    **NODE,
    "icefloe.drain.grace.ms": "5000",
    "icefloe.metadata.refresh.ms": "500",
    "icefloe.child.silence.max.ms": "600000",  # the frozen are to come back
}


@dataclass
class Arena:
    """A stack, the payments into it, and what was done to it.

    Attributes:
        run: the stack.
        production: of the payments.
        config: the connector's, as it is now.
        armed: folder in which files arm failpoints.
        is_small: the warehouse is a file system of ``WAREHOUSE_MB`` of its own.
        heals: per fault its name, rows in the tables when it was over, and later.
        interrupted_s: per change the longest time without a commit, less the interval.
    """

    run: Field
    production: Production
    config: dict[str, str]
    armed: Path
    is_small: bool
    heals: list[tuple[str, int, int]] = field(default_factory=list)
    interrupted_s: dict[str, float] = field(default_factory=dict)
    node_sizes: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Records come in while the block runs; afterwards everything is as it must be."""
        run, production = self.run, self.production
        production.start(LOAD, LOAD)
        began = run.committed()
        try:
            run.wait_until(lambda: run.committed() > began, "progress before the fault")
            yield
            healed = run.committed()
            run.wait_until(lambda: run.committed() > healed, "progress after the fault")
        finally:
            production.end()
        run.wait_until_committed(production.rows)
        self.heals.append((name, healed, run.committed()))
        verdict = self.check()
        assert verdict.records == production.sent

    def check(self) -> Verdict:
        """Nothing is wrong with what is there."""
        verdict = self.run.verdict()
        assert not verdict.wrong
        assert not check_progress(self.heals)
        node = psutil.Process(self.run.wait_until(self.run.node_pid, "a node"))
        self.node_sizes.append((node.num_threads(), node.num_fds()))
        return verdict

    def arm(self, point: str, action: str) -> None:
        """Arm a failpoint."""
        hidden = self.armed / f".{point}"
        hidden.write_text(action)
        hidden.rename(self.armed / point)

    def wait_until_hit(self, point: str) -> None:
        """Wait until a process has reached an armed failpoint."""
        self.run.wait_until(lambda: not (self.armed / point).exists(), f"hit of {point}")
