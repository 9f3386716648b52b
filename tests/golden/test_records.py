"""The reference path against recordings of the Java libraries."""

from __future__ import annotations

import base64

import pytest

from tests.golden import records_suite as suite

FILES = list(suite.files())


@pytest.mark.parametrize("path", FILES, ids=map(suite.title, FILES))
def test_every_recorded_record_is_met(path: suite.Path) -> None:
    """Or it differs by a rule of docs/reference/records-differences.md."""
    results = suite.results_of(path)
    failing = [result for result in results if result.verdict == "failing"]
    assert results
    assert not failing, "\n".join(f"{r.name}: {r.detail}" for r in failing)


def test_most_recordings_agree_without_a_rule() -> None:
    """A rule that covers a whole suite would be detected."""
    totals = suite.run().values()
    agreed, by_rule = sum(t[0] for t in totals), sum(t[1] for t in totals)
    assert agreed > 5 * by_rule


def test_a_deep_value_does_not_end_the_report() -> None:
    """A value that Python cannot print is compared, and shown by its depth."""
    text = b"[" * 1000 + b"]" * 1000
    case = {
        "name": "deep",
        "converter": "org.apache.kafka.connect.json.JsonConverter",
        "role": "value",
        "config": {"schemas.enable": "false"},
        "input": {"bytes": base64.b64encode(text).decode()},
        "expected": {"schema": None, "value": {"$deep": 1000}},
    }
    assert suite.judged(suite.compare_converter, case).verdict == "agreed"
    other = {**case, "expected": {"schema": None, "value": {"$deep": 999}}}
    result = suite.judged(suite.compare_converter, other)
    assert (result.verdict, result.detail) == ("failing", "a value nested 1000 deep")


def test_a_line_that_cannot_be_read_fails_alone(tmp_path: suite.Path) -> None:
    """The other cases of its file are checked."""
    recorded = next(suite.files()).read_text("utf-8").splitlines()[:1]
    deep = '{"name": "deep", "input": ' + "[" * 100_000 + "]" * 100_000 + "}"
    file = tmp_path / "converters" / "AvroData.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join([deep, "{", *recorded]))
    assert [result.verdict for result in suite.results_of(file)] == ["failing", "failing", "agreed"]
