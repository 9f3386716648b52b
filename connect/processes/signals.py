"""Signals that end a process, heard whichever thread the kernel gives them to.

Python runs its handlers on the main thread and does not wake it when another thread took the
signal: a main thread that waits for a lock or a socket would wait on, and the process with it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection


def on_signals(numbers: Collection[int], act: Callable[[], None]) -> None:
    """Call ``act`` on a thread of its own for each of these signals; main thread only.

    Args:
        numbers: signals.
        act: must not block for long; signals that come while it runs are acted on after it.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)

    def listen() -> None:
        while received := os.read(read, 64):
            for number in received:
                if number in numbers:
                    act()

    threading.Thread(target=listen, name="signals", daemon=True).start()
