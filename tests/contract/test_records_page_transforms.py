"""Rows of docs/reference/records-differences.md about transformations; all rows are tried."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.types import DecimalType

from connect.errors import ConfigError, RecordError
from connect.records.record_path import ReferencePath
from connect.records.transforms.extended_json import document_of
from tests.differential.support import config
from tests.golden import debezium_events as events
from tests.support import records_page as page
from tests.support import records_page_formats as formats
from tests.support.records_page import Trial, read, refused

KAFKA: Final = "org.apache.kafka.connect.transforms."
ICEBERG: Final = "org.apache.iceberg.connect.transforms."
STRINGS: Final = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}


def chain(type_name: str, **keys: str) -> dict[str, str]:
    """One transformation."""
    return {"transforms": "a", "transforms.a.type": type_name} | {
        f"transforms.a.{key.replace('__', '.')}": value for key, value in keys.items()
    }


def map_text(_: Path) -> None:
    keys = {**STRINGS, **formats.NO_ENVELOPE, **chain(f"{ICEBERG}JsonToMapTransform")}
    assert refused(b'{"a":1} x', **keys) == "bad_json"


def two_metadata(_: Path) -> None:
    first = chain(f"{ICEBERG}KafkaMetadataTransform", field_name="x")
    second = {"transforms.b.type": f"{ICEBERG}KafkaMetadataTransform"}
    second |= {"transforms.b.field_name": "y", "transforms": "a,b"}
    value = read(b'{"c":1}', **{**first, **second}).value
    assert {"x_topic", "y_topic"} <= set(value)


def array_mode(_: Path) -> None:
    with pytest.raises(ConfigError):
        config(**chain(f"{ICEBERG}MongoDebeziumTransform", array_handling_mode="heap"))


def shell_notation(_: Path) -> None:
    assert document_of('{"a": {"$numberLong": "1"}}').value["a"].value == 1
    with pytest.raises(RecordError):
        document_of('{"a": NumberLong(1)}')


def headers_as_sent(_: Path) -> None:
    headers = (("h", b"0012"), ("at", b"03:04:05Z"))
    assert [header.value for header in read(b"{}", headers).headers] == [b"0012", b"03:04:05Z"]
    keys = {"fields.c": "kafka.headers.h"}
    assert read(b"{}", headers, **chain("Jmespath", **keys)).value == {"c": "0012"}


def two_digit_years(_: Path) -> None:
    keys = {"field": "c", "target__type": "unix", "format": "yy-MM-dd"}
    for text, year in (("69-01-01", 1969), ("68-01-01", 2068)):
        data = b'{"c":"%s"}' % text.encode()
        value = read(data, **chain(f"{KAFKA}TimestampConverter$Value", **keys)).value["c"]
        assert value == (dt.date(year, 1, 1) - dt.date(1970, 1, 1)).days * 86_400_000


def pattern_letters(_: Path) -> None:
    keys = {"field": "c", "target__type": "unix", "format": "yyyy-ww"}
    with pytest.raises(ConfigError):
        ReferencePath(config(**chain(f"{KAFKA}TimestampConverter$Value", **keys)))


def refused_options(_: Path) -> None:
    with pytest.raises(ConfigError):
        config(**chain(f"{KAFKA}Cast$Value", spec="c:int7"))
    with pytest.raises(ConfigError):
        config(**chain(f"{KAFKA}Filter", predicate="unknown"))


def quiet_messages(_: Path) -> None:
    with pytest.raises(RecordError) as caught:
        read(b'{"c":"secret-7"}', **chain(f"{KAFKA}Cast$Value", spec="c:int32"))
    assert "secret-7" not in str(caught.value)


def collection(_: Path) -> None:
    data = b'{"op":"c","ts_ms":1,"source":{"db":"shop","collection":"orders"},"after":{"_id":1}}'
    changed = read(data, **chain(f"{ICEBERG}DebeziumTransform")).value
    assert changed["_cdc"]["target"] == "shop.orders"


def row_that_is_none(_: Path) -> None:
    data = b'{"op":"c","ts_ms":1,"source":{"db":"d","table":"t"},"after":"x"}'
    assert refused(data, **chain(f"{ICEBERG}DebeziumTransform")) == "wrong_type"


def truncated_table(_: Path) -> None:
    data = b'{"op":"t","ts_ms":1,"source":{"db":"d","table":"t"}%s}'
    keys = chain(f"{ICEBERG}DebeziumTransform")
    for rows in (b"", b',"before":null,"after":null'):
        assert refused(data % rows, **keys) == "truncate"


def state_of(op: str, before: Any = None, **keys: str) -> tuple[bytes, dict[str, str]]:
    """A change event, and the configuration that unwraps it."""
    event = events.event("postgresql", op, before, None)
    value = events.message(events.envelope_schema("postgresql"), event)["value"]
    state = chain("io.debezium.transforms.ExtractNewRecordState", **keys)
    return value.encode(), {**state, "value.converter.schemas.enable": "true"}


def truncated_state(_: Path) -> None:
    data, keys = state_of("t")
    assert refused(data, **keys) == "truncate"


def fields_of_tombstone(_: Path) -> None:
    mode = {"delete__tombstone__handling__mode": "delete-to-tombstone"}
    data, keys = state_of("d", events.FULL, drop__fields__header__name="h", **mode)
    assert read(data, (("h", b'["name"]'),), **keys).value is None


def outbox(number: int, **keys: str) -> Any:
    """What the outbox router makes of a recorded row."""
    router = chain("io.debezium.transforms.outbox.EventRouter", **keys)
    value = events.OUTBOX[number]["value"].encode()
    return read(value, **router, **{"value.converter.schemas.enable": "true"})


def routed_event(_: Path) -> None:
    record = outbox(0)
    assert (record.topic, record.key) == ("outbox.event.order", "7")


def text_of_two_types(_: Path) -> None:
    record = outbox(5, table__expand__json__payload="true")
    assert record.value == '{"docs": [{"x": 1}, {"x": 5000000000}]}'
    assert record.value_schema.type == "string"


def renamed_to_another(_: Path) -> None:
    schema = '{"type":"struct","fields":[{"field":"ts","type":"int32"}]}'
    keys = chain(f"{KAFKA}ReplaceField$Value", renames="zz:ts")
    keys["value.converter.schemas.enable"] = "true"
    record = read(b'{"schema":%s,"payload":{"ts":7}}' % schema.encode(), **keys)
    assert dict(record.value.values) == {"ts": 7}


def odd_literals(_: Path) -> None:
    for text, value in (
        ("07:51:30.888", 7),
        ("{[1]:2}", "{[1]:2}"),
        ("{true:2,1:3}", "{true:2,1:3}"),
        ("[" * 51 + "]" * 51, "[" * 51 + "]" * 51),
    ):
        keys = {"header": "h", "value__literal": text}
        assert read(b"{}", **chain(f"{KAFKA}InsertHeader", **keys)).headers[0].value == value


def converted(text: bytes, pattern: str) -> Any:
    """Milliseconds of a text in a pattern of dates."""
    keys = {"field": "c", "target__type": "unix", "format": pattern}
    data = b'{"c":"%s"}' % text
    return read(data, **chain(f"{KAFKA}TimestampConverter$Value", **keys)).value["c"]


def instants_beyond_64_bits(_: Path) -> None:
    with pytest.raises(RecordError) as caught:
        converted(b"2147483647", "yy")
    assert caught.value.code == "out_of_range"


def before_1582(_: Path) -> None:
    days = (dt.date(1, 1, 1) - dt.date(1970, 1, 1)).days
    assert converted(b"0001-01-01", "yyyy-MM-dd") == days * 86_400_000
    assert converted(b"0000-12-31", "yyyy-MM-dd") == (days - 1) * 86_400_000


def abutting_numbers(_: Path) -> None:
    for text in (b"9999-12-31", b"2024 1 1", b"NaN0101"):
        with pytest.raises(RecordError) as caught:
            converted(text, "yyyyMMdd")
        assert caught.value.code == "bad_text"


def long_numbers(_: Path) -> None:
    assert converted(b"1700000000123", "S") == 1_700_000_000_123
    with pytest.raises(RecordError):
        converted(b"1" * 19, "S")


def double_texts(_: Path) -> None:
    value = read(b'{"c":1e23}', **chain(f"{KAFKA}Cast$Value", spec="c:string")).value
    assert value == {"c": "1.0E23"}


def large_doubles(_: Path) -> None:
    stored = page.stored(DecimalType(38, 0), 9.198204736788456e17)
    assert stored == 919_820_473_678_845_600


TRIALS: Final[dict[str, Trial]] = {
    "a header read by": headers_as_sent,
    "`JsonToMapTransform`: text after": map_text,
    "two `KafkaMetadataTransform`": two_metadata,
    "`MongoDebeziumTransform`: an unknown": array_mode,
    "documents with notations": shell_notation,
    "`DebeziumTransform` without schema": row_that_is_none,
    "`DebeziumTransform` for changes of MongoDB": collection,
    "`DebeziumTransform`: a truncate": truncated_table,
    "`ExtractNewRecordState`: a truncate": truncated_state,
    "`ExtractNewRecordState`: a delete without": fields_of_tombstone,
    "`EventRouter` in a sink": routed_event,
    "`EventRouter`: a payload": text_of_two_types,
    "`ReplaceField` of a struct": renamed_to_another,
    "`InsertHeader` with a literal": odd_literals,
    "days before 15 October 1582": before_1582,
    "a number in a date pattern": abutting_numbers,
    "a number of a time beyond 32": long_numbers,
    "a double as text": double_texts,
    "a whole number beyond 2^53": large_doubles,
    "two-digit years": two_digit_years,
    "date pattern letters": pattern_letters,
    "options that the class itself rejects": refused_options,
    "a text whose instant has more than 64 bits": instants_beyond_64_bits,
    "messages about rejected records": quiet_messages,
}


@pytest.mark.parametrize("start", TRIALS)
def test_each_row_of_the_page_is_true(start: str, tmp_path: Path) -> None:
    """What a row says is so."""
    page.try_row(start, TRIALS, tmp_path)


def test_each_row_of_the_page_has_a_test() -> None:
    """Each row of the page's tables has a trial."""
    tried = (*page.TRIALS, *formats.TRIALS, *TRIALS)
    assert [row for row in page.rows() if not row.startswith(tried)] == []
