"""The committer of Delta tables under every fault, by seed: each file is in the table once."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from uuid import UUID

import pytest

from control_schemas.events import TableReference
from coordinator.commit.table_logs.delta_files import delta_file, held_before
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import CoordinatorFenced, Envelope, TableCommitted, TableFailed
from tests.simulation.delta_log import LOCATION, TABLE_UUID, DeltaLog, LogVersion, SteppedClock
from tests.simulation.table_rounds import DONE, TableRounds
from tests.support.delta_tables import delta_connector
from tests.support.tables import announced, data_file_named, table_commit

SEEDS = int(os.environ.get("DELTA_SEEDS", "600"))
FIRST_SEED = int(os.environ.get("DELTA_FIRST_SEED", "1"))
CONFIG = delta_connector("/lake")
OPTIMIZED = "optimized/"
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
        self.log.stored = set()
        self.clock = SteppedClock(chance)
        self.sent: list[Envelope] = []
        self.offsets = dict.fromkeys(range(chance.choice((1, 3))), 0)
        self.coordinators = [self.coordinator()]
        self.announced: list[Envelope] = []
        self.files: list[str] = []

    def coordinator(self) -> LogCommitter:
        """A coordinator as after its start."""
        return LogCommitter(
            self.log,
            delta_file,
            CONFIG,
            self.clock,
            control_topic_id="topic",
            prove=held_before,
        )

    def announce(self) -> None:
        """Announce some files, of which some were announced before, and maintain the table."""
        chance = self.chance
        self.maintain()
        for _ in range(chance.randrange(4)):
            partition = chance.choice(list(self.offsets))
            offset = self.offsets[partition]
            self.clock.sleep_ms(chance.choice((1, 1_000, 90_000)))
            if self.sent and chance.random() < 0.2:
                repeated = chance.choice(self.sent)
                envelope = replace(repeated, offset=offset, partition=partition)
            else:
                unique = UUID(int=self.clock.now_ms() << 80 | 7 << 76 | 1 << 63 | len(self.files))
                name = f"data/{unique}.parquet"
                self.files.append(name)
                self.log.stored.add(f"{LOCATION}/{name}")
                file = data_file_named(f"{LOCATION}/{name}")
                envelope = announced(REFERENCE, [file], offset=offset, partition=partition)
            self.sent.append(envelope)
            self.announced.append(envelope)
            self.offsets[partition] += 1 + chance.randrange(3)

    def maintain(self) -> None:
        """Replace all files by one, and sometimes delete those that were replaced."""
        chance, log = self.chance, self.log
        live = tuple(log.live())
        if live and chance.random() < 0.2:
            path = f"{OPTIMIZED}{len(log.versions)}.parquet"
            log.versions.append(LogVersion((path,), {}, {}, live, self.clock.now_ms()))
            if chance.random() < 0.5:
                log.stored.difference_update(f"{LOCATION}/{path}" for path in live)

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
        return set(self._added()) == set(self.files)

    def _added(self) -> list[str]:
        return [path for path in self.log.files() if not path.startswith(OPTIMIZED)]

    def end(self) -> list[str]:
        """Let every request land; return what is wrong with the table."""
        while self.log.under_way:
            self.log.land_some()
        added = self._added()
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
