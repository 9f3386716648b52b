"""What is announced and in no table yet, as reported to operators.

Rules of this file:
- Every skipped file is named in the log, and in the answer up to a limit.
- An answer stays small enough for the pipe; the log has every path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from control_schemas.events import ContentFile, DataWritten
from coordinator.kernel.effects import Envelope, TableDecided, TableFailed

PATHS_SHOWN_MAX: Final = 10_000
PATHS_PER_LINE: Final = 100

Identifier = tuple[str, ...]

log = structlog.get_logger("coordinator")


def files_of(announcements: Iterable[Envelope]) -> Iterator[ContentFile]:
    """Data and delete files in the order of their announcement."""
    for envelope in announcements:
        payload = envelope.event.payload
        if isinstance(payload, DataWritten):
            yield from payload.data_files or ()
            yield from payload.delete_files or ()


def records_in(announcements: Iterable[Envelope]) -> int:
    """Records in announced data files."""
    return sum(
        file.record_count
        for envelope in announcements
        if isinstance(payload := envelope.event.payload, DataWritten)
        for file in payload.data_files or ()
    )


def failed_tables(
    failed: Mapping[Identifier, TableFailed], announced: Mapping[Identifier, Sequence[Envelope]]
) -> list[dict[str, Any]]:
    """The tables that are not committed, why, and what waits for each."""
    return [
        {
            "table": str(failure.table),
            "code": failure.code,
            "message": failure.message,
            "retriable": failure.is_retriable,
            **_amount(announced.get(identifier, ())),
        }
        for identifier, failure in sorted(failed.items())
    ]


def answer_to(decided: TableDecided) -> dict[str, Any]:
    """Return the answer for the operator; every skipped file is written to the log."""
    table = str(decided.decision.table)
    paths = [file.file_path for file in files_of(decided.skipped)]
    for at in range(0, len(paths), PATHS_PER_LINE):
        log.warning("files given up", table=table, paths=paths[at : at + PATHS_PER_LINE])
    return {
        "table": table,
        "action": decided.decision.action,
        "state": decided.state,
        "skipped": {**_amount(decided.skipped), "paths": paths[:PATHS_SHOWN_MAX]},
        "waiting": _amount(decided.kept),
    }


def _amount(announcements: Sequence[Envelope]) -> dict[str, int]:
    return {
        "announcements": len(announcements),
        "files": sum(1 for _ in files_of(announcements)),
        "records": records_in(announcements),
    }
