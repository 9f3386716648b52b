"""The log behind a store: keys with their newest values, on Kafka or in a file.

Rules of this file:
- A write is atomic and durable, and returns after ``on_record`` was called with each record.
- Records are delivered in the order in which they were last written, first at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

OnRecord: TypeAlias = Callable[[str, bytes | None], None]


class StateLog(Protocol):
    """Keys and values of one store. Thread-safe."""

    @property
    def position(self) -> int:
        """Number of records up to which this process has read."""
        ...

    def start(self) -> None:
        """Read everything, then follow what other processes write.

        Raises:
            ConfigError: the log cannot be used.
            RetriableError: it cannot be reached now.
        """
        ...

    def acquire(self) -> None:
        """Become the writer, which stops the present one.

        Raises:
            RetriableError: the log cannot be reached now.
        """
        ...

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until a position is read; return whether it was in time."""
        ...

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Write keys and values, all or none; None removes a key.

        Raises:
            Fenced: another process is the writer.
            RetriableError: not written in time; perhaps written.
        """
        ...

    def close(self) -> None:
        """Stop following."""
        ...
