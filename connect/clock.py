"""The only module that reads clocks and makes identities; the others receive them."""

from __future__ import annotations

import secrets
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """What a part of the product may know of time and chance."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never jumps; only differences mean anything."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def new_uuid(self) -> uuid.UUID:
        """A random UUID, version 4."""
        ...

    def new_timed_uuid(self) -> uuid.UUID:
        """A UUID of version 7: the time in milliseconds, then random bits."""
        ...

    def new_snapshot_id(self) -> int:
        """A random positive 63-bit id."""
        ...


class SystemClock:
    """The machine's clock and randomness."""

    def monotonic_ms(self) -> int:
        """Milliseconds on the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def new_uuid(self) -> uuid.UUID:
        """A random UUID, version 4."""
        return uuid.uuid4()

    def new_timed_uuid(self) -> uuid.UUID:
        """A UUID of version 7 (RFC 9562, section 5.7)."""
        random = secrets.randbits(74)
        bits = (self.now_ms() & (1 << 48) - 1) << 80
        bits |= 7 << 76 | random >> 62 << 64 | 0b10 << 62 | random & (1 << 62) - 1
        return uuid.UUID(int=bits)

    def new_snapshot_id(self) -> int:
        """A random positive 63-bit id, as Iceberg's own."""
        return secrets.randbits(63) or 1

    def sleep_ms(self, duration_ms: int) -> None:
        """Block the calling thread."""
        time.sleep(duration_ms / 1000)
