"""A task with three tables, one of which cannot be written: the others get their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.config.connector import ConnectorConfig
from connect.errors import IcefloeError, RecordError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from tests.differential.support import config, source
from tests.support.property_values import DECIDING, NASTY, TUNING, VALUES
from tests.support.unusable_tables import (
    AT,
    LETTERS,
    NAMES,
    SCHEMA,
    TOLERANT,
    OneTableRefused,
    Rows,
    Task,
    named,
    rows_of,
)
from worker.task.read_ledger import OffsetRanges
from worker.task.tables.table_updates import commit_schema
from worker.task.tables.task_tables import REFRESH_MS


@pytest.fixture
def catalog(
    sql_catalog_properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneTableRefused]:
    """Three tables on SQLite and a local folder, with all relative locations inside."""
    monkeypatch.chdir(tmp_path)
    opened = open_catalog("iceberg", sql_catalog_properties)
    gateway = OneTableRefused("iceberg", opened.config)
    opened.close()
    for name in NAMES:
        gateway.create(name.split("."), SCHEMA)
    yield gateway
    gateway.close()


def connector(**more: str | None) -> ConnectorConfig:
    """Records go to ``db.<kind>``."""
    routed = {"iceberg.tables": None, "iceberg.tables.name-template": "db.${kind}"}
    return config(**{**routed, **more})


def set_properties(catalog: CatalogGateway, name: str, values: dict[str, str]) -> None:
    """Set properties of a table, as another client does."""
    path = Path(catalog.load(name.split(".")).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"] |= values
    path.write_text(json.dumps(metadata))


def test_a_table_that_may_no_longer_be_read_is_written_as_known(catalog: OneTableRefused) -> None:
    """The coordinator keeps its files and reports the error; the task continues."""
    task = Task(catalog, named())
    assert rows_of(task.run("bad", "good1", "good2")) == {"bad": 1, "good1": 1, "good2": 1}
    catalog.refused = "db.bad"
    task.clock.skipped_ms = REFRESH_MS + 1
    assert rows_of(task.run("bad", "good1", "good2")) == {"bad": 1, "good1": 1, "good2": 1}


@pytest.mark.parametrize("make", [named, connector])
def test_a_table_that_was_never_read_refuses_its_records_only(
    catalog: OneTableRefused, make: Callable[..., ConnectorConfig]
) -> None:
    """Other tables are written; its records wait, or become dead letters if configured.

    No record causes the catalog's refusal, so ``errors.tolerance`` alone makes no dead letters.
    """
    catalog.refused = "db.bad"
    assert rows_of(Task(catalog, make()).run("good1", "good2")) == {"good1": 1, "good2": 1}
    for tolerance in ({}, TOLERANT):
        with pytest.raises(RetriableError) as refused:
            Task(catalog, make(**tolerance)).run("good1", "bad")
        assert refused.value.code == "forbidden"
        assert refused.value.coordinates["table"] == "db.bad"
    batch = Task(catalog, make(**LETTERS)).run("good1", "bad", "good2")
    assert rows_of(batch) == {"good1": 1, "good2": 1}
    assert [(d.record.offset, d.error.code) for d in batch.dead_letters] == [(1, "forbidden")]


def test_a_table_is_written_after_it_becomes_usable(catalog: OneTableRefused) -> None:
    """A minute after the grant its rows are written."""
    catalog.refused = "db.bad"
    task = Task(catalog, named(**TOLERANT))
    with pytest.raises(RetriableError):
        task.run("bad")
    catalog.refused = None
    task.clock.skipped_ms = REFRESH_MS + 1
    assert rows_of(task.run("bad")) == {"bad": 1}


def test_a_connector_without_any_usable_table_fails_at_once(catalog: OneTableRefused) -> None:
    """The task fails before its first record."""
    catalog.refused = "db.bad"
    with pytest.raises(IcefloeError) as refused:
        Task(catalog, config(**{"iceberg.tables": "db.bad"})).run("bad")
    assert refused.value.code == "forbidden"
    assert refused.value.coordinates["table"] == "db.bad"


def test_an_invalid_name_mapping_makes_a_table_unusable(catalog: OneTableRefused) -> None:
    """It decides which field a value belongs to, so there is no default."""
    set_properties(catalog, "db.bad", {"schema.name-mapping.default": "[{"})
    with pytest.raises(RecordError) as refused:
        Task(catalog, named()).run("good1", "bad")
    assert refused.value.code == "table_property"
    assert "schema.name-mapping.default" in str(refused.value)
    assert rows_of(Task(catalog, named()).run("good1")) == {"good1": 1}


@pytest.mark.filterwarnings("ignore:No preferred file implementation")
@pytest.mark.parametrize("path", ["nosuch://bucket/data", 5_000 * "9"], ids=["scheme", "long"])
def test_a_store_that_accepts_no_files_of_a_table(catalog: OneTableRefused, path: str) -> None:
    """The batch is retried; where configured, the second refusal makes dead letters."""
    set_properties(catalog, "db.bad", {"write.data.path": path})
    for tolerance in ({}, TOLERANT):
        with pytest.raises(RetriableError) as refused:
            Task(catalog, named(**tolerance)).run("good1", "bad")
        assert refused.value.code == "table_not_writable"
        assert refused.value.coordinates["table"] == "db.bad"
    batch = Task(catalog, named(**LETTERS)).run("good1", "bad", "good2")
    assert rows_of(batch) == {"good1": 1, "good2": 1}
    assert [d.error.code for d in batch.dead_letters] == ["table_not_writable"]


CONFLICT = [b'{"id":1,"kind":"good1"}', b'{"id":"x","kind":"bad"}', b'{"id":2,"kind":"bad"}']


def test_a_table_fails_by_a_changed_type(catalog: OneTableRefused) -> None:
    """The task waits, or all records of the table become dead letters. A new column ends it."""
    fail = {"iceberg.tables.type-conflict": "fail"}
    kinds = ("good1", "bad", "bad")
    for tolerance in ({}, TOLERANT):
        with pytest.raises(RetriableError) as failed:
            Task(catalog, named(**fail, **tolerance)).run(*kinds, values=CONFLICT)
        assert (failed.value.code, failed.value.coordinates["table"]) == ("type_conflict", "db.bad")
    batch = Task(catalog, named(**fail, **LETTERS)).run(*kinds, values=CONFLICT)
    assert rows_of(batch) == {"good1": 1}
    letters = [(letter.record.offset, letter.error.code) for letter in batch.dead_letters]
    assert letters == [(1, "type_conflict"), (2, "type_conflict")]
    task = Task(catalog, named(**fail))
    with pytest.raises(RetriableError):
        task.run(*kinds, values=CONFLICT)
    table = catalog.load(("db", "bad"))
    others = [each for each in table.schema().fields if each.name != "id"]
    text = NestedField(9, "id", StringType(), required=False)
    commit_schema(catalog, table, Schema(text, *others))
    assert rows_of(task.run(*kinds, values=CONFLICT)) == {"good1": 1, "bad": 2}


def test_values_of_a_changed_type_get_a_column(catalog: OneTableRefused) -> None:
    """The batch runs again with the column, and counts the values once."""
    keys = {
        "iceberg.table.db.bad.type-conflict": "new-column",
        "iceberg.tables.evolve-schema-enabled": "true",
    }
    batch = Task(catalog, named(**keys)).run("good1", "bad", "bad", values=CONFLICT)
    assert rows_of(batch) == {"good1": 1, "bad": 2}
    assert batch.conflicts == {("db.bad", "id", "id__string"): 1}
    assert catalog.load(("db", "bad")).schema().find_type("id__string") == StringType()
    assert catalog.load(("db", "good1")).schema().column_names == SCHEMA.column_names


def test_a_delete_for_an_unusable_table_is_not_dropped(catalog: OneTableRefused) -> None:
    """A tombstone is dropped only if its table does not exist."""
    catalog.refused = "db.bad"
    upserts = {
        "iceberg.tables": "db.bad,db.good1",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "key.converter": "org.apache.kafka.connect.converters.LongConverter",
    }
    task = Task(catalog, config(**{**upserts, **LETTERS}))
    task.runner.refresh()
    batch = source([None], keys=[(7).to_bytes(8, "big")]).select(list(task.runner.columns))
    written = task.runner.run(Rows(batch), OffsetRanges({AT: 0}, {AT: 1}))  # type: ignore[arg-type]
    assert [d.error.code for d in written.dead_letters] == ["forbidden"]


def test_a_tombstone_finds_its_table_after_a_restart(catalog: OneTableRefused) -> None:
    """Its table is loaded and not created; the first record with a value creates it."""
    changes = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
    }
    task = Task(catalog, connector(**changes))
    task.runner.refresh()

    def written(kind: str, value: bytes | None) -> dict[str, int]:
        keys = [json.dumps({"id": 7, "kind": kind}).encode()]
        batch = source([value], keys=keys).select(list(task.runner.columns))
        return rows_of(task.runner.run(Rows(batch), OffsetRanges({AT: 0}, {AT: 1})))  # type: ignore[arg-type]

    assert written("good1", None) == {"good1": 1}
    assert written("new", None) == {}
    assert written("new", b'{"id":7,"kind":"new"}') == {"new": 2}  # and its key
    assert written("new", None) == {"new": 1}


def test_a_table_that_changed_while_it_had_no_rows(catalog: OneTableRefused) -> None:
    """Its first batch after a long time runs again with the new columns; one file is left."""
    task = Task(catalog, named())
    task.run("good1")
    table = catalog.load(("db", "good2"))
    wider = Schema(*table.schema().fields, NestedField(9, "more", LongType(), required=False))
    commit_schema(catalog, table, wider)
    task.clock.skipped_ms = REFRESH_MS
    batch = task.run("good2", values=[b'{"id":1,"kind":"good2","more":7}'])
    assert rows_of(batch) == {"good2": 1}
    [[(_, [file])]] = batch.steps
    assert set(file.value_counts or {}) == {
        f.field_id for f in catalog.load(("db", "good2")).schema().fields
    }
    folder = Path(urlsplit(file.file_path).path).parent
    assert [found.name for found in folder.iterdir()] == [Path(file.file_path).name]


@pytest.mark.parametrize("value", NASTY)
def test_properties_that_tune_files_are_never_an_error(
    catalog: OneTableRefused, value: str
) -> None:
    """With an invalid value in all of them, all rows are written."""
    set_properties(catalog, "db.bad", dict.fromkeys(TUNING, value))
    assert rows_of(Task(catalog, named()).run("bad", "good1")) == {"bad": 1, "good1": 1}


@pytest.mark.filterwarnings("ignore:No preferred file implementation")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=st.dictionaries(st.sampled_from(DECIDING), VALUES, min_size=1))
def test_no_property_of_one_table_holds_up_another(
    catalog: OneTableRefused, values: dict[str, str]
) -> None:
    """With dead letters every record has an outcome; without, an error names the bad table."""
    name = f"db.bad{uuid4().hex}"
    catalog.create(name.split("."), SCHEMA)
    kind = name.removeprefix("db.")
    set_properties(catalog, name, values)
    batch = Task(catalog, connector(**LETTERS)).run("good1", kind, "good2")
    rows = rows_of(batch)
    assert (rows["good1"], rows["good2"]) == (1, 1)
    assert rows.get(kind, 0) + len(batch.dead_letters) == 1
    if batch.dead_letters:
        with pytest.raises((RecordError, RetriableError)) as refused:
            Task(catalog, connector()).run("good1", kind)
        assert refused.value.coordinates["table"] == name
    assert rows_of(Task(catalog, connector()).run("good1", "good2")) == {"good1": 1, "good2": 1}
