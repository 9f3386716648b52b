"""Named points where a test can crash, hang, delay or fail a process that it started.

Off unless one of two environment variables is set at process start:

- ``ICEFLOE_FAILPOINTS``: ``NAME=ACTION[,NAME=ACTION...]``, each optionally ``@N`` (on the N-th hit
  only, counted from 1). Hits are counted per process, and Spark's Python workers are many.
- ``ICEFLOE_FAILPOINTS_DIR``: a folder. A file called NAME that holds an ACTION arms that point
  while the process runs. The first process that reaches the point removes the file and acts. So it
  fires once, in one process, and not again after a restart.

A crash at a point inside a call to another process (W9, C10) happens on a separate thread,
``IN_FLIGHT_MS`` after the call was made. To crash after the request and before its answer, freeze
the other process (SIGSTOP) while this one waits at the point before. Otherwise the answer may
have arrived.

ACTION is ``crash``, ``raise``, ``hang`` or ``delay:MS``. ``crash`` is SIGKILL of the own process;
at W2, W3 and S1, which are hit in Spark's Python workers, it is that of the worker process whose id
is in ``ICEFLOE_WORKER_PID``. That process does not hit W14 and S2 itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from connect.errors import RetriableError

WORKER = {
    "W1": "before the batch is read",
    "W2": "mid-conversion",
    "W3": "after the first data file",
    "W4": "all files written, before the driver has the descriptors",
    "W5": "before begin_transaction",
    "W6": "after begin",
    "W7": "some events produced",
    "W8": "all produced, before commit",
    "W9": "commit sent, no answer",
    "W10": "committed, before foreachBatch returns",
    "W11": "after",
    "W12": "during drain",
    "W13": "at start, before init_transactions",
    "W14": "only the Python worker of the executor",
}
COORDINATOR = {
    "C1": "starting",
    "C2": "fenced, before offsets are read",
    "C3": "before StartCommit",
    "C4": "after StartCommit",
    "C5": "between two DataWritten of one task",
    "C6": "after the last DataComplete",
    "C7": "table loaded",
    "C8": "manifests written",
    "C9": "manifest list written",
    "C10": "commit sent",
    "C11": "applied, answer unread",
    "C12": "answer read",
    "C13": "first table of several done",
    "C14": "before the completion transaction",
    "C15": "after it",
    "C16": "shutdown",
}
PARQUET = {
    "P1": "committed, before publication",
    "P2": "one file published",
    "P3": "all files published, before the marker",
    "P4": "marker written, before staged files are deleted",
}
AGGREGATE = {
    "A1": "results of a batch computed, state not saved",
    "A2": "state saved, before the transaction",
    "A3": "transaction committed, before older state is deleted",
}
COPY_ON_WRITE = {
    "D1": "data files copied or deletion vectors written, before the commit that lists them",
}
DISTRIBUTION = {
    "S1": "rows passed on, before another Spark task has written them",
    "S2": "as S1, only the Python worker of that task",
}
REWIND = {
    "B1": "rewind recorded",
    "B2": "offsets announced, before the tables",
    "B3": "one table of several done",
    "B4": "tables done, before the source offsets",
    "B5": "source offsets set, rewind still recorded",
    "B6": "history of the tables kept, nothing announced",
}
TOOLS = {
    "R1": "dead letters put back, before commit",
    "R2": "one transaction of a replay committed",
}
WORKER_PID_VARIABLE = "ICEFLOE_WORKER_PID"
IN_FLIGHT_MS = 300
_IN_PYTHON_WORKERS = frozenset({"W2", "W3", "S1"})
_ONLY_PYTHON_WORKERS = frozenset({"W14", "S2"})
NAMES = {
    **WORKER,
    **COORDINATOR,
    **PARQUET,
    **AGGREGATE,
    **COPY_ON_WRITE,
    **DISTRIBUTION,
    **REWIND,
    **TOOLS,
}
_ACTIONS = frozenset({"crash", "raise", "hang"})

_actions: dict[str, tuple[str, int | None]] = {}
_folder: Path | None = None
_hits: Counter[str] = Counter()
_lock = threading.Lock()


def configure(spec: str) -> None:
    """Replace the active failpoints.

    Raises:
        ValueError: an unknown name or action.
    """
    actions: dict[str, tuple[str, int | None]] = {}
    for part in filter(None, (p.strip() for p in spec.split(","))):
        name, _, action = part.partition("=")
        action, _, nth = action.partition("@")
        if name not in NAMES:
            raise ValueError(f"unknown failpoint {name!r}")
        if action not in _ACTIONS and not action.startswith("delay:"):
            raise ValueError(f"unknown failpoint action {action!r} for {name}")
        actions[name] = (action, int(nth) if nth else None)
    with _lock:
        _actions.clear()
        _actions.update(actions)
        _hits.clear()


def arm_from(folder: Path | None) -> None:
    """Arm failpoints by files in a folder from now on; None for no folder."""
    global _folder  # noqa: PLW0603 - one per process, as the environment it comes from
    _folder = folder


def hit(name: str) -> None:
    """Act at the point ``name`` if it is active."""
    if name in _ONLY_PYTHON_WORKERS and os.environ.get(WORKER_PID_VARIABLE) == str(os.getpid()):
        return
    _act(name, _armed(name))


def hit_in_flight(name: str) -> None:
    """Act at the point ``name``, which is inside the next call.

    A crash happens during that call; every other action happens before it.
    """
    action = _armed(name)
    if action == "crash":
        threading.Thread(target=_act_later, args=(name, action), daemon=True).start()
    else:
        _act(name, action)


def _act_later(name: str, action: str) -> None:
    time.sleep(IN_FLIGHT_MS / 1000)
    _act(name, action)


def _armed(name: str) -> str:
    """Return the action that is due at the point now; empty for none."""
    if _folder is not None and (action := _taken(_folder / name)):
        return action
    if not _actions:
        return ""
    with _lock:
        _hits[name] += 1
        action, nth = _actions.get(name, ("", None))
        return action if nth is None or _hits[name] == nth else ""


def _taken(file: Path) -> str:
    """Return the action in the file to the process that removes it; else an empty text."""
    try:
        action = file.read_text("utf-8")
        file.unlink()
    except FileNotFoundError:
        return ""
    return action.strip()


def _act(name: str, action: str) -> None:
    if action == "crash":
        in_python_worker = name in _IN_PYTHON_WORKERS and WORKER_PID_VARIABLE in os.environ
        pid = int(os.environ[WORKER_PID_VARIABLE]) if in_python_worker else os.getpid()
        os.kill(pid, signal.SIGKILL)
    elif action == "raise":
        raise RetriableError(f"failpoint {name}", code="failpoint")
    elif action == "hang":
        threading.Event().wait()
    elif action.startswith("delay:"):
        time.sleep(int(action.removeprefix("delay:")) / 1000)


configure(os.environ.get("ICEFLOE_FAILPOINTS", ""))
if "ICEFLOE_FAILPOINTS_DIR" in os.environ:
    arm_from(Path(os.environ["ICEFLOE_FAILPOINTS_DIR"]))
