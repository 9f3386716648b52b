"""Structured logs: one event a line, as JSON or as text, safe to read in any terminal.

Rules of this file:
- Control characters of values are escaped in both forms (JSON does that for C0, ``ensure_ascii``
  for the rest), so a record producer cannot forge a line or colour a terminal.
- One lock for each stream: no line begins inside another one, also if a child process wrote it.
- Secrets that the process has resolved are masked (``connect.redaction.secret_values``).
- Record content is never logged above DEBUG, and not by this module's defaults at all.
- Levels are the standard library's, per logger name; ``/admin/loggers`` changes them at run time.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import IO, Any, Final, Literal, TextIO, TypeAlias, cast

import structlog

from connect.redaction.secret_values import KNOWN

_NUMBERS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_KEPT = frozenset({"component", "connector", "level", "timestamp", "worker_id"})
PRIVATE = 0o600
TEXT_CHARACTERS_MAX = 16_384
OUTPUT_COMPONENT: Final = "output"
"""Component of lines that a child process wrote and that are no log events, e.g. of its JVM."""
ROOT: Final = "root"

Form: TypeAlias = Literal["json", "text"]

_FIRST: Final = ("timestamp", "level", "process", "component", "event")
_JVM_LINE: Final = re.compile(r"\S+ (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) jvm ")  # as Spark's log4j2
_JVM_LEVELS: Final = {"TRACE": "debug", "WARN": "warning", "FATAL": "critical"}


def configure(
    process: str, *, stream: TextIO | None = None, level: str = "INFO", form: Form = "json"
) -> None:
    """Set up logging of this process, the standard library's included.

    Args:
        process: ``node``, ``worker`` or ``coordinator``; in every line.
        stream: where lines go; standard error when None.
        level: of everything that has no level of its own.
        form: ``json``, or ``text`` for people.
    """
    global _lines  # noqa: PLW0603 - as structlog's own configuration
    _lines = lines = _Lines(stream or sys.stderr, form)
    structlog.configure(
        processors=[
            _filter,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _masked,
            _Bounded(process),
            lines.rendered,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(level)
    for chatty in ("py4j", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def set_level(name: str, level: int) -> None:
    """Set the level of a logger at run time.

    Args:
        name: of the logger, ``root`` for the one of all loggers without a level of their own.
        level: a number of the standard library's levels.
    """
    logging.getLogger(None if name == ROOT else name).setLevel(level)


def forward(process: str, line: bytes) -> None:
    """Write a line that a child process wrote to this process's log stream.

    Log events keep their fields. Any other line (of a JVM, a traceback) becomes the event of a
    line with the component ``output``; one that is too long becomes several lines.

    Args:
        process: name of the child process.
        line: what it wrote, without the end of the line.
    """
    text = line.decode("utf-8", "replace").rstrip("\r")
    for event in _events(text):
        event["process"] = process
        _lines.write(_lines.rendered(None, "", _masked(None, "", event)))


def open_private(file: Path) -> IO[bytes]:
    """A file of log lines to append to, which only its owner may read."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    os.fchmod(descriptor, PRIVATE)
    return os.fdopen(descriptor, "ab")


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; ``name`` is the module's part of the product, e.g. ``herder``."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(component=name))


def _filter(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    name = str(event.get("component") or "")
    if not logging.getLogger(name or None).isEnabledFor(_NUMBERS.get(method, logging.ERROR)):
        raise structlog.DropEvent
    return event


def _masked(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leaves out what the process has resolved, before anything is cut."""
    for key, value in event.items():
        if key not in _KEPT:
            event[key] = KNOWN.masked(value if _is_json(value) else repr(value))
    return event


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, dict, list, tuple))


class _Bounded:
    """Names the process and cuts texts that would flood the log."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(
        self, _: Any, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        for key, value in event.items():
            if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
                event[key] = value[:TEXT_CHARACTERS_MAX] + "…"
        event["process"] = self._process
        return event


class _Lines:
    """A stream of log lines. Thread-safe.

    Args:
        stream: where lines go. When its reader is gone, lines are dropped: a process that drains
            must not fail because of its log.
        form: of each line.
    """

    def __init__(self, stream: TextIO, form: Form) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._render: Callable[[Mapping[str, Any]], str] = _text if form == "text" else _json

    def rendered(self, _: Any, __: str, event: MutableMapping[str, Any]) -> str:
        """Return the line of an event, without its end."""
        return self._render(event)

    def write(self, line: str) -> None:
        """Write one line."""
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # closed by its reader, or by this process at its end
                return

    msg = debug = info = warning = error = critical = exception = fatal = log = write


def _json(event: Any) -> str:
    # DEL and C1 are escaped by ensure_ascii or not at all: escape DEL explicitly
    return json.dumps(event, ensure_ascii=True, default=repr).replace("\x7f", "\\u007f")


def _text(event: Mapping[str, Any]) -> str:
    """``<timestamp> <LEVEL> <process> [<component>] <event> key=value ...``."""
    fields = {name: str(event.get(name) or "-") for name in _FIRST}
    text = _json(fields["event"])[1:-1].replace('\\"', '"')
    head = (
        f"{fields['timestamp']} {fields['level'].upper():7} {fields['process']} "
        f"[{fields['component']}] {text}"
    )
    rest = (f"{key}={_value(value)}" for key, value in event.items() if key not in _FIRST)
    return " ".join((head, *rest))


def _value(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\w.:/+-]+", value, re.ASCII):
        return value
    return _json(value)


def _events(text: str) -> Iterator[dict[str, Any]]:
    """The log events of one line of a child process."""
    try:
        logged = json.loads(text)
    except (ValueError, RecursionError):
        logged = None
    if isinstance(logged, dict) and isinstance(logged.get("event"), str) and "process" in logged:
        yield logged
        return
    jvm = _JVM_LINE.match(text)
    level = "info" if jvm is None else _JVM_LEVELS.get(jvm[1], jvm[1].lower())
    for at in range(0, len(text), TEXT_CHARACTERS_MAX):
        piece = {"component": OUTPUT_COMPONENT, "level": level}
        event = cast("dict[str, Any]", _NOW(None, "", piece))
        yield {"event": text[at : at + TEXT_CHARACTERS_MAX], **event}


_NOW: Final = structlog.processors.TimeStamper(fmt="iso", utc=True)
_lines = _Lines(sys.stderr, "json")


class _Bridge(logging.Handler):
    """Standard library logging, as our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        log = logger(record.name)
        method = "critical" if record.levelno >= logging.CRITICAL else record.levelname.lower()
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        getattr(log, method if method in {"debug", "info", "warning", "error"} else "error")(text)
