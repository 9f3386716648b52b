"""Which Spark task writes a table, by the rows of the last batches."""

from __future__ import annotations

from collections import Counter

from control_schemas.events import ContentFile, FileContent
from worker.batch.distribution import Distribution, TableShares


def files(rows: int, count: int = 1) -> tuple[ContentFile, ...]:
    """Files of a table that have so many rows each."""
    return tuple(
        ContentFile(FileContent.DATA, f"f{n}", "PARQUET", 0, (), rows, 10) for n in range(count)
    )


def shares(rows: dict[str, int]) -> TableShares:
    """What a batch with these rows shows."""
    counted = TableShares()
    counted.add({name: files(count) for name, count in rows.items()})
    return counted


def distribution(counted: TableShares, tasks: int, records: int = 1_000) -> Distribution:
    """The distribution over as many tasks as there are readers."""
    return counted.distribution(tasks, read_tasks=tasks, records=records, folder=None)


def test_each_table_has_one_task_and_each_task_tables() -> None:
    """The same in every process: Python's own hash differs between them."""
    chosen = distribution(TableShares(), 8)
    tasks = {name: chosen.task_of(name) for name in (f"db.t{n}" for n in range(1_000))}
    assert (tasks["db.t0"], tasks["db.t1"]) == (0, 1)
    found = Counter(tasks.values())
    assert set(found) == set(range(8))
    assert max(found.values()) < 1.3 * 1_000 / 8


def test_a_table_with_the_share_of_a_task_is_written_where_it_is_read() -> None:
    """A half of all rows for two tasks, a quarter for four."""
    counted = shares({"db.large": 500, "db.third": 300, "db.small": 200})
    assert distribution(counted, 2).kept == {"db.large"}
    assert distribution(counted, 4).kept == {"db.large", "db.third"}


def test_tables_of_middle_size_are_placed_so_that_tasks_have_equal_rows() -> None:
    """By chance two of them could be in one task, which would then end last."""
    counted = shares({f"db.t{n}": 90 + n for n in range(8)} | {f"db.s{n}": 1 for n in range(99)})
    chosen = distribution(counted, 4)
    assert not chosen.kept
    assert sorted(Counter(chosen.placed.values()).values()) == [2, 2, 2, 2]
    assert set(chosen.placed) == {f"db.t{n}" for n in range(8)}
    assert chosen.task_of("db.t7") != chosen.task_of("db.t6")


def test_a_reader_passes_on_so_many_rows_of_a_table_that_no_task_gets_twice_its_share() -> None:
    """With four readers and four writers: a quarter of a quarter of the records, each."""
    assert distribution(TableShares(), 4, records=1_600).rows_max == 100
    assert TableShares().distribution(4, read_tasks=9, records=1, folder=None).rows_max == 1


def test_old_batches_count_less_than_new_ones() -> None:
    """A table that was large once is not large for ever, and small reads do not decide alone."""
    counted = shares({"db.old": 800_000})
    counted.add({"db.new": files(100)})
    assert distribution(counted, 2).kept == {"db.old"}
    counted.add({"db.new": files(500_000, 2)})
    assert distribution(counted, 2).kept == {"db.new"}
    assert "db.old" not in distribution(counted, 2).placed
