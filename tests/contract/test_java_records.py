"""Records through the Java libraries and through the reference path, beyond the recordings.

``JAVA_RECORDS_SEED`` chooses the cases that are made, ``JAVA_RECORDS_CASES`` how many.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden import records_suite as suite
from tests.java_records import RecordOracle, kind_of

pytestmark = pytest.mark.java

EVERY = 12
"""Of the recordings one in so many is asked for again."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> RecordOracle:
    """The Java libraries."""
    return RecordOracle(tmp_path_factory.mktemp("classes"))


def test_java_answers_as_it_was_recorded(oracle: RecordOracle) -> None:
    """What stands in for the recorder of the recordings gives what they hold."""
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
    found = {key: unordered(value) for key, value in answer.items()}
    if "$map" in found:
        found["$map"].sort(key=repr)
    if "writes" in found:
        found["writes"] = {table: rows for table, rows in found["writes"].items() if rows}
    return found
