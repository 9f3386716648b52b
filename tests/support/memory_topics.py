"""The config topic in memory, for a leader without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from connect.errors import RetriableError
from connect.state.compacted_topic import OnRecord

CONFIG = {"name": "c", "topics": "t"}


class MemoryConfigTopic:
    """In place of the topic: what is written is read back, unless the broker is said to be away.

    Attributes:
        is_away: refuses what is written.
        writes: number of writes that were taken.
    """

    def __init__(self, on_record: OnRecord) -> None:
        self._on_record = on_record
        self.is_away = False
        self.writes = 0

    def acquire(self) -> None:
        """Do nothing: the topic has one writer."""

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """All or nothing."""
        if self.is_away:
            raise RetriableError("not acknowledged", code="broker_unavailable")
        self.writes += 1
        for key, value in records:
            self._on_record(key, value)
