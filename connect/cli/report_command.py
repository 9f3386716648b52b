"""``icefloe report -f query.sql``: SQL over the present records of topics.

Rules of this file:
- The result goes to standard output. Records that are not in the tables go to standard error, and
  the status is 1: the result may be incomplete.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from connect.cli.direct_access import Broker, Properties
from connect.cli.gitops.connector_files import read_one
from connect.cli.gitops.plan import displayed
from connect.cli.terminal import echo, table
from connect.errors import ConfigError, ExitStatus

if TYPE_CHECKING:
    from connect.operations.report.duckdb_query import QueryResult
    from connect.operations.report.topic_report import TopicReport

REPORT_FORMS: Final = ("table", "csv", "json")


def _form(value: str) -> str:
    if value not in REPORT_FORMS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(REPORT_FORMS)}")
    return value


ReportOutput = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        parser=_form,
        metavar=f"[{'|'.join(REPORT_FORMS)}]",
        help="Output format: table, csv with a head, or json.",
    ),
]


QueryFile = Annotated[Path, typer.Option("--file", "-f", help="File with the SQL query.")]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        "-t",
        metavar="[NAME=]TOPIC",
        help="A topic, and the name of its table in the query. May be repeated.",
    ),
]
ConverterFile = Annotated[
    Path | None,
    typer.Option(
        "--connector",
        "-c",
        help="A connector's JSON or YAML: its topics, unless --table names some, and its "
        "converters.",
    ),
]
KeyConverter = Annotated[
    str | None, typer.Option("--key-converter", help="Class that decodes keys.")
]
ValueConverter = Annotated[
    str | None, typer.Option("--value-converter", help="Class that decodes values.")
]
ConverterOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Option of a converter, such as value.converter.schema.registry.url=URL. May be "
        "repeated.",
    ),
]
FromTimestamp = Annotated[
    str | None,
    typer.Option(
        "--from-timestamp",
        help="Start at the first record of this time: ISO 8601, or milliseconds since 1970.",
    ),
]
AllRecords = Annotated[
    bool, typer.Option("--all", help="Keep all records, not only the latest of each key.")
]
RecordsMax = Annotated[
    int, typer.Option("--max-records", min=1, help="Records kept, and rows of the result.")
]
BytesMax = Annotated[
    int, typer.Option("--max-bytes", min=1, help="Memory of the records, and of the query.")
]


def report(
    file: QueryFile,
    tables: Tables = None,
    connector: ConverterFile = None,
    *,
    key_converter: KeyConverter = None,
    value_converter: ValueConverter = None,
    converter_options: ConverterOptions = None,
    bootstrap_server: Broker = None,
    properties: Properties = None,
    from_timestamp: FromTimestamp = None,
    is_all: AllRecords = False,
    records_max: RecordsMax = 1_000_000,
    bytes_max: BytesMax = 2**30,
    output: ReportOutput = "table",
) -> None:
    """Run a SQL query over topics: the latest value of each key as a table.

    Status 0 when every record could be decoded, 1 when some could not: they are counted on standard
    error.
    """
    sql = _sql(file)
    named = _topics(tables or ())
    if not named and connector is None:
        raise ConfigError("name a topic with --table, or a connector with -c", code="usage")
    options = _options(key_converter, value_converter, converter_options or ())
    config = None if connector is None else read_one(connector, unnamed="report").config
    start_ms = None if from_timestamp is None else _milliseconds(from_timestamp)

    # with Kafka clients and pyarrow: wrong usage is answered without them
    from connect.operations.connector_clients import read_properties  # noqa: PLC0415 - on use
    from connect.operations.report.topic_report import (  # noqa: PLC0415 - on use
        ReportRequest,
        converter_config,
        run_report,
    )

    by_options = converter_config(named, options)
    request = ReportRequest(
        sql=sql,
        tables=named or None,
        config=by_options if config is None else {**config, **options},
        from_timestamp_ms=start_ms,
        is_latest=not is_all,
        records_max=records_max,
        bytes_max=bytes_max,
    )
    answer = run_report(request, read_properties(properties, bootstrap_server), os.environ)
    print_result(output, answer.result)
    if answer.unusable:
        _print_unusable(answer)
        raise typer.Exit(ExitStatus.NO)


def _sql(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as e:
        raise ConfigError(f"cannot read the query {file}: {e}", code="usage") from e


def _topics(tables: Iterable[str]) -> dict[str, str]:
    """Return the topics by name of their table."""
    named: dict[str, str] = {}
    for text in tables:
        name, _, topic = text.rpartition("=")
        name = name or topic
        if not topic or name.lower() in map(str.lower, named):
            raise ConfigError(
                f"--table {text!r} is not NAME=TOPIC, or the name is given twice", code="usage"
            )
        named[name] = topic
    return named


def _options(key: str | None, value: str | None, pairs: Iterable[str]) -> dict[str, str]:
    """Return keys of a connector's configuration.

    Raises:
        ConfigError: a pair is not KEY=VALUE, a key is given twice, or a value may be a secret.
    """
    classes = {"key.converter": key, "value.converter": value}
    options = {name: text for name, text in classes.items() if text is not None}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals or name in options:
            raise ConfigError(
                f"--option {name!r} is not KEY=VALUE, or the key is given twice", code="usage"
            )
        if displayed(name, text) != text:
            raise ConfigError(
                f"the value of {name} may be a secret, and other users can read arguments: put a "
                f"reference such as ${{file:/etc/icefloe/secrets.properties:{name}}}, or use -c",
                code="usage",
            )
        options[name] = text
    return options


def _milliseconds(text: str) -> int:
    from connect.config.start_position import parse_timestamp  # noqa: PLC0415 - on use

    try:
        return parse_timestamp(text)
    except ValueError as e:
        raise ConfigError(f"--from-timestamp: {e}", code="usage") from e


def print_result(form: str, result: QueryResult) -> None:
    """Print the result of a query.

    Args:
        form: one of ``REPORT_FORMS``.
        result: of the query.

    Raises:
        ConfigError: two columns have the same name, for ``json``.
    """
    _PRINTERS[form](result)


def _print_table(result: QueryResult) -> None:
    table(result.columns, ([_cell(value, "null") for value in row] for row in result.rows))


def _print_csv(result: QueryResult) -> None:
    for cells in (result.columns, *([_cell(value, "") for value in row] for row in result.rows)):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        echo(line.getvalue(), nl=False)


def _print_json(result: QueryResult) -> None:
    from connect.operations.preview.preview_report import json_value  # noqa: PLC0415 - on use

    if len({*result.columns}) != len(result.columns):
        raise ConfigError(
            "two columns of the result have the same name: rename one with AS, or use -o csv",
            code="usage",
        )
    rows: list[Mapping[str, Any]] = [
        {n: json_value(v) for n, v in zip(result.columns, row, strict=True)} for row in result.rows
    ]
    echo(json.dumps(rows, ensure_ascii=False, indent=2))


_PRINTERS: Final = {"table": _print_table, "csv": _print_csv, "json": _print_json}


def _cell(value: Any, null: str) -> str:
    """Return a value as text: times as ISO 8601, nested values as JSON."""
    from connect.operations.preview.preview_report import json_value  # noqa: PLC0415 - on use

    if value is None:
        return null
    if isinstance(value, str):
        return value
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _print_unusable(answer: TopicReport) -> None:
    for name, records in answer.unusable.items():
        echo(f"table {name} lacks {records.count:,} records:", err=True)
        for example in records.examples:
            echo(f"  {example}", err=True)
        if records.count > len(records.examples):
            echo(f"  and {records.count - len(records.examples):,} more", err=True)
