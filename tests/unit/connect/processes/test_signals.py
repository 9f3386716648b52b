"""Signals that end a process."""

import subprocess
import sys

SCRIPT = """
import signal, threading
from connect.processes.signals import on_signals
stopping = threading.Event()
on_signals({signal.SIGTERM}, stopping.set)
def other_thread():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()
threading.Thread(target=other_thread, daemon=True).start()
stopping.wait()
print("stopped")
"""


def test_a_signal_to_any_thread_ends_the_wait_of_the_main_thread() -> None:
    """The kernel may deliver it to any thread."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "stopped\n"
