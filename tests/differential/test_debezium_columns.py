"""Debezium's transformations by columns give what Debezium's own classes give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
)

from connect.config.connector import ConnectorConfig
from connect.model.records import Date, SinkRecord, Struct
from connect.records.converters import converter
from connect.records.record_path import ReferencePath
from connect.records.row_operations import Keyless
from tests.differential.avro_cases import encode
from tests.differential.both_paths import ALL, both
from tests.differential.support import config, plan, source
from tests.golden import debezium_events as events
from tests.golden import debezium_recordings as recordings
from worker.batch.blocks import Block
from worker.batch.pipeline_spec import ChangePlan
from worker.decode.decoded_rows import Columns
from worker.decode.json_types import guessed_fields
from worker.pipeline.key_columns import KeyReader, envelopes_of
from worker.pipeline.transformed_rows import ColumnChain
from worker.pipeline.value_columns import EnvelopedValues
from worker.transforms.step_chain import steps_for

JSON = "org.apache.kafka.connect.json.JsonConverter"
TYPED = {
    "value.converter.schemas.enable": "true",
    "key.converter": JSON,
    "key.converter.schemas.enable": "true",
}
MODE = "delete.tombstone.handling.mode"
UPSERTS = {
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.tables.default-id-columns": "id",
}
_KINDS: dict[str, Any] = {
    "int64": LongType(),
    "string": StringType(),
    "int32": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "array": ListType(99, StringType(), element_required=False),
}
_ADDED = {
    **dict.fromkeys(("__deleted", "__op", "op", "_operation", "_database", "_table"), "string"),
    **dict.fromkeys(("__source_lsn", "__source_ts_ms", "__ts_ms", "__ts_us", "__lsn"), "int64"),
    **dict.fromkeys(("table", "snapshot", "__transaction_id", "__id", "__sequence"), "string"),
    **dict.fromkeys(("__place", "__transaction_data_collection_order"), "int64"),
    "__before_id": "int64",
}
ROW = {f["field"]: f["type"] for f in events.ROW}
SCHEMA = Schema(
    *(
        NestedField(
            number,
            name,
            DateType() if name == "day" else _KINDS[kind],
            required=False,
        )
        for number, (name, kind) in enumerate({**ROW, **_ADDED}.items(), 1)
    )
)


def transform(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """The configuration of one transformation of Debezium."""
    own = {f"transforms.d.{key}": text for key, text in options.items()}
    return {"transforms": "d", "transforms.d.type": recordings.CLASSES[name][0], **own}


def batch_of(messages: list[events.Message]) -> pa.RecordBatch:
    """Messages as Spark's source gives them."""
    values, keys = ([m[s] and m[s].encode() for m in messages] for s in ("value", "key"))
    return source(values, keys=keys, topic=events.TOPIC)


def comparable(value: Any) -> Any:
    """A recorded value as a value of a column."""
    return date(1970, 1, 1) + timedelta(value.days) if isinstance(value, Date) else value


@pytest.mark.parametrize("upserts", [{}, UPSERTS], ids=["append", "upsert"])
def test_each_recorded_event_becomes_by_columns_what_debezium_makes_of_it(
    upserts: dict[str, str],
) -> None:
    """Or its record goes to the record path; usual events do not."""
    name = "ExtractNewRecordState"
    _, messages, all_options = recordings.CLASSES[name]
    recording = recordings.recording(name)
    block = Block(pa.Table.from_batches([batch_of(list(messages))]))
    decoded = _decoded(block)
    by_columns = 0
    for number, options in enumerate(all_options):
        if "drop.fields.header.name" in options:
            continue  # headers decide, so each record goes to the record path
        if upserts and "tombstone" not in options[MODE].lower():
            continue
        chain = _chain(config(**TYPED, **upserts, **transform(name, options)))
        seen: set[int] = set()
        for before in decoded:
            for part in chain.run(block, before, is_typed=True):
                for place, ours in _results(part, upserts):
                    seen.add(place)
                    theirs = recording.result(number, place)
                    assert ours == _expected(theirs, ours, upserts)
        by_columns += len(seen)
        is_struct_added = "before.id" in options.get("add.fields", "")
        if not is_struct_added and options.get("route.by.field") != "id":
            usual = [p for p, m in enumerate(messages[:40]) if '"op": "t"' not in m["value"]]
            assert seen.issuperset(usual), (options, set(usual) - seen)
    assert by_columns > (3_000 if upserts else 5_000)


def _results(
    part: Columns, upserts: Mapping[str, str]
) -> Iterator[tuple[int, tuple[Any, str] | None]]:
    """Each record that stays in columns, with its row and topic; None if it is dropped."""
    refused = set(part.unexpected.tolist())
    assert part.dropped is not None
    for place in set(part.dropped.tolist()) - refused:
        yield place, None
    topics = [events.TOPIC] * len(part.places)
    topics = topics if part.topics is None else part.topics.to_pylist()
    rows = zip(part.places.tolist(), _plain(part.table), topics, strict=True)
    for number, (place, row, topic) in enumerate(rows):
        is_tombstone = part.tombstones is not None and part.tombstones[number]
        assert not is_tombstone or upserts
        if place not in refused:
            yield place, (("tombstone", row["id"], row["region"]) if is_tombstone else row, topic)


def _expected(theirs: Any, ours: Any, upserts: Mapping[str, str]) -> tuple[Any, str] | None:
    """What Debezium made of a record, in the same form; connectors that append drop tombstones."""
    if theirs is None:
        return None
    assert isinstance(theirs, SinkRecord)
    if theirs.value is None:
        key = theirs.key.values
        return (("tombstone", key["id"], key["region"]), theirs.topic) if upserts else None
    values = theirs.value.values if isinstance(theirs.value, Struct) else theirs.value
    return {name: comparable(values.get(name)) for name in ours[0]}, theirs.topic


def _decoded(block: Block) -> list[Columns]:
    """The change events of a block, before a transformation."""
    connector = config(**TYPED)
    envelopes = envelopes_of(converter(connector.value_converter, "value"))
    assert envelopes is not None
    places = np.flatnonzero(~block.tombstones)
    values = block.values.take(pa.array(places))
    return list(EnvelopedValues(envelopes, connector, []).decode(values, block, places))


def _chain(connector: ConnectorConfig) -> ColumnChain:
    steps = steps_for(connector)
    assert steps is not None
    fields = guessed_fields([SCHEMA.fields])
    reference = ReferencePath(connector)
    key_converter = converter(connector.key_converter, "key")
    keys = KeyReader(connector, key_converter, pa.struct(list(fields.items())))
    return ColumnChain(steps, fields, connector, [], reference=reference, keys=keys)


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows, with Debezium's microseconds as numbers."""
    numbers = [
        column.cast(pa.int64()) if pa.types.is_duration(column.type) else column
        for column in table.columns
    ]
    return pa.table(numbers, names=table.column_names).to_pylist()


CASES: dict[str, tuple[str, tuple[int, ...], dict[str, str]]] = {
    "rows are added": ("tombstone", (1,), {}),
    "tombstones delete": ("tombstone", (1,), UPSERTS),
    "the message key names the columns": ("delete-to-tombstone", (), UPSERTS),
    "the key has two columns": ("tombstone", (1, 3), UPSERTS),
    "the message key lacks a column": ("tombstone", (1, 2), UPSERTS),
    "a field names the table": (
        "tombstone",
        (1,),
        {
            **UPSERTS,
            "iceberg.tables.route-field": "region",
            "iceberg.table.db.t1.route-regex": "eu.*",
        },
    ),
    "rows mark deletes": ("rewrite", (1,), {**UPSERTS, "iceberg.tables.cdc-field": "__deleted"}),
    "a later step": (
        "tombstone",
        (1,),
        {
            **UPSERTS,
            "transforms": "d,r",
            "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.r.renames": "name:id,id:name",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_and_deletes_are_the_same_by_columns_and_by_record(case: str, tmp_path: Path) -> None:
    """In the files of a table, with dead letters."""
    mode, key_ids, keys = CASES[case]
    batch = batch_of(list(events.MESSAGES[:70]))
    keyed = ChangePlan(key_ids, PartitionSpec(spec_id=1).model_dump_json())
    table = replace(plan(tmp_path, SCHEMA), changes=keyed)
    options = {MODE: mode, "add.fields": "op,source.lsn"}
    connector = config(**{**ALL, **TYPED, **transform("ExtractNewRecordState", options), **keys})
    by_column, by_record = both(connector, [table], [batch])
    assert by_column == by_record
    assert by_record["rows"]["db.t1"]


@pytest.mark.parametrize("keyless", [Keyless.APPEND, Keyless.APPEND_INSERTS])
def test_a_tombstone_of_a_table_without_key_is_dropped(keyless: Keyless, tmp_path: Path) -> None:
    """And counted: it has no row to append, and names none to delete. Inserts are appended."""
    messages = [{**each, "key": None} for each in events.MESSAGES[:40]]
    changes = ChangePlan((), PartitionSpec(spec_id=1).model_dump_json(), keyless)
    table = replace(plan(tmp_path, SCHEMA), changes=changes)
    settings = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.no-key": "append",
        "iceberg.tables.no-key-changes": "append" if keyless is Keyless.APPEND else "dead-letter",
    }
    options = transform("ExtractNewRecordState", {MODE: "tombstone"})
    connector = config(**{**ALL, **TYPED, **options, **settings})
    by_column, by_record = both(connector, [table], [batch_of(messages)])
    assert by_column == by_record
    assert by_record["rows"]["db.t1"]
    (progress,) = by_record["progress"].values()
    assert progress.dropped == sum('"op": "d"' in str(each["value"]) for each in messages)


def test_headers_of_the_transformation_are_seen_by_later_predicates(tmp_path: Path) -> None:
    """Of records that came without them."""
    steps = {
        **transform("ExtractNewRecordState", {MODE: "drop", "add.headers": "op"}),
        "transforms": "d,f",
        "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.f.predicate": "h",
        "transforms.f.negate": "true",
        "predicates": "h",
        "predicates.h.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.h.name": "__op",
    }
    connector = config(**{**ALL, **TYPED, **steps})
    batch = batch_of(list(events.MESSAGES[:20]))
    by_column, by_record = both(connector, [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record
    assert by_record["rows"]["db.t1"]


def test_avro_events_are_the_same_by_columns_and_by_record(tmp_path: Path) -> None:
    """As Debezium writes them, with a null in a column that has a default."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "qty", "type": [{"type": "int", "connect.default": 7}, "null"], "default": 7},
        ],
    }
    schema = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.item",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}],
                },
            },
            {"name": "op", "type": "string"},
        ],
    }
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    rows = [
        {"id": n, "name": None if n % 3 else "x", "qty": None if n % 2 else n} for n in range(40)
    ]
    values = [
        encode(
            schema,
            {
                "before": None if n % 5 else each,
                "after": each if n % 5 else None,
                "source": {"lsn": n},
                "op": "u" if n % 5 else "d",
            },
        )
        for n, each in enumerate(rows)
    ]
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schemas.enable": None,
        "value.converter.schema.file": str(file),
    }
    batch = source(values, topic=events.TOPIC)
    for more in ({}, {"replace.null.with.default": "false"}):
        options = {MODE: "rewrite", "add.fields": "op,source.lsn", **more}
        connector = config(**{**ALL, **avro, **transform("ExtractNewRecordState", options)})
        by_column, by_record = both(connector, [plan(tmp_path, SCHEMA)], [batch])
        assert by_column == by_record
        assert len(by_record["rows"]["db.t1"]) == len(rows)
