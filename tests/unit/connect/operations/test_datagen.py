"""Generated records: values, encodings and errors of a specification."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import fastavro
import pytest
import typer
from typer.testing import CliRunner

from connect.cli.datagen_command import datagen
from connect.errors import ConfigError
from connect.operations.datagen.record_spec import RecordSpec, read_spec, replaced
from connect.operations.datagen.record_values import RecordEncoder, RecordValues, avro_schema

FIELDS: dict[str, Any] = {
    "id": {"type": "sequence", "start": 10, "step": 5},
    "customer": {"fake": "person.full_name"},
    "amount": {"type": "double", "min": 1, "max": 5, "digits": 2},
    "status": {"type": "choice", "values": ["new", "paid"], "weights": [1, 0]},
    "is_gift": {"type": "boolean", "chance": 1},
    "at": {"type": "timestamp"},
    "note": {"type": "integer", "min": 7, "max": 7, "nulls": 1},
    "address": {"type": "object", "fields": {"city": {"fake": "address.city"}}},
    "tags": {"type": "list", "of": {"fake": "text.color"}, "min": 2, "max": 2},
}
HOW_TO = Path(__file__).parents[4] / "docs" / "how-to" / "generate-records.md"


def spec(**more: Any) -> RecordSpec:
    return RecordSpec.model_validate({"topic": "t", "fields": FIELDS, "key": "id", **more})


def test_values_follow_from_the_seed() -> None:
    """Equal seeds give equal records; the key is the text of the field."""
    first, again, other = (RecordValues(spec(seed=seed)) for seed in (1, 1, 2))
    records = [first.next(n, 0) for n in range(20)]
    assert records == [again.next(n, 0) for n in range(20)]
    assert records != [other.next(n, 0) for n in range(20)]
    key, value = records[3]
    assert (key, value["id"]) == (b"25", 25)
    assert value["status"] == "new"
    assert value["is_gift"] is True
    assert value["note"] is None
    assert value["at"] == "1970-01-01T00:00:00Z"
    assert 1 <= value["amount"] <= 5
    assert len(value["tags"]) == 2
    assert all(isinstance(text, str) and text for text in (value["customer"], *value["tags"]))


def test_json_and_avro_have_the_same_values() -> None:
    """Avro follows the id of its schema; timestamps are instants."""
    values = RecordValues(spec(format="avro"))
    _, value = values.next(0, 1_000)
    assert json.loads(RecordEncoder().encode(value)) == value
    schema = avro_schema(spec())
    encoded = RecordEncoder(258, schema).encode(value)
    assert encoded[:5] == b"\0\0\0\x01\x02"
    read: Any = fastavro.schemaless_reader(io.BytesIO(encoded[5:]), schema, None)
    assert read["at"].timestamp() == 1
    assert {**read, "at": value["at"]} == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "no_such"}, "key names the field no_such"),
        ({"rate": -1}, "rate"),
        ({"unknown": 1}, "unknown"),
        ({"fields": {}}, "fields"),
        ({"fields": {"a b": {"type": "integer"}}}, "a b"),
        ({"fields": {"a": {"type": "choice", "values": ["x"], "weights": [1, 2]}}}, "weights"),
        ({"fields": {"id": {"fake": "person.no_such"}}}, "person.no_such"),
        ({"fields": {"id": {"fake": "no_such.name"}}}, "no_such.name"),
        ({"locale": "xx"}, "locale xx"),
        ({"fields": {"a": {"type": "integer", "min": 5, "max": 1}}}, "min must not be above max"),
        ({"fields": {"a": {"type": "integer", "max": 2**63}}}, "less than or equal to"),
        ({"fields": {"a": {"type": "sequence", "start": 2**63}}}, "less than or equal to"),
        ({"fields": {"a": {"type": "double", "min": 5}}}, "min must not be above max"),
        ({"fields": {"a": {"type": "double", "max": float("inf")}}}, "finite number"),
        ({"fields": {"a": {"type": "double", "min": float("nan")}}}, "finite number"),
        ({"fields": {"a": {"type": "list", "min": 5, "of": {"type": "boolean"}}}}, "above max"),
        (
            {"fields": {"a": {"type": "choice", "values": ["x"], "weights": [0]}}},
            "weights must be 0 or more, and one of them above 0",
        ),
        (
            {"fields": {"a": {"type": "choice", "values": ["x", "y"], "weights": [-1, 2]}}},
            "weights must be 0 or more",
        ),
        ({"fields": {"a": {"type": "choice", "values": ["\ud800"]}}}, "a.choice.values"),
        ({"rate": float("inf")}, "finite number"),
    ],
)
def test_a_wrong_specification_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The error names the field."""
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"topic": "t", "fields": FIELDS, "key": "id", **change}))
    with pytest.raises(ConfigError, match=message):
        RecordValues(read_spec(file))


@pytest.mark.parametrize("rate", [math.inf, -math.inf, math.nan, -1.0, 1e308])
def test_an_option_that_is_no_rate_is_refused(rate: float) -> None:
    """A rate of the command line has the bounds of one in the file."""
    with pytest.raises(ConfigError, match="the options: rate: Input should be") as refused:
        replaced(spec(), count=None, rate=rate)
    assert refused.value.code == "datagen_spec"


def test_options_replace_the_values_of_the_file() -> None:
    """A rate of 0 has no limit, a count of 0 has no end, and an absent option changes nothing."""
    given = spec(rate=5, count=7)
    assert replaced(given, count=None, rate=None) == given
    assert replaced(given, count=0, rate=0) == spec(rate=0, count=0)
    assert replaced(given, count=None, rate=0.5) == spec(rate=0.5, count=7)


@pytest.mark.parametrize("rate", ["inf", "nan", "-1"])
def test_the_command_refuses_a_rate_before_it_connects(rate: str, tmp_path: Path) -> None:
    """The error names the option, and no broker is asked."""
    file = tmp_path / "spec.json"
    file.write_text(spec().model_dump_json(by_alias=True))
    app = typer.Typer()
    app.command()(datagen)
    done = CliRunner().invoke(app, ["-f", str(file), "--rate", rate])
    assert done.exit_code != 0
    assert "rate" in done.output or "rate: Input" in str(done.exception)
    assert "bootstrap" not in str(done.exception)


def test_records_inside_each_other_have_names_of_their_own() -> None:
    """Avro refuses a name that two records have."""
    inner = {"type": "object", "fields": {"x": {"type": "boolean"}}}
    fields = {"a_b": inner, "a": {"type": "object", "fields": {"b": inner}}}
    nested = spec(fields=fields, key=None, format="avro")
    _, value = RecordValues(nested).next(0, 0)
    assert RecordEncoder(1, avro_schema(nested)).encode(value)


def test_the_example_of_the_page_produces_records(tmp_path: Path) -> None:
    """The specification in the how-to makes records."""
    text = HOW_TO.read_text("utf-8").partition("```yaml\n")[2].partition("```")[0]
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    read = read_spec(file)
    key, value = RecordValues(read).next(0, 0)
    assert key == b"1"
    assert RecordEncoder(1, avro_schema(read)).encode(value)
