"""``DropHeaders``: removes headers by name."""

from __future__ import annotations

import dataclasses
from typing import Final

from connect.config.key import REQUIRED, Distinct, Key
from connect.model.records import SinkRecord
from connect.records.transforms.transform import KAFKA, Apply, Declaration, Example, Options, Side


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    names = frozenset(options["headers"])

    def apply(record: SinkRecord) -> SinkRecord:
        kept = tuple(header for header in record.headers if header.key not in names)
        return dataclasses.replace(record, headers=kept)

    return apply


DECLARATION: Final = Declaration(
    "DropHeaders",
    KAFKA,
    "Removes headers by name.",
    make,
    Example(
        {"headers": "trace"},
        {"value": {"id": 7}, "headers": {"trace": "a1", "kind": "order"}},
        {"value": {"id": 7}, "headers": {"kind": "order"}},
    ),
    keys=(
        Key(
            "headers",
            "LIST",
            "Names of the headers to remove.",
            REQUIRED,
            "HIGH",
            check=Distinct("headers"),
        ),
    ),
    needs_headers=True,
    is_column=True,
)
