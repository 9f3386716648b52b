"""``Explode``: creates one record per element of a list, or per entry of a map."""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import REQUIRED, Key
from connect.model.records import SinkRecord, Struct
from connect.records.transforms.chain_limits import RECORDS_MAX
from connect.records.transforms.transform import (
    OWN,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    all_values,
    refused,
    with_side,
)
from connect.records.transforms.value_paths import fields_of, get_in, put_in, steps

_PURPOSE: Final = "exploding"


def _entries(container: Any, field: str) -> list[tuple[Any, Any]]:
    """Return the index or key, and the value, of each element."""
    if container is None:
        return []
    if type(container) is list:
        return list(enumerate(container))
    if type(container) is dict:
        return list(container.items())
    if type(container) is Struct:
        return list(all_values(container).items())
    raise refused(f"the field {field} is neither a list nor a map", "wrong_type")


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    field = options["field"]
    source = steps(field)
    target = steps(options["element.field"]) if options["element.field"] else source
    number = steps(options["key.field"]) if options["key.field"] else None
    keeps_empty, spreads = options["keep.empty"], options["spread"]

    def row(value: dict[Any, Any], key: Any, element: Any) -> dict[Any, Any]:
        if spreads and type(element) in (dict, Struct):
            new = {**put_in(value, source, None), **fields_of(element, _PURPOSE)}
            if len(source) == 1 and source[0] not in fields_of(element, _PURPOSE):
                del new[source[0]]
        else:
            if target != source:
                value = put_in(value, source, None)
            new = put_in(value, target, element)
        return new if number is None else put_in(new, number, key)

    def apply(record: SinkRecord) -> SinkRecord | tuple[SinkRecord, ...]:
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        entries = _entries(get_in(value, source), field)
        if len(entries) > RECORDS_MAX:
            raise refused(f"the field {field} has more than {RECORDS_MAX} elements", "too_many")
        if not entries and keeps_empty:
            return with_side(record, "value", None, row(value, None, None))
        return tuple(
            with_side(record, "value", None, row(value, key, element)) for key, element in entries
        )

    return apply


DECLARATION: Final = Declaration(
    "Explode",
    OWN,
    "Creates one row for each element of a list or entry of a map, and repeats the other fields. "
    "A record with an empty, null or missing list is dropped unless `keep.empty` is true. Either "
    "all rows of a record are written, in the order of the elements, or none. The result has no "
    "value schema.",
    make,
    Example(
        {"field": "cameras", "key.field": "camera", "spread": "true"},
        {"value": {"device": "d1", "cameras": {"front": {"fps": 30}, "rear": {"fps": 25}}}},
        [
            {"value": {"device": "d1", "fps": 30, "camera": "front"}},
            {"value": {"device": "d1", "fps": 25, "camera": "rear"}},
        ],
    ),
    keys=(
        Key(
            "field",
            "STRING",
            "Path of the list or map; dots separate nested fields.",
            REQUIRED,
            "HIGH",
        ),
        Key("element.field", "STRING", "Field for the element; empty replaces the list.", ""),
        Key(
            "key.field",
            "STRING",
            "Field for the map's key or the list's index; empty for none.",
            "",
        ),
        Key(
            "spread",
            "BOOLEAN",
            "Add the fields of a struct element to the record's fields.",
            "false",
        ),
        Key("keep.empty", "BOOLEAN", "Keep one row if there are no elements.", "false"),
    ),
    is_column=True,
)
