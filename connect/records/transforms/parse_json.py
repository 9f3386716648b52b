"""``ParseJson``: parses a string field that contains JSON."""

from __future__ import annotations

from typing import Final

from connect.config.key import REQUIRED, Key
from connect.model.records import SinkRecord
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson
from connect.records.transforms.transform import (
    OWN,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    refused,
    with_side,
)
from connect.records.transforms.value_paths import fields_of, get_in, put_in, steps

_PURPOSE: Final = "parsing JSON"
_READER: Final = JsonReader(decimals=False)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    source = steps(options["field"])
    target = steps(options["target"]) if options["target"] else source

    def apply(record: SinkRecord) -> SinkRecord:
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        text = get_in(value, source)
        if text is None:
            return record
        if type(text) is not str:
            raise refused(f"the field {options['field']} is not a string", "wrong_type")
        try:
            parsed = _READER.read_text(text)
        except NotJson as error:
            message = f"the field {options['field']} is not valid JSON: {error}"
            raise refused(message, error.code) from None
        return with_side(record, "value", None, put_in(value, target, parsed))

    return apply


DECLARATION: Final = Declaration(
    "ParseJson",
    OWN,
    "Parses a string field as JSON. Objects become structs. Null and missing fields do not change. "
    "A string that is not valid JSON is an error. The result has no value schema.",
    make,
    Example(
        {"field": "payload"},
        {"value": {"id": 7, "payload": '{"user": {"name": "ann"}, "tags": ["x"]}'}},
        {"value": {"id": 7, "payload": {"user": {"name": "ann"}, "tags": ["x"]}}},
    ),
    keys=(
        Key("field", "STRING", "Path of the field; dots separate nested fields.", REQUIRED, "HIGH"),
        Key("target", "STRING", "Path of the field for the result; empty replaces the field.", ""),
    ),
    is_column=True,
)
