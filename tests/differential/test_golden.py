"""The recorded conversions of the Java sink, through both paths."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from tests.differential.both_paths import ALL, both
from tests.differential.examples import part
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
    """Stored or refused alike, alone and among others, and stored if Java stores it."""
    groups: defaultdict[str, list[tuple[dict[str, Any], bytes]]] = defaultdict(list)
    for case, record in cases(path):
        groups[json.dumps([case["config"], case["table"]])].append((case, record))
    for place, group in enumerate(groups.values()):
        case, _ = group[0]
        keys = {
            k: v
            for k, v in case["config"].items()
            if k not in ("iceberg.tables", "iceberg.tables.json-root-as-string")
        }
        connector = config(**ALL, **keys)
        schema = Schema.model_validate(case["table"]["schema"])
        table = plan(tmp_path, schema, properties=case["table"]["properties"])
        for some in (group, *([one] for one in part(group, place, of=6))):
            batch = source([record for _, record in some])
            by_column, by_record = both(connector, [table], [batch])
            assert by_column == by_record, [case["name"] for case, _ in some]
            refused = {letter[0].offset for letter in by_column["letters"]}
            for offset, (case, _) in enumerate(some):
                if "row" in case["expected"] and not case.get("peer_corrupts"):
                    assert offset not in refused, case["name"]
    assert groups
