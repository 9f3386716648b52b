"""A config topic in memory, for a leader without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from connect.errors import RetriableError
from connect.state.compacted_topic import OnRecord

CONFIG = {"name": "c", "topics": "t"}


class MemoryConfigTopic:
    """Replaces the config topic: written records are read back, unless the broker is unavailable.

    Attributes:
        is_away: the broker is unavailable, so writes are refused.
        writes: number of accepted writes.
    """

    def __init__(self, on_record: OnRecord) -> None:
        self._on_record = on_record
        self.is_away = False
        self.writes = 0

    def acquire(self) -> None:
        """Do nothing: the topic has one writer."""

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Write all records or none."""
        if self.is_away:
            raise RetriableError("not acknowledged", code="broker_unavailable")
        self.writes += 1
        for key, value in records:
            self._on_record(key, value)
