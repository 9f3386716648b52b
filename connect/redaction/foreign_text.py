"""Texts of other systems, and whether they may leave the process.

Rules of this file:
- Where the API has users, a tenant chooses which server answers: its answers, and errors that hold
  parts of them, must not reach the tenant. Log lines keep them; only the operator reads those.
"""

from __future__ import annotations

import threading
from typing import Final

_ROOTS: Final = frozenset(
    {
        "azure",
        "boto3",
        "botocore",
        "deltalake",
        "google",
        "httpcore",
        "httpx",
        "psycopg2",
        "py4j",
        "pyarrow",
        "pydantic",
        "pydantic_core",
        "pyiceberg",
        "pyspark",
        "requests",
        "sqlalchemy",
        "sqlite3",
        "thrift",
        "urllib3",
    }
)
_hidden = threading.Event()


def hide_foreign_texts(*, are_hidden: bool = True) -> None:
    """Set whether texts of other systems stay in this process."""
    if are_hidden:
        _hidden.set()
    else:
        _hidden.clear()


def are_hidden() -> bool:
    """Return whether texts of other systems stay in this process."""
    return _hidden.is_set()


def foreign_text(error: BaseException) -> str:
    """Return an exception's class, and its text unless texts are hidden."""
    name = type(error).__name__
    return name if _hidden.is_set() else f"{name}: {' '.join(str(error).split())}"


def shown_answer(text: str) -> str:
    """Return the text of another system's answer; empty if texts are hidden."""
    return "" if _hidden.is_set() else text


def is_hidden(error: BaseException) -> bool:
    """Return whether an exception's text stays in this process."""
    root = type(error).__module__.partition(".")[0]
    return _hidden.is_set() and (root in _ROOTS or isinstance(error, OSError))
