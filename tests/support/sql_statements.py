"""The statements that a SQL catalog's client sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event


def statements_of(client: Any, work: Callable[[], object]) -> list[str]:
    """Return the kind of each SQL statement that some work sends."""
    sent: list[str] = []

    def note(*arguments: Any) -> None:
        sent.append(arguments[2].split()[0])

    event.listen(client.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(client.engine, "before_cursor_execute", note)
    return sent
