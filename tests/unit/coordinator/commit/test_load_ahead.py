"""Which tables a round loads before its announcements arrive."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from control_schemas.events import TableReference
from coordinator.commit.load_ahead import INTERVAL_MS_MAX, TABLES_MAX, AheadTables
from coordinator.kernel.effects import TableCommit

COMMIT = TableCommit(TableReference("iceberg", ("db",), "t"), UUID(int=1), (), {}, None, "c-0")


def commits(count: int) -> list[TableCommit]:
    """The tables of a round."""
    return [replace(COMMIT, table=replace(COMMIT.table, name=f"t{n}")) for n in range(count)]


def test_tables_of_the_round_before_are_loaded_once() -> None:
    """Not again for a repeated StartCommit, and not after a round without files."""
    tables = AheadTables(INTERVAL_MS_MAX)
    assert tables.round_started(UUID(int=1)) == ()
    tables.committing(commits(2))
    assert tables.round_started(UUID(int=2)) == (("db", "t0"), ("db", "t1"))
    assert tables.round_started(UUID(int=2)) == ()
    assert tables.round_started(UUID(int=3)) == ()


def test_the_number_of_tables_is_bounded() -> None:
    """Of 1,000 tables the first 64 are loaded: each takes memory until its commit."""
    tables = AheadTables(1_000)
    tables.committing(commits(1_000))
    assert len(tables.round_started(UUID(int=1))) == TABLES_MAX


def test_nothing_is_loaded_at_long_intervals() -> None:
    """A round trip is a small part of such an interval."""
    tables = AheadTables(INTERVAL_MS_MAX + 1)
    tables.committing(commits(1))
    assert tables.round_started(UUID(int=1)) == ()
