"""Iceberg's own Java classes read what our codec writes."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from connect.cli.control_command import event_to_json
from connect.jvm import jars
from connect.jvm.java import find_java
from control_schemas.codec import decode, encode
from control_schemas.events import ContentFile, DataWritten, Event, FileContent
from tests.golden import control_events_suite as suite
from tests.support.event_from_json import event_from_json
from tests.support.event_strategies import as_read, events
from tests.support.java_classes import compiled

pytestmark = pytest.mark.java

TOOL = Path(__file__).parents[1] / "java" / "EventTool.java"
EXAMPLES = 300


@pytest.fixture(scope="module")
def class_path() -> str:
    """Iceberg's classes, and EventTool."""
    return compiled([TOOL], jars.class_path("iceberg-events"))


def event_tool(class_path: str, command: str, files: list[Path]) -> list[str]:
    """Run EventTool in one JVM over many files; its lines."""
    arguments = [
        str(find_java()),
        "-cp",
        class_path,
        "-Dfile.encoding=UTF-8",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        TOOL.stem,
        command,
        *map(str, files),
    ]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(arguments, capture_output=True, check=False, env=environment, timeout=200)
    lines = done.stdout.decode().removesuffix("\n").split("\n")  # texts hold other line ends
    assert len(lines) == len(files), done.stderr.decode()
    return lines


def test_java_reads_every_event_that_we_write(class_path: str, tmp_path: Path) -> None:
    """Java's reader accepts our frames and returns the same values."""
    written = sample_events()
    paths = []
    for i, event in enumerate(written):
        path = tmp_path / f"{i:04}.bin"
        path.write_bytes(encode(event))
        paths.append(path)
    for event, path, line in zip(
        written, paths, event_tool(class_path, "decode", paths), strict=True
    ):
        answer = json.loads(line)
        assert "event" in answer, (event, answer)
        assert alike(answer["event"]) == alike(event_to_json(decode(path.read_bytes())))
        assert alike(answer["event"]) == alike(event_to_json(as_read(event)))


def test_java_reads_our_copies_of_its_recordings(class_path: str, tmp_path: Path) -> None:
    """The recordings are decoded and encoded again by Icefloe."""
    for path in sorted(suite.recordings().glob("*.json")):
        shutil.copy(path, tmp_path)
        event = event_from_json(suite.with_spec_names(json.loads(path.read_text())))
        (tmp_path / path.with_suffix(".bin").name).write_bytes(encode(event))
    lines = event_tool(class_path, "check", sorted(tmp_path.glob("*.json")))
    assert [line for line in lines if not line.startswith("same ")] == []


def test_java_writes_the_same_bytes(class_path: str, tmp_path: Path) -> None:
    """Java encodes the JSON of the recordings to the same bytes as Icefloe."""
    paths = [
        Path(shutil.copy(path, tmp_path)) for path in sorted(suite.recordings().glob("*.json"))
    ]
    done = subprocess.run(
        [str(find_java()), "-cp", class_path, TOOL.stem, "encode", *paths],
        capture_output=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    for path in paths:
        event = event_from_json(suite.with_spec_names(json.loads(path.read_text())))
        assert path.with_suffix(".bin").read_bytes() == encode(event), path.name


def test_java_is_more_lenient_as_documented(class_path: str, tmp_path: Path) -> None:
    """Rules of decision 0002 without a recorded variant."""
    event = event_from_json(
        json.loads((suite.recordings() / "data-written-1-file.json").read_text())["event"]
    )
    frame = encode(event)
    no_text = frame.replace(b"s3://lake", b"s3:/\xff\xfflak", 1)
    assert no_text != frame
    contradiction = encode(replace_content(event))
    paths = [tmp_path / "no-utf8.bin", tmp_path / "content.bin"]
    for path, content in zip(paths, (no_text, contradiction), strict=True):
        path.write_bytes(content)
    for line in event_tool(class_path, "decode", paths):
        assert "event" in json.loads(line), line


def replace_content(event: Event) -> Event:
    """The event with its first data file said to be position deletes."""
    payload = event.payload
    assert isinstance(payload, DataWritten)
    assert payload.data_files
    file: ContentFile = replace(payload.data_files[0], content=FileContent.POSITION_DELETES)
    return replace(event, payload=replace(payload, data_files=(file,)))


def sample_events() -> list[Event]:
    """Events of every kind, the same in every run."""
    drawn: list[Event] = []

    @seed(20260102)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(events(is_java=True))
    def draw(event: Event) -> None:
        drawn.append(event)

    draw()
    return drawn


def alike(value: Any) -> Any:
    """JSON with numbers as Java and Python print them alike: floats by their 32-bit value."""
    if isinstance(value, dict):
        if value.get("type") == "float" and value.get("value") is not None:
            return {**value, "value": struct.pack("<f", float(value["value"]))}
        return {key: alike(item) for key, item in value.items()}
    if isinstance(value, list):
        return [alike(item) for item in value]
    return value
