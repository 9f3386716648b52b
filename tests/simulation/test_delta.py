"""The committer of Delta tables under every fault, by seed: each file is in the table once."""

from __future__ import annotations

import os
import random

import pytest

from control_schemas.events import TableReference
from coordinator.commit.table_logs.delta_files import delta_file
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import CoordinatorFenced, Envelope, TableCommitted, TableFailed
from tests.simulation.delta_log import LOCATION, TABLE_UUID, DeltaLog, SteppedClock
from tests.simulation.table_rounds import DONE, TableRounds
from tests.support.delta_tables import delta_connector
from tests.support.tables import announced, data_file_named, table_commit

SEEDS = int(os.environ.get("DELTA_SEEDS", "600"))
FIRST_SEED = int(os.environ.get("DELTA_FIRST_SEED", "1"))
CONFIG = delta_connector("/lake")
REFERENCE = TableReference("iceberg", ("db",), "events", TABLE_UUID)


class DeltaRun(TableRounds):
    """One table, its announcements, and the coordinators that bring them in.

    Args:
        seed: decides everything.
        defect: planted defects of the log.
    """

    def __init__(self, seed: int, **defect: bool) -> None:
        self.chance = chance = random.Random(seed)
        self.log = DeltaLog(chance, fault_ratio=chance.choice((0.0, 0.1, 0.3, 0.6)), **defect)
        self.offsets = dict.fromkeys(range(chance.choice((1, 3))), 0)
        self.coordinators = [self.coordinator()]
        self.announced: list[Envelope] = []
        self.files: list[str] = []

    def coordinator(self) -> LogCommitter:
        """A coordinator as after its start."""
        clock = SteppedClock(self.chance)
        return LogCommitter(self.log, delta_file, CONFIG, clock, control_topic_id="topic")

    def announce(self) -> None:
        """Announce some files."""
        for _ in range(self.chance.randrange(4)):
            partition = self.chance.choice(list(self.offsets))
            name = f"data/{len(self.files):05}.parquet"
            self.files.append(name)
            file, offset = data_file_named(f"{LOCATION}/{name}"), self.offsets[partition]
            self.announced.append(announced(REFERENCE, [file], offset=offset, partition=partition))
            self.offsets[partition] += 1 + self.chance.randrange(3)

    def step(self) -> str | None:
        """Let one coordinator commit; return ``done``, what is wrong, or None to continue."""
        chance = self.chance
        if chance.random() < 0.15:
            self.coordinators.append(self.coordinator())
        # a former coordinator may act again
        worker = self.coordinators[-1]
        if chance.random() < 0.2:
            worker = chance.choice(self.coordinators)
        # announcements that are in the table are read again by a new coordinator
        claimed_us = chance.randrange(10**12)
        commit = table_commit(self.announced, until=self.offsets, valid_through_us=claimed_us)
        outcome = worker.commit(commit)
        if isinstance(outcome, CoordinatorFenced):
            self.coordinators.remove(worker)
            self.coordinators = self.coordinators or [self.coordinator()]
        elif isinstance(outcome, TableFailed) and not outcome.is_retriable:
            return f"{outcome.code}: {outcome.message}"
        return DONE if isinstance(outcome, TableCommitted) else None

    def is_complete(self) -> bool:
        """Whether the table has all announced files."""
        return set(self.log.files()) == set(self.files)

    def end(self) -> list[str]:
        """Let every request land; return what is wrong with the table."""
        while self.log.under_way:
            self.log.land_some()
        added = self.log.files()
        wrong = [] if sorted(set(added)) == sorted(self.files) else ["files are missing"]
        return wrong if len(set(added)) == len(added) else [*wrong, "a file was added twice"]


def run(seed: int, **defect: bool) -> list[str]:
    """Bring some rounds into a table; return what is wrong."""
    return DeltaRun(seed, **defect).run()


def test_every_file_is_in_the_table_once() -> None:
    """With any faults, late commits and former coordinators."""
    failed = {seed: found for seed in range(FIRST_SEED, FIRST_SEED + SEEDS) if (found := run(seed))}
    assert not failed, dict(list(failed.items())[:5])


@pytest.mark.parametrize("defect", ["is_conditional", "keeps_transactions"])
def test_planted_defects_are_found(defect: str) -> None:
    """Within 1,000 seeds."""
    assert any(run(seed, **{defect: False}) for seed in range(1_000))
