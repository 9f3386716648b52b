"""The recorded conversions of the Java sink, through both paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from tests.differential.both_paths import ALL, both
from tests.differential.golden_texts import text_of
from tests.differential.support import config, plan, source

GOLDEN = Path(__file__).parents[1] / "golden"


def cases(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Cases whose record JSON can carry, with the record."""
    for line in path.read_text().splitlines():
        case = json.loads(line)
        if case["input"]["schemas"]:
            continue
        try:
            yield case, text_of(case["input"]["value"]).encode()
        except KeyError:
            continue


FILES = sorted(
    path
    for path in GOLDEN.glob("records*/record-conversion/*.jsonl")
    if path.stem not in ("variant", "unsupported") and any(cases(path))
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parts[-3]}/{p.stem}")
def test_recorded_conversions_are_equal_on_both_paths(path: Path, tmp_path: Path) -> None:
    """Stored or refused alike, and stored if Java stores it."""
    count = 0
    for case, record in cases(path):
        keys = {
            k: v
            for k, v in case["config"].items()
            if k not in ("iceberg.tables", "iceberg.tables.json-root-as-string")
        }
        connector = config(**ALL, **keys)
        schema = Schema.model_validate(case["table"]["schema"])
        table = plan(tmp_path, schema, properties=case["table"]["properties"])
        by_column, by_record = both(connector, [table], [source([record])])
        assert by_column == by_record, case["name"]
        if "row" in case["expected"] and not case.get("peer_corrupts"):
            assert not by_column["letters"], case["name"]
        count += 1
    assert count
