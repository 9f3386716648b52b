"""``Filter``: drops the records that its predicate selects."""

from __future__ import annotations

from typing import Final

from connect.model.records import SinkRecord
from connect.records.transforms.transform import KAFKA, Apply, Declaration, Example, Options, Side


def _drop(record: SinkRecord) -> None:
    del record


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del options, side
    return _drop


DECLARATION: Final = Declaration(
    "Filter",
    KAFKA,
    "Drops records. With a predicate, it drops the records that match; with `negate`, it drops the "
    "others. Dropped records are counted. They are neither errors nor dead letters.",
    make,
    Example({}, {"value": {"id": 7}}, None),
    is_column=True,
)
