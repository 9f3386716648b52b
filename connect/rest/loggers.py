"""``/admin/loggers``: levels of the process's loggers by Kafka Connect's names of levels."""

from __future__ import annotations

import logging
import threading
from typing import Any

from connect.clock import Clock
from connect.rest.bodies import as_object, as_text
from connect.rest.errors import ApiError
from connect.rest.herder_api import HerderApi
from connect.rest.routes import Answer, Call

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
ROOT = "root"


def _canonical(name: str) -> str:
    """The root logger has one name, in any case; other names keep theirs."""
    return ROOT if name.lower() == ROOT else name


class LogLevels:
    """Levels of the loggers of this process, with the time they were last set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._modified_ms: dict[str, int] = {}

    def known(self) -> dict[str, dict[str, Any]]:
        """Level and time of change of every logger that exists or was set, ``root`` included."""
        with self._lock:
            names = {ROOT, *self._modified_ms}
            names.update(
                name
                for name, logger in logging.root.manager.loggerDict.items()
                if isinstance(logger, logging.Logger)
            )
            return {name: self._entry(name) for name in sorted(names)}

    def get(self, name: str) -> dict[str, Any] | None:
        """Level and time of change of one logger, or None when there is no such logger."""
        return self.known().get(_canonical(name))

    def set(self, namespace: str, level: str) -> list[str]:
        """Set a logger and all those below it.

        Args:
            namespace: a logger's name; it need not exist yet.
            level: a name of ``LEVELS``.

        Returns:
            The loggers whose level has changed, sorted.
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


class Loggers:
    """Endpoints of log levels."""

    def __init__(self, levels: LogLevels, herder: HerderApi) -> None:
        self._levels = levels
        self._herder = herder

    def list(self, call: Call) -> Answer:
        """``GET /admin/loggers``."""
        del call
        return Answer(200, self._levels.known())

    def read(self, call: Call) -> Answer:
        """``GET /admin/loggers/<name>``."""
        name = call.path["logger"]
        found = self._levels.get(name)
        if found is None:
            raise ApiError(404, f"Logger {name} not found.")
        return Answer(200, found)

    def set(self, call: Call) -> Answer:
        """``PUT /admin/loggers/<name>``; ``scope=cluster`` goes to every node."""
        name = call.path["logger"]
        body = as_object(call.json(), "the request")
        text = as_text(body.get("level"), '"level"')
        if text is None:
            raise ApiError(400, "Desired 'level' parameter was not specified in request.")
        level = text.upper()
        if level not in LEVELS:
            raise ApiError(404 if text else 400, f"invalid log level '{text}'.")
        scope = (call.values("scope") or ["worker"])[0]
        if scope.lower() == "cluster":
            self._herder.publish_log_level(name, level)
            return Answer(204)
        return Answer(200, self._levels.set(name, level))
