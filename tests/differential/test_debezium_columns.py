"""Debezium's transformations by columns give what Debezium's own classes give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
from tests.differential.both_paths import ALL, both
from tests.differential.support import config, plan, source
from tests.golden import debezium_events as events
from tests.golden import debezium_recordings as recordings
from worker.batch.blocks import Block
from worker.batch.pipeline_spec import ChangePlan
from worker.decode.decoded_rows import Columns
from worker.decode.json_types import guessed_fields
from worker.pipeline.key_columns import envelopes_of
from worker.pipeline.transformed_rows import ColumnChain
from worker.pipeline.value_columns import EnvelopedValues
from worker.transforms.step_chain import steps_for

JSON = "org.apache.kafka.connect.json.JsonConverter"
TYPED = {
    "value.converter.schemas.enable": "true",
    "key.converter": JSON,
    "key.converter.schemas.enable": "true",
}
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


def test_each_recorded_event_becomes_by_columns_what_debezium_makes_of_it() -> None:
    """Or its record goes to the record path; usual events do not."""
    name = "ExtractNewRecordState"
    _, messages, all_options = recordings.CLASSES[name]
    recording = recordings.recording(name)
    block = Block(pa.Table.from_batches([batch_of(list(messages))]))
    by_columns = 0
    decoded = _decoded(block)
    for number, options in enumerate(all_options):
        if "drop.fields.header.name" in options:
            continue  # headers decide, so each record goes to the record path
        chain = _chain(config(**TYPED, **transform(name, options)))
        seen: set[int] = set()
        for before in decoded:
            for part in chain.run(block, before, is_typed=True):
                refused = set(part.unexpected.tolist())
                assert part.dropped is not None
                for place in set(part.dropped.tolist()) - refused:
                    seen.add(place)
                    theirs = recording.result(number, place)
                    assert theirs is None or (
                        isinstance(theirs, SinkRecord) and theirs.value is None
                    )
                topics = [events.TOPIC] * len(part.places)
                topics = topics if part.topics is None else part.topics.to_pylist()
                rows = zip(part.places.tolist(), _plain(part.table), topics, strict=True)
                for place, row, topic in rows:
                    if place not in refused:
                        seen.add(place)
                        _assert_row(row, topic, recording.result(number, place))
        by_columns += len(seen)
        is_struct_added = "before.id" in options.get("add.fields", "")
        if not is_struct_added and options.get("route.by.field") != "id":
            usual = [p for p, m in enumerate(messages[:40]) if '"op": "t"' not in m["value"]]
            assert seen.issuperset(usual), (options, set(usual) - seen)
    assert by_columns > 5_000


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
    return ColumnChain(steps, fields, connector, [], reference=reference, keys=None)


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows, with Debezium's microseconds as numbers."""
    numbers = [
        column.cast(pa.int64()) if pa.types.is_duration(column.type) else column
        for column in table.columns
    ]
    return pa.table(numbers, names=table.column_names).to_pylist()


def _assert_row(ours: dict[str, Any], topic: str, theirs: Any) -> None:
    assert isinstance(theirs, SinkRecord)
    values = theirs.value.values if isinstance(theirs.value, Struct) else theirs.value
    assert ours == {name: comparable(values.get(name)) for name in ours}
    assert topic == theirs.topic


def test_rows_and_deletes_are_the_same_by_columns_and_by_record(tmp_path: Path) -> None:
    """Written tables, with and without upserts; deletes as rows, as tombstones and dropped."""
    batch = batch_of(list(events.MESSAGES))
    keyed = ChangePlan((1,), PartitionSpec(spec_id=1).model_dump_json())
    table = replace(plan(tmp_path, SCHEMA), changes=keyed)
    for mode in events.MODES:
        options = {"delete.tombstone.handling.mode": mode, "add.fields": "op,source.lsn"}
        for upserts in ({}, UPSERTS, {**UPSERTS, "iceberg.tables.cdc-field": "__deleted"}):
            connector = config(
                **ALL, **TYPED, **upserts, **transform("ExtractNewRecordState", options)
            )
            by_column, by_record = both(connector, [table], [batch])
            assert by_column == by_record
