"""Exceptions that no code expects: the record that causes one is refused; others are written."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig, TransformConfig
from connect.errors import RecordError, RetriableError
from connect.gateways.catalog.catalog import open_catalog
from connect.model.records import SinkRecord
from connect.records.transforms.custom_transforms import GROUP, installed
from tests.differential.support import config, source
from tests.support.entry_points import install
from tests.support.unusable_tables import (
    AT,
    NAMES,
    SCHEMA,
    OneTableRefused,
    SparkRows,
    Task,
    named,
    rows_of,
)
from worker.batch.blocks import Block
from worker.pipeline.record_search import FAILED_RECORDS_MAX, BlockSearch
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.tables.task_tables import REFRESH_MS
from worker.task.task_metrics import BatchMetrics
from worker.write.table_writer import OpenFile, TableWriter

ALL = {"errors.tolerance": "all"}


def own(**more: str) -> ConnectorConfig:
    """A connector with the transformation ``Own``."""
    return dataclasses.replace(config(**more), transforms=(TransformConfig("own", "Own"),))


@dataclass
class Bug:
    """A user's transformation with a bug: some records raise an exception of no bad data.

    Attributes:
        raises: the exception of each kind of record.
        calls: transformations so far.
        ends: number of the call after which nothing is raised.
    """

    raises: dict[str, Callable[[], BaseException]]
    calls: int = 0
    ends: int = 1_000_000

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """Return the record, or raise."""
        self.calls += 1
        error = self.raises.get(record.value["kind"])
        if error is not None and self.calls <= self.ends:
            raise error()
        return record


class FailingTask(Task):
    """A task whose Spark work fails."""

    def write(self, kinds: Sequence[str]) -> WrittenBatch:
        """Write a record for each kind."""
        values = [json.dumps({"id": i, "kind": kind}).encode() for i, kind in enumerate(kinds)]
        batch = source(values).select(list(self.runner.columns))
        self.runner.refresh()
        part = OffsetRanges({AT: 0}, {AT: len(values)})
        return self.runner.run(SparkRows(batch), part)


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[OneTableRefused]:
    """One table on SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    opened.close()
    gateway = OneTableRefused("iceberg", opened.config)
    gateway.create(("db", "t1"), SCHEMA)
    yield gateway
    gateway.close()


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bug]:
    """The transformation ``Own``."""
    made = Bug({})
    module = types.ModuleType("own_transforms")
    vars(module)["make"] = lambda _: made
    monkeypatch.setitem(sys.modules, "own_transforms", module)
    install(monkeypatch, tmp_path / "own", GROUP, "Own = own_transforms:make")
    installed.cache_clear()
    yield made
    installed.cache_clear()


def data_files(folder: Path) -> int:
    return len(list(folder.rglob("*.parquet")))


def test_a_record_that_raises_becomes_a_dead_letter(
    catalog: OneTableRefused, bug: Bug, tmp_path: Path
) -> None:
    """With the text of its exception. The others are written, and no file of the search remains."""
    bug.raises = {
        "bad": lambda: AssertionError("never so"),
        "odd": lambda: NotImplementedError("odd"),
    }
    kinds = ["x"] * 300
    kinds[7], kinds[250] = "bad", "odd"
    batch = FailingTask(catalog, own(**ALL)).write(kinds)
    assert rows_of(batch) == {"t1": 298}
    assert [(d.record.offset, d.error.code, d.error.message) for d in batch.dead_letters] == [
        (7, "record_failed", "the record cannot be processed: AssertionError: never so"),
        (250, "record_failed", "the record cannot be processed: NotImplementedError: odd"),
    ]
    counts = batch.progress[AT]
    assert (counts.read, counts.written, counts.dead_lettered) == (300, 298, 2)
    assert data_files(tmp_path) == 1
    metrics = BatchMetrics()
    metrics.add(batch, started_ms=0, now_ms=1)
    assert metrics.records_failed == 2


def test_without_tolerance_the_task_fails_and_names_the_record(
    catalog: OneTableRefused, bug: Bug
) -> None:
    """Its topic, partition and source offset."""
    bug.raises = {"bad": lambda: AssertionError("never so")}
    with pytest.raises(RecordError) as refused:
        FailingTask(catalog, own()).write(["x", "x", "bad"])
    assert refused.value.code == "record_failed"
    at = refused.value.coordinates
    assert (at["topic"], at["partition"], at["offset"]) == ("t", 0, 2)


@pytest.mark.parametrize("error", [OSError("store"), MemoryError(), ConnectionError("gone")])
def test_outages_make_no_dead_letters(
    catalog: OneTableRefused, bug: Bug, error: BaseException
) -> None:
    """Errors of stores, services and memory stop the batch, which is retried."""
    bug.raises = {"bad": lambda: error}
    with pytest.raises(PySparkException):
        FailingTask(catalog, own(**ALL)).write(["x", "bad"])


def test_a_failure_that_ends_makes_no_dead_letters(catalog: OneTableRefused, bug: Bug) -> None:
    """At any moment: in the first run, in the second one, or at any step of the search."""
    kinds = ["x", "bad", "x", "x"]
    bug.raises = {"bad": lambda: AssertionError("now and then")}
    assert len(FailingTask(catalog, own(**ALL)).write(kinds).dead_letters) == 1
    last_of_search = bug.calls - 3
    stopped = 0
    for bug.ends in range(1, last_of_search):
        bug.calls = 0
        try:
            batch = FailingTask(catalog, own(**ALL)).write(kinds)
        except PySparkException:
            stopped += 1
        else:
            assert not batch.dead_letters
            assert rows_of(batch) == {"t1": 4}
    assert 0 < stopped < last_of_search - 1


def test_too_many_records_fail_the_batch(catalog: OneTableRefused, bug: Bug) -> None:
    """The error names one of them."""
    bug.raises = {"bad": lambda: AssertionError("never so")}
    task = FailingTask(catalog, own(**ALL))
    batch = task.write(["bad"] * FAILED_RECORDS_MAX + ["x"])
    assert len(batch.dead_letters) == FAILED_RECORDS_MAX
    with pytest.raises(RetriableError) as refused:
        task.write(["bad"] * (FAILED_RECORDS_MAX + 1) + ["x"])
    assert refused.value.code == "too_many_failed_records"
    assert refused.value.coordinates["offset"] == 0


def test_the_search_costs_few_runs(catalog: OneTableRefused, bug: Bug) -> None:
    """Each step halves the records, also in a large block."""
    bug.raises = {"bad": lambda: AssertionError("never so")}
    task = FailingTask(catalog, own(**ALL))
    task.runner.refresh()
    values = [
        json.dumps({"id": i, "kind": "bad" if i == 777 else "x"}).encode() for i in range(4_096)
    ]
    spec = task.runner.tables.spec()
    block = Block(pa.Table.from_batches([source(values).select(list(spec.columns()))]))
    assert BlockSearch(spec, SystemClock(), block).failures() == {
        ("t", 0, 777): "AssertionError: never so"
    }
    assert bug.calls < 5 * len(values)


@pytest.fixture
def tables(sql_catalog_properties: dict[str, str]) -> Iterator[OneTableRefused]:
    """Three tables, of which ``db.bad`` can be loaded and not written."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    opened.close()
    gateway = OneTableRefused("iceberg", opened.config)
    for name in NAMES:
        gateway.create(name.split("."), SCHEMA)
    yield gateway
    gateway.close()


@dataclass
class Broken:
    """Tables with rows that cannot be appended.

    Attributes:
        digits: last digits of ids of such rows.
        tables: the tables.
    """

    digits: set[int]
    tables: set[str]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    """No row of ``db.bad`` can be appended."""
    append, made = TableWriter.append, Broken(set(range(10)), {"db.bad"})

    def failing(table: TableWriter, file: OpenFile, rows: pa.Table) -> None:
        ids = {number % 10 for number in rows.column(0).to_pylist()}
        assert table.plan.name not in made.tables or made.digits.isdisjoint(ids), "never so"
        append(table, file, rows)

    monkeypatch.setattr(TableWriter, "append", failing)
    return made


def test_a_table_that_fails_refuses_its_records_only(
    tables: OneTableRefused, broken: Broken
) -> None:
    """The others get their rows. A minute later the table is tried again."""
    kinds = ["bad", "good1", "good2"] * (FAILED_RECORDS_MAX + 1)
    task = FailingTask(tables, named(**ALL))
    batch = task.write(kinds)
    count = FAILED_RECORDS_MAX + 1
    assert rows_of(batch) == {"good1": count, "good2": count}
    assert {d.error.code for d in batch.dead_letters} == {"table_failed"}
    assert [d.record.offset for d in batch.dead_letters] == list(range(0, 3 * count, 3))
    assert "AssertionError: never so" in batch.dead_letters[0].error.message
    with pytest.raises(RecordError) as refused:
        FailingTask(tables, named()).write(kinds)
    assert (refused.value.code, refused.value.coordinates["table"]) == ("table_failed", "db.bad")
    broken.tables.clear()
    task.clock.skipped_ms = REFRESH_MS + 1
    assert rows_of(task.write(kinds)) == {"bad": count, "good1": count, "good2": count}


def test_a_table_of_which_some_records_are_written_does_not_fail(
    tables: OneTableRefused, broken: Broken
) -> None:
    """Then too many records of the batch fail."""
    broken.digits.remove(0)
    kinds = ["bad", "good1", "good2"] * (3 * FAILED_RECORDS_MAX)
    with pytest.raises(RetriableError) as refused:
        FailingTask(tables, named(**ALL)).write(kinds)
    assert refused.value.code == "too_many_failed_records"


def test_the_only_table_of_a_connector_does_not_fail(
    catalog: OneTableRefused, broken: Broken
) -> None:
    """The batch fails and is retried: a failed table would stop the connector for good."""
    broken.tables.add("db.t1")
    task = FailingTask(catalog, config(**ALL))
    with pytest.raises(RetriableError) as refused:
        task.write(["x"] * (FAILED_RECORDS_MAX + 1))
    assert refused.value.code == "too_many_failed_records"
    broken.tables.clear()
    assert rows_of(task.write(["x"])) == {"t1": 1}


def test_a_few_records_do_not_fail_a_table(tables: OneTableRefused, broken: Broken) -> None:
    """Its next records may be written: of 8 records all fail, of others every second one."""
    broken.tables.update(NAMES)
    broken.digits.difference_update({1, 3, 5, 7, 9})
    kinds = ["bad", "good1"] * 8 + ["good1", "good1", "good2", "good2"] * 7
    with pytest.raises(RetriableError) as refused:
        FailingTask(tables, named(**ALL)).write(kinds)
    assert refused.value.code == "too_many_failed_records"
