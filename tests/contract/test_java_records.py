"""Records through the Java libraries and through the reference path, beyond the recordings.

``JAVA_RECORDS_SEED`` selects the generated cases, ``JAVA_RECORDS_CASES`` sets their number.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.golden import generated_rules
from tests.golden import records_suite as suite
from tests.golden.generated_cases import GENERATORS, generated_cases
from tests.support.java_records import RecordOracle, kind_of

pytestmark = pytest.mark.java

EVERY = 12
"""Of the recordings one in so many is asked for again."""

SEED = int(os.environ.get("JAVA_RECORDS_SEED", "0"))
CASES = int(os.environ.get("JAVA_RECORDS_CASES", "1500"))
SHARES = {
    "transform": 0.35,
    "converter": 0.3,
    "avro": 0.3,
    "header": 0.2,
    "route": 0.03,
    "auto-create": 0.06,
    "chain": 0.15,
    "change event": 0.1,
    "predicate": 0.03,
    "conversion": 0.15,
    "evolution": 0.03,
    "infer": 0.06,
    "from-connect": 0.06,
    "partition-spec": 0.07,
}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> RecordOracle:
    """The Java libraries."""
    return RecordOracle(tmp_path_factory.mktemp("classes"))


def test_java_answers_as_it_was_recorded(oracle: RecordOracle) -> None:
    """The class that replaces the recorder gives the recorded results."""
    paths = [path for path in suite.files() if path.stem not in ("variant", "auto-create")]
    recorded = [(kind_of(path), case) for path in paths for case in suite.cases_of(path)][::EVERY]
    answers = oracle.ask(recorded)
    for (_, case), answer in zip(recorded, answers, strict=True):
        expected = {key: value for key, value in case["expected"].items() if key != "converted"}
        assert unordered(answer) == unordered(expected), case["name"]


def unordered(answer: Any) -> Any:
    """An answer with the pairs of maps in one order, and without tables that got no row."""
    if isinstance(answer, list):
        return [unordered(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    values = {key: unordered(value) for key, value in answer.items()}
    if "$map" in values:
        values["$map"].sort(key=repr)
    if "writes" in values:
        values["writes"] = {table: rows for table, rows in values["writes"].items() if rows}
    return values


@pytest.mark.timeout(7200)
def test_java_and_icefloe_agree_beyond_the_recordings(oracle: RecordOracle) -> None:
    """Random cases: the same record, row or refusal, or a difference by a written rule."""
    cases = [
        (kind, case)
        for kind, share in SHARES.items()
        for case in generated_cases(kind, SEED, max(1, round(CASES * share)))
    ]
    folders = [Path(*GENERATORS[kind][:2]).with_suffix(".jsonl") for kind, _ in cases]
    requests = [(kind_of(f), case) for f, (_, case) in zip(folders, cases, strict=True)]
    failing: list[str] = []
    count = 0
    for folder, (_, case), answer in zip(folders, cases, oracle.ask(requests), strict=True):
        if answer.get("error", {}).get("stage") == "input":
            continue  # no such value in Java
        count += 1
        result = generated_rules.verdict(suite.comparison(folder), {**case, "expected": answer})
        if result.verdict == "failing":
            failing.append(f"{result.name}: {result.detail}\n  {case}\n  Java: {answer}")
    assert count > CASES / 2
    assert not failing, "\n".join(failing)
