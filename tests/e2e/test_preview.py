"""``icefloe preview`` shows what the running connector then does with the same records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import ConfigError
from connect.operations.preview.connector_preview import preview_in_process
from connect.operations.preview.preview_report import json_value
from tests.support.command_line import CommandResult, icefloe
from tests.support.running_stack import RunningStack, duckdb_rows
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Json = dict[str, Any]


class PreviewedConnector:
    """A connector's file and the records of its topic.

    Args:
        running: the stack.
        folder: for the file.
        records: values of the topic, each with a key or without.
        config: the connector's; ``{topic}`` and ``{table}`` are replaced.
    """

    def __init__(
        self, running: RunningStack, folder: Path, records: list[Any], config: Mapping[str, str]
    ) -> None:
        self.running = running
        self.name = unique_name("previewed")
        self.topic = running.topic("preview", partitions=1)
        self.table = f"preview.{self.name.replace('-', '_')}"
        self.letters = unique_name("letters")
        self.config = {
            **running.connector(topics=self.topic, iceberg__tables=self.table),
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": self.letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
            **config,
        }
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            running.produce(self.topic, value, key=key)
        self.file = folder / f"{self.name}.json"
        self.file.write_text(json.dumps({"name": self.name, "config": self.config}))

    def preview(self, *options: str) -> tuple[int, Json]:
        """Run the command; its status and its JSON."""
        output = self.command("-o", "json", *options)
        assert output.stdout, output.stderr
        return output.status, json.loads(output.stdout)

    def command(self, *options: str) -> CommandResult:
        """Run the command against the node, whose properties give the converters."""
        server = () if "--direct" in options else ("--server", self.running.stack.rest_url)
        return icefloe("preview", "-f", str(self.file), *server, *options)

    def run(self, rows: int) -> list[Json]:
        """Create the connector; the rows of its table as the preview spells values."""
        self.running.create(self.name, self.config)
        stored = self.running.rows(self.table, rows, self.name)
        return [{name: json_value(value) for name, value in row.items()} for row in stored]

    def dead_letters(self, count: int) -> list[Json]:
        """Wait for the dead letters; offset, stage and message of each."""

        def inspect() -> list[Any] | None:
            if self.letters not in self.running.stack_topics():
                return None
            letters = self.running.records(self.letters)
            return letters if len(letters) >= count else None

        letters = self.running.wait_until(inspect, lambda: f"{count} dead letters of {self.name}")
        return [dict(letter.headers()) for letter in letters]


def key(row: Mapping[str, Any]) -> str:
    """Return a sort key for a row with values of any type."""
    return json.dumps(row, sort_keys=True)


def test_a_preview_shows_a_missing_table_as_it_would_be_created(
    running: RunningStack, tmp_path: Path
) -> None:
    """Schema, partitions and rows; nothing is created before the connector."""
    records = [
        {"id": 1, "at": "2026-01-02T03:04:05Z", "tags": ["a"], "price": 1.5, "who": {"name": "x"}},
        {"id": 2, "at": "2026-01-02T03:04:05Z", "extra": True, "who": {"name": "y", "age": 3}},
        {"id": 3, "at": "2026-01-03T00:00:00Z", "tags": [], "price": 2},
        b"{broken",
        b'"a text is no record"',
    ]
    previewed = PreviewedConnector(
        running,
        tmp_path,
        records,
        {
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.default-partition-by": "id",
        },
    )
    status, report = previewed.preview()
    assert status == 1
    assert report["outcomes"] == {"written": 3, "dead letter": 2}
    assert not running.catalog.table_exists(previewed.table)
    assert previewed.letters not in running.stack_topics()
    (table,) = report["tables"]
    assert not table["exists"]
    assert table["partitioned_by"] == ["identity(id)"]

    rows = previewed.run(3)
    assert sorted((row["values"] for row in table["rows"]), key=key) == sorted(rows, key=key)
    made = running.catalog.load_table(previewed.table)
    assert [c["name"] for c in table["columns"] if "." not in c["name"]] == [
        field.name for field in made.schema().fields
    ]
    letters = previewed.dead_letters(2)
    assert [(w["offset"], w["stage"]) for w in report["not_written"]] == [
        (
            int(letter["__connect.errors.offset"]),
            letter["__connect.errors.stage"].decode(),
        )
        for letter in letters
    ]
    for why, letter in zip(report["not_written"], letters, strict=True):
        assert why["message"] in letter["__connect.errors.exception.message"].decode()
    running.delete(previewed.name)


def test_a_preview_of_row_level_changes_does_not_change_the_table(
    running: RunningStack, tmp_path: Path
) -> None:
    """Inserts, updates and deletes, and an added column; the table then has these rows.

    Values that do not fit the column are dead letters.
    """
    records: list[Any] = [
        ("1", {"id": 1, "name": "a", "op": "I"}),
        ("2", {"id": 2, "name": "b", "op": "I"}),
        ("1", {"id": 1, "name": "c", "op": "U", "more": 7}),
        ("2", {"id": 2, "name": "b", "op": "D"}),
        ("3", {"id": 3, "name": "d", "op": "I"}),
        ("4", {"id": "no number", "name": "e", "op": "I"}),
    ]
    previewed = PreviewedConnector(
        running,
        tmp_path,
        records,
        {
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.cdc-field": "op",
            "iceberg.tables.default-id-columns": "id",
        },
    )
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        NestedField(3, "op", StringType()),
    )
    running.table(previewed.table, schema=schema)
    status, report = previewed.preview()
    assert status == 1
    (table,) = report["tables"]
    assert [(c["name"], c["change"]) for c in table["columns"]] == [
        ("id", None),
        ("name", None),
        ("op", None),
        ("more", "added"),
    ]
    (rejected,) = report["not_written"]
    assert (rejected["offset"], rejected["column"], rejected["outcome"]) == (5, "id", "dead letter")
    assert running.catalog.load_table(previewed.table).schema() == schema
    assert [row["operation"] for row in table["rows"]] == [
        "insert",
        "insert",
        "update",
        "delete",
        "insert",
    ]
    state: dict[int, Json] = {}
    for row in table["rows"]:
        values = row["values"]
        state.pop(values["id"], None)
        if row["operation"] != "delete":
            state[values["id"]] = values
    running.create(previewed.name, previewed.config)

    columns = ("id", "name", "op", "more")
    wanted = sorted(tuple(map(row.get, columns)) for row in state.values())

    def found() -> list[tuple[Any, ...]]:
        table = running.catalog.load_table(previewed.table)
        has_all = set(columns) <= {field.name for field in table.schema().fields}
        return duckdb_rows(table, *columns) if has_all and table.current_snapshot() else []

    running.wait_until(lambda: found() == wanted, lambda: f"{wanted}, not {found()}")
    running.delete(previewed.name)


def test_a_preview_reads_the_requested_number_of_records(
    running: RunningStack, tmp_path: Path
) -> None:
    """``--records`` limits the sample; ``--from latest`` reads the newest; text names each."""
    previewed = PreviewedConnector(
        running,
        tmp_path,
        [{"id": n} for n in range(10)],
        {"iceberg.tables.auto-create-enabled": "true"},
    )
    _, report = previewed.preview("--records", "3")
    assert [row["values"]["id"] for row in report["tables"][0]["rows"]] == [0, 1, 2]
    newest = ("--records", "3", "--from", "latest")
    output = previewed.command(*newest)
    assert output.status == 0
    assert f"table {previewed.table} (would be created)" in output.stdout
    ids = re.findall(
        rf'^ *{previewed.topic}-0@(\d)  insert  {{"id": \1}}$', output.stdout, re.MULTILINE
    )
    assert ids == ["7", "8", "9"]
    assert output.stdout.endswith("3 records: 3 written\n")
    properties = running.stack.state_dir / "node.properties"
    direct = previewed.command("--direct", "-p", str(properties), *newest)
    assert direct.stdout == output.stdout


def test_a_preview_that_takes_too_long_is_ended(running: RunningStack, tmp_path: Path) -> None:
    """Its process is killed at the limit, and the error says what to do."""
    previewed = PreviewedConnector(
        running, tmp_path, [{"id": 1}], {"iceberg.tables.auto-create-enabled": "true"}
    )
    node = {"bootstrap.servers": running.stack.bootstrap_servers}
    raw = {"name": previewed.name, **previewed.config}
    with pytest.raises(ConfigError, match=r"longer than 0\.01 s: ask"):
        preview_in_process(raw, node, {}, count=1, start="earliest", timeout_s=0.01)
