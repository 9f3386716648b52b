"""Debezium's transformations against recordings of Debezium's own classes."""

from __future__ import annotations

from collections import Counter

import pytest

from connect.config.connector import ConverterConfig, TransformConfig
from connect.errors import RecordError
from connect.model.records import Header, SinkRecord
from connect.records.converters import converter
from connect.records.transforms import literals
from connect.records.transforms.transform_chain import Chain
from tests.golden import debezium_recordings as recordings
from tests.golden.debezium_events import Message
from tests.golden.records_transforms_suite import same_record

JSON = converter(ConverterConfig("JsonConverter", {"schemas.enable": "true"}), "value")
TRUNCATES = "truncate"
SAFER = frozenset({TRUNCATES, "wrong header of a delete without value", recordings.TORN})
"""Differences from Debezium's classes that the page of the transformation names."""


def read(message: Message) -> SinkRecord:
    """The record that converters make of a message."""
    topic = message["topic"]
    sides = [message[side] and message[side].encode() for side in ("key", "value")]
    (key_schema, key), (value_schema, value) = (JSON.to_connect(topic, (), s) for s in sides)
    headers = tuple(
        Header(name, *reversed(literals.parsed(text) if text is not None else (None, None)))
        for name, text in message["headers"].items()
    )
    return SinkRecord(topic, 0, 0, 0, key, key_schema, value, value_schema, headers)


def difference(ours: SinkRecord | RecordError | None, theirs: SinkRecord | str | None) -> str:
    """What differs, a key of ``SAFER``, or nothing."""
    if isinstance(ours, RecordError):
        if isinstance(theirs, str):
            return ""
        return TRUNCATES if theirs is None and ours.code == "truncate" else f"{ours} for {theirs}"
    is_torn = theirs == recordings.TORN or str(theirs).endswith('for field: "payload"')
    if is_torn and ours is not None:
        return recordings.TORN
    if isinstance(theirs, str):
        if "NullPointer" in theirs and ours is not None and ours.value is None:
            return "wrong header of a delete without value"
        return f"{ours} for {theirs}"
    return "" if ours == theirs else same_record(ours, theirs)


@pytest.mark.parametrize("name", recordings.CLASSES)
def test_each_recorded_event_becomes_what_debezium_makes_of_it(name: str) -> None:
    """With each set of options: value, schemas, key, headers, topic, errors."""
    class_name, messages, option_sets = recordings.CLASSES[name]
    recording = recordings.recording(name)
    records = [read(message) for message in messages]
    seen: Counter[str] = Counter()
    for number, options in enumerate(option_sets):
        chain = Chain((TransformConfig("a", class_name, options),))
        for place, record in enumerate(records):
            ours: SinkRecord | RecordError | None
            try:
                transformed = chain.apply(record)
                ours = transformed[0] if transformed else None
            except RecordError as error:
                ours = error
            seen[difference(ours, recording.result(number, place))] += 1
    assert set(seen) <= {"", *SAFER}, {k: n for k, n in seen.items() if k not in SAFER and k}
    assert seen[""] > 10 * (sum(seen.values()) - seen[""])
