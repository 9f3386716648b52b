import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from connect import logs


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
    """Process, component, level and instant are in every line."""
    logs.logger("herder").info("hello", connector="c")
    line = json.loads(lines.getvalue())
    assert line["event"] == "hello"
    assert line["process"] == "node"
    assert line["component"] == "herder"
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "\x7f", "\x9b1m", "\u2028", "\r\n{}"])
def test_nothing_from_outside_reaches_the_terminal(lines: io.StringIO, text: str) -> None:
    """Control characters are escaped, and come back when the line is read as JSON."""
    logs.logger("x").warning(text, name=text)
    written = lines.getvalue()
    assert written.endswith("\n")
    assert all(32 <= ord(c) < 127 for c in written[:-1])
    assert json.loads(written)["name"] == text


def test_long_values_are_cut(lines: io.StringIO) -> None:
    """One value cannot flood the log."""
    logs.logger("x").warning("long", trace="x" * 1_000_000)
    assert len(lines.getvalue()) < 2 * logs.TEXT_CHARACTERS_MAX


def test_levels_are_the_standard_librarys(lines: io.StringIO) -> None:
    """A level set for a logger holds for what is below it, at run time."""
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


def test_exceptions_of_libraries_keep_their_cause(lines: io.StringIO) -> None:
    """Standard library logging with an exception names it."""
    try:
        int("bad\nvalue")
    except ValueError:
        logging.getLogger("foreign").exception("failed")
    assert "ValueError" in json.loads(lines.getvalue())["event"]
