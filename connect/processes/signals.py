"""Signals that end a process, received on any of its threads.

Python runs signal handlers on the main thread, and does not wake it when the kernel delivers the
signal to another thread. A main thread that waits for a lock or a socket would continue to wait.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection


def on_signals(numbers: Collection[int], act: Callable[[], None]) -> None:
    """Call ``act`` on a separate thread for each of these signals; to be called on the main thread.

    Args:
        numbers: signals.
        act: must not block for long; signals that arrive while it runs are handled after it.
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
