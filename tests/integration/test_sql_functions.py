"""``Sql``: what its allowlists let through really runs, in Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from connect.errors import ConfigError
from connect.records.transforms.sql.sql_functions import FUNCTIONS
from connect.records.transforms.sql.sql_query import parse_query
from tests.support.spark_marks import SPARK_MARKS
from tests.support.sql_harness import SqlHarness
from tests.support.sql_samples import CALLS, COLUMNS, FORMS, RECORD

pytestmark = list(SPARK_MARKS)
_TEXTS = [name for name in CALLS if name in {"lower", "upper", "trim", "reverse", "initcap", "md5"}]
SOME, EVERY = 16, 1
"""Steps through the samples, which are in groups: ``SOME`` takes of each large group."""
STEPS = [SOME, pytest.param(EVERY, marks=pytest.mark.matrix)]  # Spark compiles each expression


@pytest.fixture
def sql(shared_sql: SqlHarness) -> SqlHarness:
    """Queries without tables of their own."""
    return shared_sql


def test_every_function_has_a_sample() -> None:
    """The allowlist and the table of samples are equal."""
    assert set(CALLS) == FUNCTIONS


@pytest.mark.parametrize("step", STEPS)
def test_every_listed_function_runs(sql: SqlHarness, step: int) -> None:
    """Each is accepted, resolved to an expected class, and computed for a record."""
    calls = [*CALLS.values()][::step]
    for start in range(0, len(calls), 30):
        _accepted(sql, calls[start : start + 30])


@pytest.mark.parametrize("step", STEPS)
def test_every_form_runs(sql: SqlHarness, step: int) -> None:
    """Operators, literals, casts and paths are accepted and computed."""
    forms = FORMS[::step]
    for start in range(0, len(forms), 30):
        _accepted(sql, forms[start : start + 30])


@pytest.mark.parametrize(
    ("seed", "count"),
    [(4, 3), *(pytest.param(seed, 12, marks=pytest.mark.matrix) for seed in range(4))],
)
def test_random_combinations_run(sql: SqlHarness, seed: int, count: int) -> None:
    """Allowed calls as arguments of allowed calls."""
    dice = random.Random(seed)
    items = []
    for _ in range(count):
        text = f"CAST({CALLS[dice.choice(sorted(CALLS))]} AS STRING)"
        text = "a" if any(x in text for x in ("arrays_zip", "map", "struct(")) else text
        for _ in range(dice.randrange(4)):
            text = f"{dice.choice(_TEXTS)}({text})"
        other = CALLS[dice.choice(sorted(CALLS))]
        items.append(f"CASE WHEN {other} IS NULL THEN 'none' ELSE {text} END")
    _accepted(sql, items)


def test_every_other_function_of_spark_is_refused(sql: SqlHarness) -> None:
    """By its name, at validation."""
    registry = sql.session.spark._jsparkSession.sessionState().functionRegistry()
    listed: Any = registry.listFunction()
    names = {str(listed.apply(i).funcName()) for i in range(listed.size())}
    others = {name for name in names if name.isidentifier()} - FUNCTIONS
    assert len(others) > 200
    for name in others - {"and", "or"}:  # operators
        for written in (name, name.upper(), f"`{name}`"):
            with pytest.raises(ConfigError, match=f"(?i)the function {name} is not allowed"):
                parse_query(f"SELECT {written}(a) FROM records")


def _accepted(sql: SqlHarness, items: Sequence[str]) -> None:
    listed = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    query = sql.query(f"SELECT {listed} FROM records r", columns=COLUMNS)
    result = sql.run(query, [RECORD], None)
    assert not result.dead_letters, [str(letter.error) for letter in result.dead_letters]
    assert result.table_requests or result.progress
