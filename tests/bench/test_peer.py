"""Part of the matrix for ``make bench``; times are reported. ``make bench-peer`` runs all."""

from __future__ import annotations

import json

import pytest

from tests.bench.peer import REPORT, Cell, run
from tests.bench.peer_report import table_of

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

CHOICE = (
    Cell("json", "narrow", "append", 1),
    Cell("json", "narrow", "append", 50),
    Cell("json", "narrow", "upsert", 1),
    Cell("envelope", "narrow", "append", 1),
    Cell("avro", "narrow", "append", 1),
    Cell("protobuf", "narrow", "append", 1),
    Cell("json", "wide", "append", 1),
    Cell("json", "nested", "append", 1),
)


def test_a_part_of_the_matrix() -> None:
    """The tables of each cell have its rows, written alternately by Icefloe and the Java sink."""
    cells = run(CHOICE, scale=1.0, rounds=1, has_java=True, interval_ms=5_000)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(cells, indent=2) + "\n")
    print("\n" + "\n".join(table_of(cells)))
