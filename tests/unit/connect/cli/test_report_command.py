"""``icefloe report``: its output, and what it refuses before it asks a broker."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from connect.cli.report_command import REPORT_FORMS, print_result
from connect.errors import ConfigError, ExitStatus
from connect.operations.report.duckdb_query import QueryResult
from tests.support.command_line import icefloe

RESULT = QueryResult(
    ("name", "n", "price", "at", "nested", "nothing"),
    (
        (
            'a,"b"\nc',
            2**60,
            Decimal("1.50"),
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            {"x": [1, None]},
            None,
        ),
        ("\x1b[2J", 1, None, None, None, None),
    ),
)


@pytest.fixture(autouse=True)
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a query in the working folder."""
    (tmp_path / "query.sql").write_text("SELECT 1")
    monkeypatch.chdir(tmp_path)


def printed(form: str, capsys: pytest.CaptureFixture[str], result: QueryResult = RESULT) -> str:
    print_result(form, result)
    return capsys.readouterr().out


def test_csv_has_a_head_and_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    """Null is empty, nested values are JSON, and a terminal obeys nothing."""
    assert printed("csv", capsys) == (
        "name,n,price,at,nested,nothing\n"
        '"a,""b""\nc",1152921504606846976,1.50,2026-01-02T00:00:00+00:00,"{""x"": [1, null]}",\n'
        "\\u001b[2J,1,,,,\n"
    )


def test_json_is_a_list_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers that JSON readers would round are text."""
    assert json.loads(printed("json", capsys)) == [
        {
            "name": 'a,"b"\nc',
            "n": str(2**60),
            "price": "1.50",
            "at": "2026-01-02T00:00:00+00:00",
            "nested": {"x": [1, None]},
            "nothing": None,
        },
        {"name": "\x1b[2J", "n": 1, "price": None, "at": None, "nested": None, "nothing": None},
    ]
    assert printed("json", capsys, QueryResult(("a",), ())) == "[]\n"


def test_json_needs_distinct_names() -> None:
    """An object would lose one of the columns."""
    with pytest.raises(ConfigError, match="rename one with AS"):
        print_result("json", QueryResult(("a", "a"), ((1, 2),)))


def test_a_table_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal: cells with tabs between them."""
    lines = printed("table", capsys).splitlines()
    assert [len(line.split("\t")) for line in lines] == [6, 6]
    assert lines[1].split("\t") == ["\\u001b[2J", "1", "null", "null", "null", "null"]


def test_each_form_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """All forms of ``-o``."""
    assert all(printed(form, capsys) for form in REPORT_FORMS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "query.sql"), "name a topic with --table, or a connector with -c"),
        (("-f", "gone.sql", "-t", "t"), "gone.sql"),
        (("-f", "query.sql", "-c", "gone.json"), "gone.json"),
        (("-f", "query.sql", "-t", "a="), "is not NAME=TOPIC"),
        (("-f", "query.sql", "-t", "a=t", "-t", "A=u"), "the name is given twice"),
        (("-f", "query.sql", "-t", "t", "-o", "yaml"), "is not one of table, csv, json"),
        (("-f", "query.sql", "-t", "t", "--from-timestamp", "soon"), "--from-timestamp"),
        (("-f", "query.sql", "-t", "t", "--option", "topics=u"), "not an option of a converter"),
        (("-f", "query.sql", "-t", "t", "--option", "value.converter"), "is not KEY=VALUE"),
        (("-f", "query.sql", "-t", "t"), "no broker is named"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], message: str) -> None:
    """Status 2; the message names the option."""
    done = icefloe("report", *arguments)
    assert (done.status, done.stdout) == (ExitStatus.USAGE, "")
    assert message in " ".join(done.stderr.split())


def test_a_secret_is_refused_as_an_argument() -> None:
    """Other users can read arguments; a reference is accepted."""
    option = "value.converter.basic.auth.user.info="
    done = icefloe("report", "-f", "query.sql", "-t", "t", "--option", f"{option}u:canary-5d")
    assert done.status == ExitStatus.USAGE
    assert "canary-5d" not in done.stderr
    assert "use -c" in done.stderr
    reference = f"{option}${{env:USER_INFO}}"
    done = icefloe("report", "-f", "query.sql", "-t", "t", "--option", reference)
    assert "no broker is named" in done.stderr
