"""Levels of the process's loggers, with Kafka Connect's names."""

from __future__ import annotations

import logging
import threading
from typing import Any

from connect.clock import Clock
from connect.node.rest.api_errors import ApiError

LEVELS = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 50,
}
SET_LOGGERS_MAX = 1000
NAME_CHARACTERS_MAX = 255
"""Python makes a logger for each part of a name, and keeps it."""
ROOT = "root"


def _canonical(name: str) -> str:
    """Return a logger's name; the root logger's is not case sensitive."""
    return ROOT if name.lower() == ROOT else name


class LogLevels:
    """Levels of the loggers of this process, with the time they were last set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._modified_ms: dict[str, int] = {}

    def known(self) -> dict[str, dict[str, Any]]:
        """Return level and time of change of every existing or set logger, ``root`` included."""
        with self._lock:
            names = {ROOT, *self._modified_ms}
            names.update(
                name
                for name, logger in logging.root.manager.loggerDict.items()
                if isinstance(logger, logging.Logger)
            )
            return {name: self._entry(name) for name in sorted(names)}

    def get(self, name: str) -> dict[str, Any] | None:
        """Return level and time of change of one logger; None when it does not exist."""
        return self.known().get(_canonical(name))

    def set(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger and of all loggers below it.

        Args:
            namespace: a logger's name; it need not exist yet.
            level: a name of ``LEVELS``.

        Returns:
            The loggers with a changed level, sorted.
        """
        namespace = _canonical(namespace)
        with self._lock:
            if namespace not in self._modified_ms and len(self._modified_ms) >= SET_LOGGERS_MAX:
                raise ApiError(400, f"more than {SET_LOGGERS_MAX} loggers have been set")
            is_root = namespace == ROOT
            names = {namespace, *self._modified_ms, *logging.root.manager.loggerDict}
            chosen = sorted(
                n for n in names if is_root or n == namespace or n.startswith(namespace + ".")
            )
            changed = [n for n in chosen if self._level(n) != level or n not in self._modified_ms]
            changed = [n for n in changed if n == namespace or self._level(n) != level]
            now_ms = self._clock.now_ms()
            for name in changed:
                logging.getLogger(None if name == ROOT else name).setLevel(LEVELS[level])
                self._modified_ms[name] = now_ms
            return changed

    def _entry(self, name: str) -> dict[str, Any]:
        return {"level": self._level(name), "last_modified": self._modified_ms.get(name)}

    def _level(self, name: str) -> str:
        number = logging.getLogger(None if name == ROOT else name).getEffectiveLevel()
        return max(LEVELS, key=lambda level: (LEVELS[level] <= number, LEVELS[level]))
