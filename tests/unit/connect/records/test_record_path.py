"""The reference path as a whole."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType, UUIDType

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import Header, KafkaRecord
from connect.records.record_path import ReferencePath
from connect.validation.parse import parse

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "ts", TimestamptzType(), required=False),
    NestedField(4, "u", UUIDType(), required=False),
)


def config(**keys: str) -> ConnectorConfig:
    """A connector that reads plain JSON; underscores in names stand for dots."""
    return parse(
        {
            "name": "c",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "t",
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1/",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            **{k.replace("_", "."): v for k, v in keys.items()},
        }
    )


def kafka(value: bytes | None, **others: Any) -> KafkaRecord:
    """A record of partition 3, offset 42."""
    return KafkaRecord("t", 3, 42, 1000, 0, others.get("key"), value, others.get("headers", ()))


def test_a_record_becomes_a_row() -> None:
    """Read, route, convert."""
    path = ReferencePath(config())
    (record,) = path.read(
        kafka(
            b'{"id":"7","name":5,"ts":"1970-01-01T00:00:00.000001Z","u":null}',
            key=b"k",
            headers=(("h", b"1"),),
        )
    )
    assert (record.key, record.headers) == ("k", (Header("h", b"1"),))
    assert path.route(record) == ("db.t",)
    assert path.row(record, SCHEMA) == {"id": 7, "name": "5", "ts": 1, "u": None}


def test_header_converters_run() -> None:
    """A configured header converter converts the headers."""
    path = ReferencePath(config(header_converter="StringConverter"))
    (record,) = path.read(kafka(b"{}", headers=(("h", b"x"), ("n", None))))
    assert [(h.key, h.value) for h in record.headers] == [("h", "x"), ("n", None)]


@pytest.mark.parametrize(
    ("value", "stage", "code", "column"),
    [
        (b"{", "VALUE_CONVERTER", "bad_json", None),
        (b'{"id":1.5}', "TASK_PUT", "lost_fraction", "id"),
        (b"5", "TASK_PUT", "wrong_type", None),
        (b'{"name":"x"}', "TASK_PUT", "required_null", "id"),
        (b'{"id":1,"name":"\\ud83c"}', "TASK_PUT", "bad_text", "name"),
    ],
)
def test_errors_have_stage_code_coordinates_and_column(
    value: bytes, stage: str, code: str, column: str | None
) -> None:
    """Each error has stage, code, coordinates and column."""
    path = ReferencePath(config())

    def run() -> None:
        (record,) = path.read(kafka(value))
        path.row(record, SCHEMA)

    with pytest.raises(RecordError) as refused:
        run()
    error = refused.value
    assert (error.stage, error.code) == (stage, code)
    assert error.coordinates.get("column") == column
    assert error.coordinates["topic"] == "t"
    assert (error.coordinates["partition"], error.coordinates["offset"]) == (3, 42)


def test_key_errors_have_their_stage() -> None:
    """The converters of key and value are separate."""
    path = ReferencePath(config(key_converter="JsonConverter"))
    with pytest.raises(RecordError) as refused:
        path.read(kafka(b"{}", key=b"{"))
    assert refused.value.stage == "KEY_CONVERTER"


def test_each_name_mapping_has_a_converter() -> None:
    """One schema with two name mappings has two converters."""
    path = ReferencePath(config())
    (record,) = path.read(kafka(b'{"id":1,"n":2}'))
    mapping = json.dumps([{"field-id": 2, "names": ["n"]}])
    assert path.row(record, SCHEMA)["name"] is None
    assert path.row(record, SCHEMA, mapping)["name"] == "2"


@given(
    st.binary(max_size=40)
    | st.dictionaries(
        st.sampled_from(["id", "name", "ts", "u", "other"]),
        st.none() | st.integers() | st.text() | st.floats() | st.lists(st.integers(), max_size=2),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_become_a_row_or_a_dead_letter(data: bytes) -> None:
    """The only error is RecordError, and Arrow accepts each row."""
    path = ReferencePath(config())
    try:
        (record,) = path.read(kafka(data))
        row = path.row(record, SCHEMA)
    except RecordError as error:
        assert error.coordinates["offset"] == 42  # noqa: PT017 - either outcome is right
        return
    for field in schema_to_pyarrow(SCHEMA):
        pa.array([row[field.name]], field.type)
