"""Answers of a schema registry that are kept, bounded in number and in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

KEPT_BYTES_MAX: Final = 64 * 2**20
_ENTRY_BYTES: Final = 1_000


class RegistryCache:
    """The answers that were used last; thread-safe.

    Args:
        count_max: of answers.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[str, tuple[int | None, Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str, now_ms: int) -> Any:
        """Return an answer; None if it is not kept, or has expired."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None or (entry[0] is not None and entry[0] <= now_ms):
                return None
            self._kept.move_to_end(key)
            return entry[1]

    def put(self, key: str, until_ms: int | None, answer: Any, text_bytes: int) -> None:
        """Keep an answer.

        Args:
            key: of the request.
            until_ms: when it expires; None for never.
            answer: not None.
            text_bytes: size of its texts.
        """
        size = text_bytes + len(key) + _ENTRY_BYTES
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += size - (replaced[2] if replaced else 0)
            self._kept[key] = (until_ms, answer, size)
            while len(self._kept) > self._count_max or self._bytes > KEPT_BYTES_MAX:
                self._bytes -= self._kept.popitem(last=False)[1][2]
