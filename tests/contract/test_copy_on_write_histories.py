"""Random histories of commits to Iceberg tables that remove rows, compared with a model."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyroaring import BitMap64

from connect.config.connector import ConnectorConfig
from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.catalog.catalog import open_catalog
from coordinator.commit.iceberg.committer import Committer, ReadyCommit
from coordinator.commit.metadata.head_files import HeadFile
from coordinator.commit.row_changes.deletion_vectors import VectorPlace
from coordinator.commit.row_changes.former_deletes import FormerPositions, place_in_file
from coordinator.commit.row_changes.row_removal import RowRemoval
from coordinator.kernel.effects import TableCommit, TableCommitted
from coordinator.row_deletes.limits import DEFAULT_LIMITS
from tests.support.running_stack import duckdb_rows
from tests.support.table_harness import Racing
from tests.support.upserts import (
    LineageUpserts,
    MarkedUpserts,
    MixedUpserts,
    Row,
    Upserts,
    VectorUpserts,
    row,
)

MODES = [
    pytest.param(Upserts, id="copy-on-write"),
    pytest.param(MarkedUpserts, id="position-deletes"),
    pytest.param(LineageUpserts, id="copy-on-write-v3"),
    pytest.param(VectorUpserts, id="deletion-vectors"),
    pytest.param(MixedUpserts, id="both"),
]
SEEDS = int(os.environ.get("COPY_ON_WRITE_SEEDS", "1"))
SPECS = {
    "none": None,
    "key": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
    "other": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
}


SOME = {
    ("copy-on-write", "none"),
    ("position-deletes", "other"),
    ("copy-on-write-v3", "key"),
    ("deletion-vectors", "none"),
    ("both", "other"),
}
"""Of the default suite: each mode, and each specification."""


class Unreliable(Racing):
    """A catalog that refuses commits, or does not answer them: applied, not applied, or later.

    Args:
        t: the table; another writer adds rows to it between the attempts of a commit.
        rng: decides everything.
    """

    def __init__(self, t: Upserts, rng: random.Random) -> None:
        super().__init__(t.catalog, [])
        self.t, self.rng = t, rng
        self.under_way: list[tuple[tuple[object, ...], dict[str, object]]] = []
        self.deleted: set[tuple[Any, ...]] = set()

    def load(self, *args: Any, **more: Any) -> Table:
        """Load the table; requests under way may land before."""
        self.land_some()
        return self.t.catalog.load(*args, **more)

    def commit(self, *change: object, **options: object) -> Table:
        """Commit, perhaps, and answer, perhaps."""
        self.land_some()
        if not self.under_way and self.rng.random() < 0.2:
            more = [some_row(self.rng) for _ in range(2)]
            self.t.foreign(more)
            self.t.rows += [each for each in more if self.t.key(each) not in self.deleted]
        chance = self.rng.random()
        if chance < 0.1:
            raise CommitConflict("refused")
        if chance < 0.2:
            raise CommitStateUnknown("not applied")
        if chance < 0.35:
            self.under_way.append((change, options))
            raise CommitStateUnknown("applied later")
        after = super().commit(*change, **options)
        if chance < 0.5:
            raise CommitStateUnknown("applied")
        return after

    def land_some(self) -> None:
        """Apply requests under way, if their conditions still hold."""
        while self.under_way and self.rng.random() < 0.5:
            change, options = self.under_way.pop()
            with contextlib.suppress(CommitConflict):
                super().commit(*change, **options)


def some_row(rng: random.Random) -> Row:
    """A row with one of a few keys."""
    key = rng.choice([None, *range(12)])
    return row(key, rng.randrange(10**6), rng.choice([None, "eu", "us"]))


def some_step(rng: random.Random, t: Upserts) -> tuple[list[Row], list[Row]]:
    """Rows to upsert, with different keys, and rows to delete."""
    by_key = {t.key(r): r for r in (some_row(rng) for _ in range(rng.randrange(5)))}
    gone = [r for r in (some_row(rng) for _ in range(rng.randrange(3))) if t.key(r) not in by_key]
    return list(by_key.values()), gone


def play(t: Upserts, rng: random.Random, committers: type[Committer], rounds: int) -> None:
    """Bring random rounds into a table, and compare it with the model after each."""
    catalog = Unreliable(t, rng)
    committer = t.committer(catalog, committers)
    for _ in range(rounds):
        steps = [some_step(rng, t) for _ in range(rng.randrange(1, 4))]
        catalog.deleted = {t.key(r) for step in steps for rows in step for r in rows}
        if rng.random() < 0.3:
            committer = t.committer(catalog, committers)
        commit = t.round(*steps)
        outcomes = (committer.commit(commit) for _ in range(20))
        assert any(isinstance(outcome, TableCommitted) for outcome in outcomes)
        t.check()


def histories() -> list[Any]:
    """Each mode with each specification."""
    return [
        pytest.param(
            *mode.values,
            spec,
            id=f"{mode.id}-{spec}",
            marks=() if (mode.id, spec) in SOME else pytest.mark.matrix,
        )
        for mode in MODES
        for spec in SPECS
    ]


@pytest.mark.parametrize(("tables", "spec"), histories())
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories(
    sql_catalog_properties: dict[str, str], tables: type[Upserts], spec: str, seed: int
) -> None:
    """The table equals the model after every round, with any answers and other writers."""
    rng = random.Random(f"{spec}-{seed}")
    # with one seed, each mode and each specification has tables of either key
    turn = seed + list(SPECS).index(spec) + [mode.values[0] for mode in MODES].index(tables)
    keys = ("id",) if turn % 2 else ("id", "region")
    t = tables(open_catalog("iceberg", sql_catalog_properties), SPECS[spec], keys)
    play(t, rng, Committer, 6)
    if t.rows:
        read = duckdb_rows(t.reloaded(), "coalesce(id, -1)", "coalesce(region, '')", "value")
        assert read == sorted(
            (-1 if r["id"] is None else r["id"], r["region"] or "", r["value"]) for r in t.rows
        )
    t.catalog.close()


class Hasty(Committer):
    """A committer with a bug: it uses the resolution of its first attempt in all attempts."""

    def begin(self, commit: TableCommit) -> ReadyCommit | TableCommitted:
        """As the committer, with the bug."""
        ready = super().begin(commit)
        if isinstance(ready, ReadyCommit):
            snapshot = ready.attempts.snapshot
            snapshot.removal = HastyRemoval(snapshot.removal)  # type: ignore[assignment] # the same methods
        return ready


class HastyRemoval:
    """A removal that resolves the deletes once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._first: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def on(self, *attempt: Any) -> Any:
        """Return the first resolution."""
        self._first = self._first or [self._inner.on(*attempt)]
        return self._first[0]


def is_found(properties: dict[str, str], tables: type[Upserts], made: type[Committer]) -> bool:
    """Whether a few histories find a bug."""

    def fails(seed: int) -> bool:
        t = tables(open_catalog("iceberg", properties))
        try:
            play(t, random.Random(seed), made, 6)
        except (AssertionError, FileNotFoundError):
            return True
        finally:
            t.catalog.close()
        return False

    return any(fails(seed) for seed in range(100))


@pytest.mark.parametrize(
    "tables",
    [
        MODES[0],
        *(pytest.param(*m.values, id=m.id, marks=pytest.mark.matrix) for m in MODES[1:]),
    ],
)
def test_a_planted_bug_is_found(
    sql_catalog_properties: dict[str, str], tables: type[Upserts]
) -> None:
    """Rows of another snapshot are never used, else a history finds it."""
    assert is_found(sql_catalog_properties, tables, Hasty)


class Forgetful(Committer):
    """A committer with a bug: it forgets the rows that the vectors of the table mark."""

    def __init__(self, catalog: Any, config: ConnectorConfig, clock: Any, **more: Any) -> None:
        super().__init__(catalog, config, clock, **more)
        self._new_removal = partial(ForgetfulRemoval.of, config, clock, limits=DEFAULT_LIMITS)


class ForgetfulRemoval(RowRemoval):
    """A removal with vectors that mark nothing."""

    def _work(self, *table: Any) -> Any:
        work = super()._work(*table)
        work.writer.vectors = NoVectors()
        return work


class Anonymous(Committer):
    """A committer with a bug: its copies have no row ids."""

    def __init__(self, catalog: Any, config: ConnectorConfig, clock: Any, **more: Any) -> None:
        super().__init__(catalog, config, clock, **more)
        self._new_removal = partial(AnonymousRemoval.of, config, clock, limits=DEFAULT_LIMITS)


class AnonymousRemoval(RowRemoval):
    """A removal whose copies have no row ids."""

    def _work(self, *table: Any) -> Any:
        work = super()._work(*table)
        work.writer.has_lineage = False
        return work


class NoVectors:
    """Vectors that mark nothing."""

    def of(self, _: Any, vectors: Iterable[HeadFile]) -> dict[VectorPlace, BitMap64]:
        """Return no row of any vector."""
        return {place_in_file(vector): BitMap64() for vector in vectors}


@pytest.mark.parametrize(
    "tables", [VectorUpserts, pytest.param(MixedUpserts, marks=pytest.mark.matrix)]
)
def test_a_forgotten_vector_is_found(
    sql_catalog_properties: dict[str, str], tables: type[Upserts]
) -> None:
    """A vector or a copy that replaces a vector without its rows brings rows back."""
    assert is_found(sql_catalog_properties, tables, Forgetful)


class Unmarked(Committer):
    """A committer with a bug: it forgets the rows that position delete files mark."""

    def __init__(self, catalog: Any, config: ConnectorConfig, clock: Any, **more: Any) -> None:
        super().__init__(catalog, config, clock, **more)
        self._new_removal = partial(UnmarkedRemoval.of, config, clock, limits=DEFAULT_LIMITS)


class UnmarkedRemoval(RowRemoval):
    """A removal with position delete files that mark nothing."""

    def _work(self, *table: Any) -> Any:
        work = super()._work(*table)
        work.writer.positions = NoPositions(work.deletes.budget)
        return work


class NoPositions(FormerPositions):
    """Position delete files that mark nothing."""

    def of_file(self, *_: object) -> BitMap64:
        """Return no row."""
        return BitMap64()


def test_forgotten_position_deletes_are_found(sql_catalog_properties: dict[str, str]) -> None:
    """A copy of a file with position deletes would bring rows back."""
    assert is_found(sql_catalog_properties, MarkedUpserts, Unmarked)


def test_forgotten_row_ids_are_found(sql_catalog_properties: dict[str, str]) -> None:
    """Rows that stay would have new ones."""
    assert is_found(sql_catalog_properties, LineageUpserts, Anonymous)
