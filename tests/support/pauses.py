"""Pauses between two checks of a condition."""

from __future__ import annotations

import time
from collections.abc import Iterator

FIRST_S = 0.02
LAST_S = 0.3


def growing_pauses() -> Iterator[None]:
    """Sleep at each step: short at first, then longer.

    A condition that is true soon is seen soon. One that takes seconds costs little processor time,
    which its cause may need.
    """
    pause_s = FIRST_S
    while True:
        time.sleep(pause_s)
        yield
        pause_s = min(1.2 * pause_s, LAST_S)
