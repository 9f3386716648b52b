"""The recorded records of the Java transformations, through both paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, RecordError
from connect.records.record_path import ReferencePath
from connect.records.tables.table_creation import table_for
from tests.differential.both_paths import ALL, both
from tests.differential.golden_texts import text_of
from tests.differential.support import config, plan, source
from worker.transforms.step_chain import COLUMN_STEPS, steps_for

GOLDEN = Path(__file__).parents[1] / "golden"
JSON = "org.apache.kafka.connect.json.JsonConverter"
FILES = sorted(
    path for path in GOLDEN.glob("records*/transforms/*.jsonl") if path.stem in COLUMN_STEPS
)


def cases(path: Path) -> Iterator[tuple[ConnectorConfig, list[bytes]]]:
    """Configurations with a column form, and all records of the file that JSON can carry."""
    records: dict[bool, dict[bytes, None]] = {False: {}, True: {}}
    configs: dict[str, tuple[dict[str, str], bool]] = {}
    for line in path.read_text().splitlines():
        case = json.loads(line)
        given, has_schema = case["input"], case["input"]["schemas"]
        try:
            text = text_of(given["value"]).encode()
        except KeyError:
            continue
        records[has_schema][text] = None
        keys = {f"transforms.a.{name}": value for name, value in case["config"].items()}
        keys |= {"transforms": "a", "transforms.a.type": case["transform"]}
        configs[json.dumps([keys, has_schema])] = (keys, has_schema)
    for keys, has_schema in configs.values():
        schemas = {"value.converter.schemas.enable": str(has_schema).lower()}
        try:
            connector = config(**{**ALL, **keys, **schemas})
            if steps_for(connector) is None:
                continue
        except ConfigError:
            continue
        yield connector, list(records[has_schema])


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parts[-3]}/{p.stem}")
def test_recorded_transformations_are_equal_on_both_paths(path: Path, tmp_path: Path) -> None:
    """Every recorded record through every recorded configuration."""
    for connector, records in cases(path):
        results: dict[str, Any] = {}
        batch = source([text for text in records for _ in range(2)])
        for record in _read(connector, records):
            try:
                table = table_for("db.t1", record, connector)
            except RecordError:
                continue
            results.setdefault(table.schema.model_dump_json(), table.schema)
        for schema in list(results.values())[:3]:
            by_column, by_record = both(connector, [plan(tmp_path, schema)], [batch])
            assert by_column == by_record, connector.transforms[0].options


def _read(connector: ConnectorConfig, records: list[bytes]) -> Iterator[Any]:
    """What the reference makes of the records."""
    from connect.model.records import KafkaRecord

    reference = ReferencePath(connector)
    for text in records:
        try:
            converted = reference.read(KafkaRecord("t", 0, 0, 1_700_000_000_123, 0, None, text))
        except RecordError:
            continue
        yield from (record for record in converted if record.value is not None)
