"""The committer of Parquet folders under every fault, by seed: readers see each file, and no other.

Rules of this file:
- Production code runs: the committer, the log, the publication. Only the store is in memory.
- Processes are killed at any request, also between a commit and the publication of its files.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import IcefloeError
from connect.gateways.catalog_properties import client_config
from connect.gateways.parquet.parquet_tables import CompletedTables, ParquetTables
from control_schemas.events import TableReference
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.commit.table_logs.parquet_files import parquet_file
from coordinator.kernel.effects import CoordinatorFenced, Envelope, TableCommitted, TableFailed
from tests.simulation.delta_log import SteppedClock
from tests.simulation.folder_store import Killed, MemoryStore
from tests.simulation.table_rounds import DONE, TableRounds
from tests.support.parquet_folders import parquet_connector
from tests.support.tables import announced, data_file_named, table_commit

SEEDS = int(os.environ.get("PARQUET_SEEDS", "150"))
FIRST_SEED = int(os.environ.get("PARQUET_FIRST_SEED", "1"))
CONFIG = parquet_connector("/lake")
LOCATION = "file:///lake/db/events"
IDENTIFIER = ("db", "events")
CONTENT = bytes(100)


class ParquetRun(TableRounds):
    """One folder, its announcements, and the coordinators that bring them in.

    Args:
        seed: decides everything.
        completes: False is a planted defect: what an earlier commit left is not published.
        defect: planted defects of the store.
    """

    def __init__(self, seed: int, *, completes: bool = True, **defect: bool) -> None:
        self.chance = chance = random.Random(seed)
        self.completes = completes
        self.store = MemoryStore(chance, is_posix=chance.random() < 0.5, **defect)
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        self.tables().create(IDENTIFIER, schema, UNPARTITIONED_PARTITION_SPEC, {})
        table_uuid = self.tables().load(IDENTIFIER).table_uuid
        self.reference = TableReference("iceberg", IDENTIFIER[:1], IDENTIFIER[1], table_uuid)
        self.store.fault_ratio = chance.choice((0.0, 0.05, 0.15, 0.3))
        self.offsets = dict.fromkeys(range(chance.choice((1, 3))), 0)
        self.coordinators = [self.coordinator()]
        self.announced: list[Envelope] = []
        self.names: list[str] = []

    def tables(self) -> ParquetTables:
        """The tables as a process opens them."""
        properties = client_config(CONFIG.catalog_properties).properties
        return ParquetTables(properties, open_store=lambda *_: self.store, checkpoint_commits=3)

    def coordinator(self) -> LogCommitter[Any]:
        """A coordinator as after its start."""
        tables = self.tables()
        logs: Any = CompletedTables(tables) if self.completes else tables
        clock = SteppedClock(self.chance)
        return LogCommitter(logs, parquet_file, CONFIG, clock, control_topic_id="topic")

    def announce(self) -> None:
        """Stage and announce some files."""
        for _ in range(self.chance.randrange(4)):
            partition = self.chance.choice(list(self.offsets))
            name = f"{len(self.names):05}.parquet"
            self.names.append(name)
            staged = f"_icefloe/staged/{name}.staged"
            self.store.files[staged] = CONTENT
            file, offset = data_file_named(f"{LOCATION}/{staged}"), self.offsets[partition]
            event = announced(self.reference, [file], offset=offset, partition=partition)
            self.announced.append(event)
            self.offsets[partition] += 1 + self.chance.randrange(3)

    def step(self) -> str | None:
        """Let one process act; return ``done``, what is wrong, or None to continue."""
        chance = self.chance
        self.store.land_some()
        if chance.random() < 0.1:
            self.add_column()
        if chance.random() < 0.15:
            self.coordinators.append(self.coordinator())
        # a former coordinator may act again
        worker = self.coordinators[-1]
        if chance.random() < 0.2:
            worker = chance.choice(self.coordinators)
        commit = table_commit(
            self.announced, until=self.offsets, valid_through_us=chance.randrange(10**12)
        )
        try:
            outcome = worker.commit(commit)
        except Killed:
            outcome = CoordinatorFenced(commit.table, commit.commit_id, "killed")
        if isinstance(outcome, CoordinatorFenced):
            self.coordinators.remove(worker)
            self.coordinators = self.coordinators or [self.coordinator()]
        elif isinstance(outcome, TableFailed) and not outcome.is_retriable:
            return f"{outcome.code}: {outcome.message}"
        return DONE if isinstance(outcome, TableCommitted) else self.uncommitted()

    def add_column(self) -> None:
        """Let a worker add a column; it does so again later if it cannot."""
        tables = self.tables()
        try:
            version = tables.load(IDENTIFIER)
            last = version.schema.highest_field_id + 1
            column = NestedField(last, f"c{last}", LongType(), required=False)
            tables.add_columns(version, Schema(*version.schema.fields, column))
        except (IcefloeError, Killed):
            return

    def uncommitted(self) -> str | None:
        """Return what is wrong with what readers see now."""
        committed = set()
        for path, content in self.store.files.items():
            if path.endswith(".json") and "/commits/" in path:
                committed |= {file["path"] for file in json.loads(content)["files"]}
        return None if committed >= set(self.store.visible()) else "a file is not committed"

    def is_complete(self) -> bool:
        """Whether readers see all announced files."""
        return self.store.visible() == self.names

    def end(self) -> list[str]:
        """Let every request land; return what is wrong with the folder."""
        while self.store.under_way:
            self.store.land_some()
        wrong = [] if self.store.visible() == self.names else ["files are missing, or too many"]
        return wrong if self.store.seen <= set(self.names) else [*wrong, "a file was seen"]


def run(seed: int, **defect: bool) -> list[str]:
    """Bring some rounds into a folder; return what is wrong."""
    return ParquetRun(seed, **defect).run()


def test_readers_see_every_file_and_no_other() -> None:
    """With any faults, kills, late requests, new columns and former coordinators."""
    failed = {seed: found for seed in range(FIRST_SEED, FIRST_SEED + SEEDS) if (found := run(seed))}
    assert not failed, dict(list(failed.items())[:5])


@pytest.mark.parametrize("defect", ["is_conditional", "copies", "completes"])
def test_planted_defects_are_found(defect: str) -> None:
    """Within 1,000 seeds."""
    assert any(run(seed, **{defect: False}) for seed in range(1_000))
