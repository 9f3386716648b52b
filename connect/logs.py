"""Structured logs: one JSON object a line, safe to read in any terminal.

Rules of this file:
- A line is one JSON object; control characters of values are escaped (JSON does that for C0,
  ``ensure_ascii`` for the rest), so a record producer cannot forge a line or colour a terminal.
- Secrets that the process has resolved are masked (``connect.redaction.secret_values``).
- Record content is never logged above DEBUG, and not by this module's defaults at all.
- Levels are the standard library's, per logger name; ``/admin/loggers`` changes them at run time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import IO, Any, TextIO, cast

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


def configure(process: str, *, stream: TextIO | None = None, level: str = "INFO") -> None:
    """Set up logging of this process, the standard library's included.

    Args:
        process: ``node``, ``worker`` or ``coordinator``; in every line.
        stream: where lines go; standard error when None.
        level: of everything that has no level of its own.
    """
    target = stream or sys.stderr
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
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(level)
    for chatty in ("py4j", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


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


def _serialize(event: Any, **options: Any) -> str:
    # DEL and C1 are escaped by ensure_ascii or not at all: escape DEL explicitly
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
