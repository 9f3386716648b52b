"""Aggregates: durations, functions, and the digest of their definition."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from connect.config.aggregation import Aggregation, duration_ms, parse_functions
from connect.errors import ConfigError
from connect.validation.parse import parse
from tests.support.connector_json import aggregate_config


def aggregation(**changes: Any) -> Aggregation:
    """Return the aggregates of an example."""
    made = parse(aggregate_config()).aggregation
    assert made is not None
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 minutes", 600_000),
        ("1 minute", 60_000),
        ("10m", 600_000),
        ("30s", 30_000),
        ("1 Hour", 3_600_000),
        ("2 days", 172_800_000),
        ("500ms", 500),
        ("500 milliseconds", 500),
        (" 1 s ", 1_000),
    ],
)
def test_durations_have_a_unit(text: str, expected: int) -> None:
    """A unit has a name and a short form."""
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["10", "", "minutes", "0s", "-1 s", "1 month", "1.5h", "1 s 2 s"])
def test_other_texts_are_refused(text: str) -> None:
    """Months have no fixed length; without a unit a number could mean anything."""
    with pytest.raises(ConfigError, match="positive number with a unit"):
        duration_ms(text)


def test_functions_have_names() -> None:
    """A name is given, or made of the function and its column."""
    made = parse_functions(["n=count(*)", "sum(amount)", "COUNT(*)", " d = approx_distinct( u ) "])
    assert [(each.name, each.function, each.column) for each in made] == [
        ("n", "count", "*"),
        ("sum_amount", "sum", "amount"),
        ("count", "count", "*"),
        ("d", "approx_distinct", "u"),
    ]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["median(a)"], "is not a function"),
        (["sum(a + b)"], "is not a function"),
        (["sum(*)"], "needs a column"),
        (["n=count(*)", "N=sum(a)"], "two functions have the name n"),
        (["1n=count(*)"], "is not a name"),
        (["sum(a)); drop"], "is not a function"),
    ],
)
def test_other_functions_are_refused(entries: list[str], message: str) -> None:
    """Only known functions of one column; no expression of a configuration reaches Spark."""
    with pytest.raises(ConfigError, match=message):
        parse_functions(entries)


@pytest.mark.parametrize(
    "changes",
    [
        {"window_ms": 1},
        {"slide_ms": 1},
        {"group_by": ()},
        {"functions": parse_functions(["n=count(*)"])},
        {"columns": "ts TIMESTAMP, amount DOUBLE"},
        {"time_field": "other"},
        {"emit": "final"},
        {"state_partitions": 9},
    ],
)
def test_a_change_of_the_meaning_changes_the_definition(changes: dict[str, Any]) -> None:
    """The state of other aggregates is not used."""
    assert aggregation(**changes).definition != aggregation().definition


def test_other_changes_keep_the_definition() -> None:
    """The state stays valid."""
    same = aggregation(
        watermark_ms=1, topic="other", interval_ms=1, location="s3://b", missing_state="empty"
    )
    assert same.definition == aggregation().definition
