"""Routes of records; the recordings hold what the Java sink does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.connector import ConnectorConfig
from connect.config.parse import parse
from connect.errors import ConfigError, RecordError
from connect.java_regex import compile_java_regex
from connect.records import SinkRecord
from connect.routing import UNMATCHED, Router


def config(**keys: str) -> ConnectorConfig:
    """A connector's configuration; double underscores stand for dots, single for hyphens."""
    base = {
        "name": "c",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "t",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1/",
    }
    extra = {f"iceberg.{k.replace('__', '.').replace('_', '-')}": v for k, v in keys.items()}
    return parse({**base, **extra})


def record(value: Any) -> SinkRecord:
    """A record with a value."""
    return SinkRecord("t", 0, 0, None, value=value)


def static(unmatched: str) -> Router:
    """A router with one regex."""
    return Router(
        config(
            tables="db.a,db.b",
            tables__route_field="kind",
            table__db__a__route_regex="x+",
            tables__unmatched=unmatched,
        )
    )


@pytest.mark.parametrize("unmatched", ["fail", "dead-letter"])
@pytest.mark.parametrize("value", [{"kind": "y"}, {"kind": None}, {}, {"kind": "xy"}])
def test_unmatched_records_are_no_secret(unmatched: str, value: Any) -> None:
    """What matches nothing is an error of its own stage and code, unless it is to be dropped."""
    with pytest.raises(RecordError) as refused:
        static(unmatched).route(record(value))
    assert (refused.value.stage, refused.value.code) == ("ROUTE", UNMATCHED)
    assert static("drop").route(record(value)) == ()


@pytest.mark.parametrize("unmatched", ["fail", "dead-letter", "drop"])
def test_tombstones_go_nowhere(unmatched: str) -> None:
    """A null value is no record that lost its way."""
    assert static(unmatched).route(record(None)) == ()


def test_dynamic_tables_are_bounded() -> None:
    """A field with a value per record does not make a table per record."""
    router = Router(
        config(tables__dynamic_enabled="true", tables__route_field="t", tables__max_tables="2"),
        known_tables=frozenset({"db.old"}),
    )
    assert router.route(record({"t": "DB.New"})) == ("db.new",)
    assert router.route(record({"t": "db.OLD"})) == ("db.old",)
    with pytest.raises(RecordError) as refused:
        router.route(record({"t": "db.other"}))
    assert refused.value.code == "too_many_tables"
    assert router.route(record({"t": "db.new"})) == ("db.new",)


@given(st.text(max_size=10))
def test_any_text_is_a_route(text: str) -> None:
    """A dynamic route is the text in lower case, or unmatched; never anything else."""
    router = Router(
        config(
            tables__dynamic_enabled="true",
            tables__route_field="t",
            tables__unmatched="drop",
        )
    )
    assert router.route(record({"t": text})) in ((text.lower(),), ())


@pytest.mark.parametrize(
    ("java", "text", "matches"),
    [
        (r"(?<year>\d+)-.*", "2024-x", True),
        (r"\p{Alpha}+", "abc", True),
        (r"[\p{Upper}_]+", "A_B", True),
        (r"\p{Upper}+", "ab", False),
        (r"(?<!a)b", "b", True),
        (r"x\z", "x", True),
        (r"\d", "٣", False),
        (r"a++", "aaa", True),
    ],
)
def test_java_regexes(java: str, text: str, matches: bool) -> None:
    """What both engines mean alike, after translation."""
    assert bool(compile_java_regex(java).fullmatch(text)) is matches


def test_bad_regexes_are_configuration_errors() -> None:
    """Also what Python alone does not have."""
    for java in ("(", r"\p{IsGreek}"):
        with pytest.raises(ConfigError):
            compile_java_regex(java)
