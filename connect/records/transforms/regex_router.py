"""``RegexRouter``: changes the topic name with a regular expression."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from connect.config.key import REQUIRED, Key
from connect.java_compat.java_regex import compile_java_regex, fault, replacement
from connect.model.records import SinkRecord
from connect.records.transforms.transform import (
    KAFKA,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    refused,
)


def valid_regex(value: Any) -> str | None:
    """Return the error of a regular expression, or None if it is valid."""
    if value is None:  # the message of the Java class
        return 'Invalid regex: Cannot invoke "String.isEmpty()" because "this.pattern" is null'
    return fault(value)


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    regex = compile_java_regex(options["regex"])
    expand = replacement(options["replacement"])

    def apply(record: SinkRecord) -> SinkRecord:
        match = regex.fullmatch(record.topic)
        if match is None:
            return record
        try:
            return dataclasses.replace(record, topic=expand(match))
        except ValueError as error:
            raise refused(f"the replacement does not match the regex: {error}") from None

    return apply


DECLARATION: Final = Declaration(
    "RegexRouter",
    KAFKA,
    "Changes the record's topic for later transformations, predicates, routing and name templates "
    "if the regular expression matches the whole topic name. Source offsets keep the original "
    "topic.",
    make,
    Example(
        {"regex": "(.*)-[0-9]{8}", "replacement": "$1"},
        {"value": {"id": 7}, "topic": "orders-20240102"},
        {"value": {"id": 7}, "topic": "orders"},
    ),
    keys=(
        Key(
            "regex",
            "STRING",
            "Java regular expression for the whole topic name.",
            REQUIRED,
            "HIGH",
            check=valid_regex,
        ),
        Key(
            "replacement",
            "STRING",
            "The new topic; `$1` and `${name}` refer to groups.",
            REQUIRED,
            "HIGH",
        ),
    ),
    is_column=True,
)
