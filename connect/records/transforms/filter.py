"""``Filter``: drops every record that its predicate lets through to it."""

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
    "Drops records. With a predicate it drops those that the predicate matches, with `negate` the "
    "others. A dropped record is read and counted as dropped; it is no error and no dead letter.",
    make,
    Example({}, {"value": {"id": 7}}, None),
    is_column=True,
)
