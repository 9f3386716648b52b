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

EVERY = 24
"""Of the recordings one in so many is asked for again."""

SEED = int(os.environ.get("JAVA_RECORDS_SEED", "0"))
CASES = int(os.environ.get("JAVA_RECORDS_CASES", "600"))
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


Asked = list[tuple[Path, Any, dict[str, Any]]]
"""Cases with the files that have their like, and Java's answers."""


@pytest.fixture(scope="module")
def asked() -> tuple[Asked, Asked]:
    """Recorded and random cases: one JVM answers all, because its start costs most."""
    paths = [path for path in suite.files() if path.stem not in ("variant", "auto-create")]
    recorded = [(path, case) for path in paths for case in suite.cases_of(path)][::EVERY]
    random = [
        (Path(*GENERATORS[kind][:2]).with_suffix(".jsonl"), case)
        for kind, share in SHARES.items()
        for case in generated_cases(kind, SEED, max(1, round(CASES * share)))
    ]
    answers = iter(RecordOracle().ask([(kind_of(p), c) for p, c in (*recorded, *random)]))
    of_recorded, of_random = ([(*each, next(answers)) for each in of] for of in (recorded, random))
    return of_recorded, of_random


@pytest.mark.timeout(7200)
def test_java_answers_as_it_was_recorded(asked: tuple[Asked, Asked]) -> None:
    """The class that replaces the recorder gives the recorded results."""
    for _, case, answer in asked[0]:
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
def test_java_and_icefloe_agree_beyond_the_recordings(asked: tuple[Asked, Asked]) -> None:
    """Random cases: the same record, row or refusal, or a difference by a written rule."""
    failing: list[str] = []
    count = 0
    for folder, case, answer in asked[1]:
        if answer.get("error", {}).get("stage") == "input":
            continue  # no such value in Java
        count += 1
        result = generated_rules.verdict(suite.comparison(folder), {**case, "expected": answer})
        if result.verdict == "failing":
            failing.append(f"{result.name}: {result.detail}\n  {case}\n  Java: {answer}")
    assert count > CASES / 2
    assert not failing, "\n".join(failing)
