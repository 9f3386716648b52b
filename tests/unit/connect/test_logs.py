import contextlib
import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from connect import logs
from connect.redaction.secret_values import KNOWN, MASK


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where the log lines of this test go; settings are put back."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    stream = io.StringIO()
    logs.configure("node", stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


def test_a_line_is_one_json_object(lines: io.StringIO) -> None:
    """With process, component, level and time."""
    logs.logger("herder").info("hello", connector="c")
    line = json.loads(lines.getvalue())
    assert line["event"] == "hello"
    assert line["process"] == "node"
    assert line["component"] == "herder"
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "\x7f", "\x9b1m", "\u2028", "\r\n{}"])
def test_control_characters_are_escaped(lines: io.StringIO, text: str) -> None:
    """They are restored when the line is read as JSON."""
    logs.logger("x").warning(text, name=text)
    written = lines.getvalue()
    assert written.endswith("\n")
    assert all(32 <= ord(c) < 127 for c in written[:-1])
    assert json.loads(written)["name"] == text


def test_long_values_are_cut(lines: io.StringIO) -> None:
    """A value cannot fill the log."""
    logs.logger("x").warning("long", trace="x" * 1_000_000)
    assert len(lines.getvalue()) < 2 * logs.TEXT_CHARACTERS_MAX


def test_levels_follow_the_standard_library(lines: io.StringIO) -> None:
    """A level of a logger applies to its children, at run time."""
    logs.logger("herder.store").debug("hidden")
    logging.getLogger("herder").setLevel(logging.DEBUG)
    try:
        logs.logger("herder.store").debug("shown")
    finally:
        logging.getLogger("herder").setLevel(logging.NOTSET)
    logging.getLogger("foreign").warning("from a %s", "library")
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == [
        "shown",
        "from a library",
    ]


def test_text_lines_are_readable(lines: io.StringIO) -> None:
    """Time, level, process, component, event and fields; values with blanks are quoted."""
    logs.configure("worker", stream=lines, form="text")
    logs.logger("task").warning(
        "task \x1b[31mstarted", connector="c", positions={"t-0": 5}, at="a b"
    )
    (line,) = lines.getvalue().splitlines()
    _, _, rest = line.partition(" ")
    assert rest == (
        'WARNING worker [task] task \\u001b[31mstarted connector=c positions={"t-0": 5} at="a b"'
    )


def test_lines_of_children_keep_their_fields(lines: io.StringIO) -> None:
    """Other output of a child becomes an event with its level."""
    KNOWN.add("forwarded-secret-1")
    event = {"event": "task started", "process": "x", "component": "task", "level": "info"}
    logs.forward("worker", json.dumps({**event, "task": 3, "at": "forwarded-secret-1"}).encode())
    logs.forward("worker", b"2026-11-23T05:00:00,123 WARN jvm Utils \x1b[31mforwarded-secret-1\r")
    logs.forward("worker", b"[" * 100_000)
    logs.forward("worker", b'"text"')
    first, second, *pieces, last = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert first == {**event, "process": "worker", "task": 3, "at": MASK}
    assert (second["level"], second["component"]) == ("warning", logs.OUTPUT_COMPONENT)
    assert second["event"] == f"2026-11-23T05:00:00,123 WARN jvm Utils \x1b[31m{MASK}"
    assert "".join(piece["event"] for piece in pieces) == "[" * 100_000
    assert (last["event"], last["process"], last["level"]) == ('"text"', "worker", "info")


def test_a_stream_without_a_reader_ends_no_process() -> None:
    """A drain must not fail because its log has no reader."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        logs.configure("worker", stream=stream)
        try:
            logs.logger("task").info("to no reader")
        finally:
            structlog.reset_defaults()
        with contextlib.suppress(OSError):
            stream.close()


def test_exceptions_of_libraries_keep_their_cause(lines: io.StringIO) -> None:
    """When logged by the standard library."""
    try:
        int("bad\nvalue")
    except ValueError:
        logging.getLogger("foreign").exception("failed")
    assert "ValueError" in json.loads(lines.getvalue())["event"]
