"""Patterns of ``Sql``: the results of Spark's functions, in a bounded number of steps."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect.errors import ConfigError
from connect.gateways.access_policy import access_policy, install
from tests.support.spark_marks import SPARK_MARKS
from tests.support.sql_harness import SqlHarness, counts
from worker.sql.bounded_patterns import CALLS_MAX
from worker.sql.sql_expressions import Expressions

pytestmark = list(SPARK_MARKS)
_END_S = 180  # without a bound the matcher runs for hours
HELD = {
    "counted": (r"device RLIKE '(?:(?:a+)+){2,}b'", "a" * 40),
    "counted lazily": (r"device RLIKE '(.*?,){11}P'", "1," * 30),
    "adjacent": (r"regexp_extract(device, 'a*a*a*a*a*a*a*a*b', 0) = ''", "a" * 200),
    "back-reference": (r"regexp_count(device, '(a+)+\\1?b') = 0", "a" * 40),
    "replaced": (r"regexp_replace(device, '(.*a){20}b', '') = ''", "a" * 80),
    "split": (r"size(split(device, '(.*a){20}b')) = 1", "a" * 80),
    "delimiter": (r"size(str_to_map(device, '(?:(?:a+)+){2,}b')) = 1", "a" * 40),
}
ENDS = (
    "the query is refused",
    "dead-lettered 1, dropped 0, written 0",
)


@pytest.fixture
def sql(shared_sql: SqlHarness) -> SqlHarness:
    """Queries without tables of their own."""
    return shared_sql


@pytest.fixture(params=["users", "no users"])
def with_users(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether tenants write queries."""
    before = access_policy()
    install(replace(before, is_guarded=request.param == "users"))
    yield access_policy().is_guarded
    install(before)


def _outcome(sql: SqlHarness, condition: str, text: str) -> str:
    """What became of a record with that text."""
    try:
        query = sql.query(f"SELECT id FROM records WHERE {condition}")
    except ConfigError:
        return "the query is refused"
    found = counts(sql.run(query, [{"id": 1, "device": text}]))
    return f"dead-lettered {found.dead_lettered}, dropped {found.dropped}, written {found.written}"


@pytest.mark.parametrize("name", HELD)
@pytest.mark.usefixtures("with_users")
def test_a_pattern_cannot_block_a_thread(sql: SqlHarness, name: str) -> None:
    """A text that Java would match for hours: the query or the record is refused."""
    condition, text = HELD[name]
    outcomes: list[str] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(_outcome(sql, condition, text)), daemon=True
    )
    thread.start()
    thread.join(_END_S)
    if thread.is_alive():  # nothing else ends the matcher, which would take a core from all tests
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.proc.kill()
    assert len(outcomes) == 1, f"{condition} still runs over a text of {len(text)} characters"
    assert outcomes[0] in ENDS


def test_only_the_record_with_too_many_steps_is_refused(sql: SqlHarness) -> None:
    """Too many steps, or too deep a stack; records before and after it are written."""
    values = ["a", "a" * 60, "b", "ab" * 50_000, "a"]
    for pattern in ("(?:(?:a+)+){2,}c", "(a|b)*c"):
        query = sql.query(f"SELECT id FROM records WHERE NOT device RLIKE '{pattern}'")
        result = sql.run(query, [{"id": i, "device": text} for i, text in enumerate(values)])
        assert counts(result).dead_lettered >= 1
        assert counts(result).dead_lettered + counts(result).written == len(values)


def test_a_leading_wildcard_takes_linear_steps(sql: SqlHarness) -> None:
    """``.*`` at the start of a pattern is tried once per line, not at each character."""
    text = f"{'x' * 20_000}\n{'y' * 20_000}"
    conditions = [
        "device RLIKE '.*foo'",
        "regexp_extract(device, '(.*)foo', 1) <> ''",
        "regexp_replace(device, '.*foo', '') <> device",
        "regexp_count(device, '.*?foo.*') > 0",
    ]
    for condition in conditions:
        query = sql.query(f"SELECT id FROM records WHERE {condition}")
        assert counts(sql.run(query, [{"id": 1, "device": text}])).dropped == 1, condition


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("device RLIKE n", "must be a literal"),
        ("device RLIKE concat('a', 'b')", "must be a literal"),
        ("device RLIKE X'61'", "must be a literal"),
        ("device LIKE n", "must be a literal"),
        ("device ILIKE lower('A')", "must be a literal"),
        ("like(device, 'a', n)", "the escape character"),
        ("device LIKE 'a!'", "Spark"),
        ("device LIKE 'a!b' ESCAPE '!'", "does not accept"),
        ("split(device, n)[0] = ''", "must be a literal"),
        ("regexp_replace(device, 'a', 'b', id) = ''", "above 0"),
        ("regexp_replace(device, 'a', 'b', 0) = ''", "above 0"),
        ("str_to_map(device, n)['a'] = ''", "must be a literal"),
        ("str_to_map(device, 'a', ':+')['a'] = ''", "cannot have quantifiers"),
        ("parse_url(device, 'QUERY', n) = ''", "must be a literal"),
        ("parse_url(device, 'QUERY', '(a+)+b') = ''", "cannot have quantifiers"),
        ("device RLIKE '['", "does not accept"),
        (" OR ".join(f"device RLIKE 'a{i}'" for i in range(51)), "more than 50"),
        ("exists(split(device, 'a'), x -> x RLIKE device)", "must be a literal"),
    ],
)
def test_a_pattern_without_a_known_bound_is_refused(
    sql: SqlHarness, condition: str, why: str
) -> None:
    """Before a record is read, with the reason."""
    if why == "Spark":
        sql.query(f"SELECT id FROM records WHERE {condition}")  # no escape: an ordinary character
        return
    with pytest.raises(ConfigError, match=why) as refused:
        sql.query(f"SELECT id FROM records WHERE {condition}")
    assert refused.value.code == "sql_query"


def test_unnamed_columns_have_sparks_names(sql: SqlHarness) -> None:
    """Spark names them after the expression as written."""
    query = sql.query("SELECT split(device, ',')[0], device RLIKE 'a' FROM records")
    assert [item.name for item in query.split.items] == [
        "split(device, ,, -1)[0]",
        "RLIKE(device, a)",
    ]


@pytest.mark.parametrize("pattern", ["(a*)*", "(|)x", "(?x) a", "(?<=a)b", "(a)\\\\1"])
def test_a_pattern_of_java_only_is_for_nodes_without_users(
    sql: SqlHarness, pattern: str, *, with_users: bool
) -> None:
    """Where tenants write queries, RE2 must support it, and no part may be tried without a read."""
    query = f"SELECT id FROM records WHERE device RLIKE '{pattern}'"
    with pytest.raises(ConfigError, match="is not supported") if with_users else nullcontext():
        sql.query(query)


# ------------------------------------------------------------------ the same as Spark's functions

_REGEXES = (
    *("a", "a+", "(a)(b)?", "^a|b$", "[a-c]+-\\\\d+", "a.c", ".*b", "(.*)b(.*)", ".*?b", "(?i)AB"),
    *(
        "\\\\b\\\\w",
        "b*",
        "",
        ",",
        "\\\\|",
        "(?<x>a)\\\\k<x>",
        "a{2,3}?",
        "(?=a)",
        "(?<=a)b",
        "\\\\s",
    ),
    *(
        "(?:ab|a)(?:c|bcd)",
        "[^a]",
        "\\\\Qa.b\\\\E",
        "é|ü",
        "..",
        "\\\\R",
        "(.*)",
        "(?s).*b",
        "a++b",
    ),
)
_LIKES = (
    *("a", "%a", "a%", "%a%", "a%b", "_", "%_b%", "a_%c", "%a%b%c%", "", "%", "%%", "\\\\%a"),
    *("\\\\_%", "%é_", "_%_", "a\\\\\\\\%", "A%b_"),
)
_CALLS = (
    *("a RLIKE '{}'", "regexp_count(a, '{}')", "regexp_extract(a, '{}', 0)", "split(a, '{}')"),
    *("regexp_instr(a, '{}')", "regexp_substr(a, '{}')", "regexp_replace(a, '{}', '<$0>')"),
    *("split(a, '{}', 2)", "split(a, '{}', 0)", "regexp_replace(a, '{}', 'x', 3)"),
    "try_element_at(transform(split(a, ','), x -> regexp_extract(x, '{}', 0)), 1)",
)
_LIKE_CALLS = ("a LIKE '{}'", "a NOT LIKE '{}'", "a ILIKE '{}'", "like(a, '{}', '/')")
_LISTS = ("a LIKE ANY ('{}', 'b%')", "a LIKE ALL ('{}', '%')", "a NOT LIKE ANY ('{}')")
Values = dict[tuple[str, str, str | None], Any]


def _texts() -> list[str | None]:
    dice = random.Random(7)
    columns_of = [
        "".join(dice.choices("abcABC-1,.| \n\\_%éü😀", k=dice.randrange(12))) for _ in range(150)
    ]
    return ["", None, "a\r\nb", "ab-12", *columns_of]


def _values_of_spark(rows: DataFrame, calls: Sequence[str], patterns: Sequence[str]) -> Values:
    """The values by call, pattern and text; a pattern is a value of a row, not a literal."""
    literals = ", ".join(f"'{pattern}'" for pattern in patterns)
    pairs = rows.select("a", F.posexplode(F.expr(f"array({literals})")).alias("i", "p"))
    columns = [F.expr(call.replace("'{}'", "p")).alias(call) for call in calls]
    found = pairs.select("a", "i", *columns).toArrow()
    texts, numbers, *values = [column.to_pylist() for column in found.columns]
    return {
        (call, patterns[i], text): value
        for call, of_call in zip(calls, values, strict=True)
        for text, i, value in zip(texts, numbers, of_call, strict=True)
    }


def _values(rows: DataFrame, pairs: Sequence[tuple[str, str]], column: Any) -> Values:
    """The values by call, pattern and text; a pattern is a literal."""
    columns = [
        column(call.format(pattern)).alias(f"c{i}") for i, (call, pattern) in enumerate(pairs)
    ]
    texts, *values = [each.to_pylist() for each in rows.select("a", *columns).toArrow().columns]
    return {
        (*pair, text): value
        for pair, of_pair in zip(pairs, values, strict=True)
        for text, value in zip(texts, of_pair, strict=True)
    }


@pytest.mark.parametrize(
    ("calls", "patterns"),
    [
        pytest.param(_CALLS, _REGEXES[::5], id="some regex"),
        pytest.param(_LIKE_CALLS, _LIKES[::4], id="some like"),
        pytest.param(_LISTS, _LIKES[::4], id="some lists"),
        pytest.param(_CALLS, _REGEXES, id="regex", marks=pytest.mark.matrix),
        pytest.param(_LIKE_CALLS, _LIKES, id="like", marks=pytest.mark.matrix),
        pytest.param(_LISTS, _LIKES, id="lists", marks=pytest.mark.matrix),
    ],
)
def test_values_equal_those_of_sparks_functions(
    sql: SqlHarness, calls: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    """For every function, pattern and text."""
    spark = sql.session.spark
    rows = spark.createDataFrame([(text,) for text in _texts()], "a STRING").coalesce(1)
    pairs = [*itertools.product(calls, patterns)]
    if calls == _LISTS:  # of literals: of others, Spark makes other functions
        expected = _values(rows, pairs, F.expr)
    else:
        expected = _values_of_spark(rows, calls, patterns)
    assert len(expected) == len(pairs) * len(set(_texts()))
    count = CALLS_MAX // 2  # of one query; a call may have two patterns
    for start in range(0, len(pairs), count):
        bounded = Expressions(spark).column
        for key, value in _values(rows, pairs[start : start + count], bounded).items():
            assert value == expected[key], key
