"""Functions of queries that are too large for Spark's plans.

Rules of this file:
- PySpark writes a function of more than a megabyte to a file of the driver, and sends it as a
  broadcast. It deletes neither. The function of a batch holds the tables of its connector, so many
  or wide tables would fill the disk.
- A function is deleted with the last reference to the rows that it makes: no job reads it then.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame


class _Sent(threading.local):
    """The functions that a thread has sent since it began to make rows."""

    def __init__(self) -> None:
        self.broadcasts: list[Any] | None = None


_SENT = _Sent()


def note_functions(context: SparkContext) -> None:
    """Let ``deleted_with`` learn of the functions that PySpark sends."""
    send = context.broadcast

    def broadcast(value: Any) -> Any:
        sent = send(value)
        if _SENT.broadcasts is not None:
            _SENT.broadcasts.append(sent)
        return sent

    context.broadcast = broadcast  # PySpark has no other sign


def deleted_with(make: Callable[[], DataFrame]) -> DataFrame:
    """Return rows; their large functions are deleted with them.

    Args:
        make: returns the rows. Other rows that are made of them must not outlive them.
    """
    before, _SENT.broadcasts = _SENT.broadcasts, []
    try:
        rows = make()
        if _SENT.broadcasts:
            weakref.finalize(rows, _delete, tuple(_SENT.broadcasts))
    finally:
        _SENT.broadcasts = before
    return rows


def _delete(broadcasts: tuple[Any, ...]) -> None:
    for sent in broadcasts:
        with contextlib.suppress(Py4JError, OSError):  # Spark has ended
            sent.destroy()
