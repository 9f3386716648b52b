"""Control events as JSON, and the times in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from connect.cli.control_command import control_app, decode_file, event_to_json, value_to_json
from connect.java_compat import iso_time
from control_schemas.codec import MalformedEvent
from control_schemas.events import Event
from tests.support.event_from_json import event_from_json, value_from_json
from tests.support.event_strategies import events
from tests.support.iso_parsing import instant_nanos, time_nanos

RECORDINGS = Path(__file__).parents[3] / "golden" / "control_events"
LONG = st.integers(-(2**63), 2**63 - 1)


@given(events())
def test_an_event_survives_its_json_form(event: Event) -> None:
    """An event comes back from its JSON form, through text."""
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_a_file_is_decoded() -> None:
    """A record value in a file is printed as the recorded JSON."""
    want = json.loads((RECORDINGS / "data-complete-one.json").read_text())["event"]
    assert decode_file(RECORDINGS / "data-complete-one.bin") == want


def test_a_file_without_an_event_is_reported(tmp_path: Path) -> None:
    """What is no control event is said to be none."""
    path = tmp_path / "x.bin"
    path.write_bytes(b"{}")
    with pytest.raises(MalformedEvent):
        decode_file(path)


def test_the_command_prints_a_line_for_each_file(tmp_path: Path) -> None:
    """Events and errors are JSON lines; one error makes the exit status 1."""
    good = Path(shutil.copy(RECORDINGS / "start-commit.bin", tmp_path))
    bad = Path(shutil.copy(RECORDINGS / "variants" / "type-id-5.bin", tmp_path))
    done = CliRunner().invoke(
        control_app, ["decode", str(good), str(bad), str(tmp_path / "none.bin")]
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert [line["file"] for line in lines] == ["start-commit.bin", "type-id-5.bin", "none.bin"]
    assert lines[0]["event"]["type"] == "START_COMMIT"
    assert "event type 5" in lines[1]["error"]
    assert "No such file" in lines[2]["error"]


def test_without_errors_the_exit_status_is_0() -> None:
    """Without a refusal the exit status is 0."""
    done = CliRunner().invoke(control_app, ["decode", str(RECORDINGS / "start-commit.bin")])
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("type_text", "value", "text"),
    [
        ("decimal(38, 0)", 10**38 - 1, "9" * 38),
        ("decimal(9, 2)", -1, "-0.01"),
        ("decimal(9, 2)", 1230, "12.30"),
        ("date", -1, "1969-12-31"),
        ("time", 0, "00:00"),
        ("timestamp", 0, "1970-01-01T00:00:00"),
        ("timestamptz", -1, "1969-12-31T23:59:59.999999Z"),
        ("timestamp_ns", 1, "1970-01-01T00:00:00.000000001"),
        ("uuid", bytes(16), "00000000-0000-0000-0000-000000000000"),
        ("binary", b"\x00\xff", "00ff"),
        ("boolean", True, True),
        ("int", 1, 1),
        ("string", None, None),
        ("unknown", 7, 7),
    ],
)
def test_partition_values_survive_their_text_form(type_text: str, value: Any, text: Any) -> None:
    """Iceberg's internal form, and the text of the recordings."""
    assert value_to_json(type_text, value) == text
    if type_text != "unknown":
        assert value_from_json(type_text, text) == value


@pytest.mark.parametrize(("text", "unscaled"), [("12.3", 1230), ("1E2", 10000), ("-0", 0)])
def test_decimals_of_smaller_scale_are_widened(text: str, unscaled: int) -> None:
    """Trailing zeros may be left out of a decimal text."""
    assert value_from_json("decimal(9, 2)", text) == unscaled


@pytest.mark.parametrize("text", ["1.234", "NaN"])
def test_decimals_with_too_many_digits_are_refused(text: str) -> None:
    """A decimal text with more digits than the scale is refused."""
    with pytest.raises(ValueError, match="does not have scale 2"):
        value_from_json("decimal(9, 2)", text)


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_000_000, "1970-01-01T00:00:00.001Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (100, "1970-01-01T00:00:00.000000100Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (253_402_300_800 * 10**9, "+10000-01-01T00:00:00Z"),
        (-62_198_755_200 * 10**9, "-0001-01-01T00:00:00Z"),
    ],
)
def test_instants_have_the_text_form_of_java(nanos: int, text: str) -> None:
    """Fractions of three digits, five-digit years with a sign."""
    assert iso_time.instant_text(nanos) == text
    assert instant_nanos(text) == nanos


@given(LONG)
def test_every_64_bit_number_survives_as_an_instant(nanos: int) -> None:
    """Also as microseconds."""
    assert instant_nanos(iso_time.instant_text(nanos)) == nanos
    assert instant_nanos(iso_time.instant_text(nanos * 1000)) == nanos * 1000


@given(st.integers(0, 86_400 * 10**9 - 1))
def test_every_time_of_day_survives_its_text(nanos: int) -> None:
    """Every time of day comes back from its text."""
    assert time_nanos(iso_time.time_text(nanos)) == nanos
