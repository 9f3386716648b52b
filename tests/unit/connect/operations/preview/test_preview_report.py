"""Values and columns of a preview as JSON."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError
from connect.model.records import KafkaRecord
from connect.operations.preview.preview_report import json_value
from connect.operations.preview.record_preview import preview
from tests.support.tables import connector

RECORD = KafkaRecord("t", 0, 0, None, -1, None, b'{"id": 1}')


def config(**keys: str) -> ConnectorConfig:
    """A connector that reads plain JSON; ``__`` for a dot, ``_`` for a dash."""
    json_values = {
        "value__converter": "org.apache.kafka.connect.json.JsonConverter",
        "value__converter__schemas__enable": "false",
    }
    return connector("c", ["db.t"], **json_values, **keys)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**53, '"9007199254740992"'),
        (-5, "-5"),
        (Decimal("1.50"), '"1.50"'),
        (b"\x00\xff", '"AP8="'),
        (float("nan"), '"nan"'),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), '"2026-01-02T00:00:00+00:00"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ([{"a": (1, None)}], '[{"a": [1, null]}]'),
        (True, "true"),
    ],
)
def test_a_value_keeps_its_exact_text(value: object, text: str) -> None:
    """Values that JSON cannot represent exactly are texts."""
    assert json.dumps(json_value(value)) == text


def test_a_query_of_spark_is_refused() -> None:
    """``Sql`` runs only in Spark; the error has the remedy."""
    with pytest.raises(ConfigError, match="remove it from a copy"):
        preview(
            config(
                transforms="q",
                transforms__q__type="icefloe.transforms.Sql",
                transforms__q__query="SELECT id FROM records",
                transforms__q__columns="id bigint",
            ),
            [RECORD],
            lambda _: None,
        )


def test_without_tolerance_a_rejected_record_stops_the_task() -> None:
    """The outcome follows ``errors.tolerance``; a missing table follows its own setting."""
    bad = KafkaRecord("t", 0, 1, 0, 0, None, b"{")
    report = preview(config(), [bad, RECORD], lambda _: None)
    assert [each.outcome for each in report.records] == ["task fails", "task fails"]
    assert [each.rejection and each.rejection.stage for each in report.records] == [
        "VALUE_CONVERTER",
        "ROUTE",
    ]
    report = preview(config(errors__tolerance="all"), [bad], lambda _: None)
    assert report.records[0].outcome == "dead letter"


@pytest.mark.parametrize("action", ["text", "fail", "dead-letter"])
def test_values_of_a_changed_type_are_previewed(action: str) -> None:
    """In the column that takes them, which the preview adds; or with their error."""
    keys = {
        "errors__tolerance": "all",
        "iceberg__tables__evolve_schema_enabled": "true",
        "iceberg__tables__auto_create_enabled": "true",
        "iceberg__tables__type_conflict": action,
    }
    text = KafkaRecord("t", 0, 1, 0, 0, None, b'{"id": "x"}')
    report = preview(config(**keys), [RECORD, text], lambda _: None)
    first, second = report.records
    assert first.outcome == "written"
    if action == "text":
        assert second.rows[0].values == {"id": None, "id__text": "x"}
        assert report.tables["db.t"].schema.column_names == ["id", "id__text"]
    else:
        codes = {"fail": "type_conflict", "dead-letter": "bad_text"}
        assert second.rejection is not None
        assert second.rejection.code == codes[action]


def test_a_change_without_key_is_shown_as_a_task_handles_it() -> None:
    """Inserts are appended; an update is appended, a dead letter, or ends the task."""
    keys = {
        "iceberg__tables__auto_create_enabled": "true",
        "iceberg__tables__cdc_field": "op",
        "iceberg__tables__no_key": "append",
    }
    records = [
        KafkaRecord("t", 0, n, None, -1, None, b'{"id": 1, "op": "%s"}' % op)
        for n, op in enumerate((b"c", b"u"))
    ]
    letters = {"errors__deadletterqueue__topic__name": "letters"}
    for more, last in (
        ({}, "task fails"),
        (letters, "dead letter"),
        ({"iceberg__tables__no_key_changes": "append"}, "written"),
    ):
        report = preview(config(**keys, **more), records, lambda _: None)
        assert [each.outcome for each in report.records] == ["written", last]
        assert [row.operation for row in report.records[0].rows] == ["append"]
