"""Structured logs: one JSON object a line, safe to read in any terminal.

Rules of this file:
- A line is one JSON object; control characters of values are escaped (JSON does that for C0,
  ``ensure_ascii`` for the rest), so a record producer cannot forge a line or colour a terminal.
- Record content is never logged above DEBUG, and not by this module's defaults at all.
- Levels are Kafka Connect's, per name prefix, changed at run time by ``/admin/loggers``.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

LEVELS = {
    "OFF": 100,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
    "ALL": 0,
}
TEXT_CHARACTERS_MAX = 16_384

_levels: dict[str, int] = {"": logging.INFO}
_lock = threading.Lock()


def configure(process: str, *, stream: TextIO | None = None, level: str = "INFO") -> None:
    """Set up logging of this process, the standard library's included.

    Args:
        process: ``node``, ``worker`` or ``coordinator``; in every line.
        stream: where lines go; standard error when None.
        level: of everything that has no level of its own.
    """
    target = stream or sys.stderr
    set_level("", level)
    structlog.configure(
        processors=[
            _filter,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _Bounded(process),
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; ``name`` is the module's part of the product, e.g. ``herder``."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(component=name))


def set_level(name: str, level: str) -> None:
    """Set the level of ``name`` and everything below it (dots); ``""`` is the root.

    Raises:
        ValueError: no such level.
    """
    if level.upper() not in LEVELS:
        raise ValueError(f"unknown log level {level!r}")
    with _lock:
        for known in [k for k in _levels if name and k.startswith(f"{name}.")]:
            del _levels[known]
        _levels[name] = LEVELS[level.upper()]


def level_of(name: str) -> int:
    """The level in force for a name."""
    with _lock:
        while name:
            if name in _levels:
                return _levels[name]
            name = name.rpartition(".")[0]
        return _levels[""]


def _filter(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    number = LEVELS.get({"WARNING": "WARN", "CRITICAL": "FATAL"}.get(u := method.upper(), u), 20)
    if number < level_of(str(event.get("component", ""))):
        raise structlog.DropEvent
    return event


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


def _serialize(event: Any, **options: Any) -> str:
    # DEL and C1 are escaped by ensure_ascii or not at all: do DEL by hand
    return json.dumps(event, ensure_ascii=True, **options).replace("\x7f", "\\u007f")


class _Bridge(logging.Handler):
    """Standard library logging, as our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        log = logger(record.name)
        method = "critical" if record.levelno >= logging.CRITICAL else record.levelname.lower()
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        getattr(log, method if method in {"debug", "info", "warning", "error"} else "error")(text)
