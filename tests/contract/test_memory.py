"""Any number of wide, deep and huge records costs a bounded amount of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.batch.error_rows import DEAD_LETTERS_FULL

LIMITS_MB = {
    "wide json": 450,
    "wide avro": 250,
    "deep json": 150,
    "deep avro": 150,
    "own names, evolving": 150,
    "own names, map": 150,
    "huge texts": 1_000,
    "huge dead letters": 650,
}
"""Most resident megabytes above an idle process; a third more than was seen."""
OF_MATRIX = ("wide avro", "own names, map", "huge texts")
"""Like another case, with another form or size."""
LETTERS = ("huge dead letters", "huge objects, evolving")
"""Records too large for the dead letters of one batch: smaller ones are read."""
ASKS = ("own names, evolving",)
"""The table is asked for columns; nothing is written until the batch is run again with them."""
SLOW_LIMITS_MB = {
    "wide json": 600,
    "wide, record by record": 350,
    "deep unknown": 160,
    "deep unknown, evolving": 220,
    "huge texts": 1_200,
    "huge texts, record by record": 1_200,
    "huge lists": 1_600,
    "huge lists, record by record": 1_900,
    "huge objects": 1_400,
    "huge objects, evolving": 1_300,
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that forks one for each case."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.memory_run", str(tmp_path_factory.mktemp("memory"))],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def measured(process: subprocess.Popen[str], case: str, times: int) -> dict[str, Any]:
    """What a child says of a case."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([case, times]) + "\n")
    process.stdin.flush()
    result: dict[str, Any] = json.loads(process.stdout.readline())
    assert "status" not in result, result
    print(f"{case}: {result}")
    if case in LETTERS:
        assert result["error"] == DEAD_LETTERS_FULL
    else:
        assert result["error"] is None
        done_with = 0 if case in ASKS else result["records"]
        assert (result["asked"], result["rows"] + result["letters"]) == (case in ASKS, done_with)
    return result


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.matrix if case in OF_MATRIX else ())
        for case in LIMITS_MB
    ],
)
def test_unusual_records_fit_into_memory(case: str, process: subprocess.Popen[str]) -> None:
    """500 columns, the deepest nesting, and single records of up to 60 MiB."""
    result = measured(process, case, 1)
    assert result["peak_mb"] - result["before_mb"] < LIMITS_MB[case], result


@pytest.mark.bench
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("case", SLOW_LIMITS_MB)
def test_more_records_need_no_more_memory(case: str, process: subprocess.Popen[str]) -> None:
    """Four times as many stay within the memory of a process."""
    result = measured(process, case, 4)
    assert result["peak_mb"] - result["before_mb"] < SLOW_LIMITS_MB[case], result
