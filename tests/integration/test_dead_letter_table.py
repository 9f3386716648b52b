"""The files of the dead letter table, on a real catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType

from connect.clock import SystemClock
from connect.errors import ConfigError, RecordError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.model.records import KafkaRecord
from connect.validation.parse import parse
from worker.batch.descriptors import DeadLetter
from worker.task.dead_letters.dead_letter_table import SCHEMA, DeadLetterTable

NAME = "dead.letters"


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[CatalogGateway]:
    """A catalog without tables."""
    opened = open_catalog("local", sql_catalog_properties)
    yield opened
    opened.close()


def letters_of(catalog: CatalogGateway, **changes: str) -> DeadLetterTable:
    """The dead letter table of a connector."""
    config = parse(
        {
            "name": "c",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "t",
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": "sqlite://",
            "iceberg.catalog.warehouse": "/nowhere",
            "errors.deadletterqueue.table": NAME,
            **changes,
        }
    )
    return DeadLetterTable(config, catalog, SystemClock(), 4)


def letter(offset: int, timestamp_ms: int | None = 1_000, *, kind: int = 0) -> DeadLetter:
    """A dead letter with what is hard to store."""
    headers = (("h", b"\x00\xff"), ("h", None), ("\ud800", b""))
    record = KafkaRecord("t", 1, offset, timestamp_ms, kind, None, b"\xff\xfe", headers)
    return DeadLetter(record, RecordError("no \ud800", code="bad", table="db.t\ud800"))


def test_dead_letters_become_rows(catalog: CatalogGateway) -> None:
    """The table is created; bytes are unchanged; text that Parquet cannot store is escaped."""
    far = 2**62
    ((reference, (file,)),) = letters_of(catalog).write(
        [letter(1), letter(2, None, kind=-1), letter(3, far)]
    )
    assert str(reference) == str(letters_of(catalog).write([letter(9)])[0][0])
    assert file.record_count == 3
    rows = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
    assert [row["offset"] for row in rows] == [1, 2, 3]
    assert [row["timestamp"] for row in rows] == [
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        None,
        None,
    ]
    assert {key: rows[0][key] for key in ("key", "value", "message", "table", "task")} == {
        "key": None,
        "value": b"\xff\xfe",
        "message": "no \\ud800",
        "table": "db.t\\ud800",
        "task": 4,
    }
    assert rows[0]["headers"] == [
        {"name": "h", "value": b"\x00\xff"},
        {"name": "h", "value": None},
        {"name": "\\ud800", "value": b""},
    ]
    assert not {5, 6, 16} & (file.lower_bounds or {}).keys()


def test_the_location_template_applies_to_the_dead_letter_table(
    catalog: CatalogGateway, tmp_path: Path
) -> None:
    """As to every table that a connector creates."""
    template = f"file://{tmp_path}/${{namespace}}/${{table}}"
    letters_of(catalog, **{"iceberg.tables.default-location": template}).write([letter(1)])
    assert catalog.load(("dead", "letters")).location() == f"file://{tmp_path}/dead/letters"


def test_without_dead_letters_or_table_nothing_is_written(catalog: CatalogGateway) -> None:
    """Neither a table nor a file is created."""
    assert letters_of(catalog).write([]) == ()
    assert letters_of(catalog, **{"errors.deadletterqueue.table": ""}).write([letter(1)]) == ()
    assert not catalog.exists(("dead", "letters"))


def test_an_existing_table_may_have_more_columns(catalog: CatalogGateway) -> None:
    """Optional columns and a partition spec; each partition gets a file."""
    note = NestedField(40, "note", StringType(), required=False)
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "offset"))
    catalog.create(("dead", "letters"), Schema(note, *SCHEMA.fields), spec)
    ((_, files),) = letters_of(catalog).write([letter(1), letter(2)])
    assert sorted(file.partition[0].value for file in files) == [1, 2]


def test_a_table_that_does_not_fit_is_refused(catalog: CatalogGateway) -> None:
    """Missing, different and required columns are all named."""
    fields = [f for f in SCHEMA.fields if f.name not in {"code", "value"}]
    fields += [
        NestedField(40, "value", StringType(), required=False),
        NestedField(41, "note", StringType(), required=True),
    ]
    catalog.create(("dead", "letters"), Schema(*fields))
    with pytest.raises(ConfigError) as caught:
        letters_of(catalog).write([letter(1)])
    assert caught.value.code == "dead_letter_table"
    for text in ("value is not of type binary", "code is not of type string", "note is required"):
        assert text in str(caught.value)


def test_a_refusal_of_the_store_is_retriable(catalog: CatalogGateway) -> None:
    """The task restarts; no record is given up."""
    table = letters_of(catalog)
    made = catalog.create(("dead", "letters"), SCHEMA)
    folder = Path(made.location().removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").write_text("no folder")
    with pytest.raises(RetriableError) as caught:
        table.write([letter(1)])
    assert caught.value.code == "storage_unavailable"
