"""The records of the dead letter topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import KafkaRecord
from connect.records.dead_letter import NEAR_LIMIT, TABLE_HEADER, message, origin
from connect.validation.parse import parse

ERROR = RecordError("no such thing", stage="VALUE_CONVERTER", code="bad_json", table="db.t")
CONNECT_HEADERS = [
    "__connect.errors." + name
    for name in (
        "topic",
        "partition",
        "offset",
        "connector.name",
        "task.id",
        "stage",
        "class.name",
        "exception.class.name",
        "exception.message",
        "exception.stacktrace",
    )
]

OWN_HEADERS = [
    "__icefloe.errors." + name
    for name in (
        "topic",
        "partition",
        "offset",
        "connector.name",
        "stage",
        "exception.class.name",
        "exception.message",
        "code",
        "table",
    )
]


def config(**errors: str) -> ConnectorConfig:
    """A connector's configuration with dead letter settings."""
    return parse(
        {
            "name": "c",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "t",
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1/",
            "errors.tolerance": "all",
            **{f"errors.deadletterqueue.{k.replace('_', '.')}": v for k, v in errors.items()},
        }
    )


WITH_HEADERS = config(topic_name="dlq", context_headers_enable="true")
WITHOUT_HEADERS = config(topic_name="dlq")
NONE = config()
OPTIONAL_BYTES = st.none() | st.binary(max_size=20)


@given(
    OPTIONAL_BYTES,
    OPTIONAL_BYTES,
    st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3).map(tuple),
    st.none() | st.integers(0, 2**40),
)
def test_records_are_kept_byte_for_byte(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_ms: int | None,
) -> None:
    """A dead letter keeps key, value, headers and timestamp; error headers follow if enabled."""
    kind = -1 if timestamp_ms is None else 0
    record = KafkaRecord("t", 3, 42, timestamp_ms, kind, key, value, headers)
    plain = message(record, ERROR, WITHOUT_HEADERS, task_id=7)
    full = message(record, ERROR, WITH_HEADERS, task_id=7)
    assert plain is not None
    assert full is not None
    for letter in (plain, full):
        assert (letter.topic, letter.key, letter.value) == ("dlq", key, value)
        assert letter.timestamp_ms == timestamp_ms
        assert letter.headers[: len(headers)] == headers
    assert [name for name, _ in plain.headers[len(headers) :]] == OWN_HEADERS
    assert [name for name, _ in full.headers[len(headers) :]] == [*CONNECT_HEADERS, TABLE_HEADER]


def test_error_headers_have_coordinates_stage_class_and_reason() -> None:
    """Coordinates, stage, class and reason, as texts."""
    record = KafkaRecord("t", 3, 42, 5, 0, b"k", b"{")
    letter = message(record, ERROR, WITH_HEADERS, task_id=7)
    assert letter is not None
    headers = {name.removeprefix("__connect.errors."): value for name, value in letter.headers}
    assert headers["topic"] == b"t"
    assert headers["partition"] == b"3"
    assert headers["offset"] == b"42"
    assert headers["connector.name"] == b"c"
    assert headers["task.id"] == b"7"
    assert headers["stage"] == b"VALUE_CONVERTER"
    assert headers["class.name"] == WITH_HEADERS.value_converter.class_name.encode()
    assert headers["exception.class.name"] == b"connect.errors.RecordError"
    assert headers["exception.message"] == b"no such thing [table=db.t]"
    assert b"bad_json" in (headers["exception.stacktrace"] or b"")
    assert headers[TABLE_HEADER] == b"db.t"


def test_without_a_dead_letter_topic_the_record_is_dropped() -> None:
    """With tolerance and without a dead letter topic, the record is dropped."""
    record = KafkaRecord("t", 0, 0, None, -1, None, None)
    assert message(record, ERROR, NONE, task_id=0) is None


@given(
    st.lists(
        st.tuples(
            st.text(max_size=5)
            | st.sampled_from([*CONNECT_HEADERS, *OWN_HEADERS, "__connect.errors.x"]),
            OPTIONAL_BYTES,
        ),
        max_size=6,
    ).map(tuple),
    st.integers(0, 50),
    st.integers(0, 2**63 - 1),
    st.sampled_from([WITH_HEADERS, WITHOUT_HEADERS]),
)
def test_the_origin_of_a_dead_letter_is_read_back(
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int,
    offset: int,
    connector: ConnectorConfig,
) -> None:
    """Coordinates, code, table and the record's headers, even if these resemble context headers."""
    record = KafkaRecord("t", partition, offset, 5, 0, b"k", b"v", headers)
    sent = message(record, ERROR, connector, task_id=2)
    assert sent is not None
    found = origin(KafkaRecord("dlq", 0, 9, 5, 0, sent.key, sent.value, sent.headers))
    assert (found.topic, found.partition, found.offset) == ("t", partition, offset)
    assert (found.connector, found.stage, found.code) == ("c", "VALUE_CONVERTER", "bad_json")
    assert (found.table, found.headers) == ("db.t", headers)
    assert found.exception == "connect.errors.RecordError"
    assert found.reason == "no such thing [table=db.t]"


def test_own_headers_make_no_record_too_large_for_its_topic() -> None:
    """A record just below the usual limit of a topic gets none; a long reason is cut."""
    for size, names in ((NEAR_LIMIT.start - 1, OWN_HEADERS), (NEAR_LIMIT.start, [])):
        record = KafkaRecord("t", 3, 42, 5, 0, b"", b"x" * size)
        letter = message(record, ERROR, WITHOUT_HEADERS, task_id=7)
        assert letter is not None
        assert [name for name, _ in letter.headers] == names
    long = RecordError("x" * 2**20, stage="TASK_PUT", code="record_failed")
    letter = message(KafkaRecord("t", 3, 42, 5, 0, b"", b""), long, WITHOUT_HEADERS, task_id=7)
    assert letter is not None
    assert sum(len(name) + len(value or b"") for name, value in letter.headers) < 2_000


def test_a_dead_letter_of_kafka_connect_has_no_code() -> None:
    """Its coordinates are read, its stack trace names no code of ours; bad numbers are unknown."""
    record = KafkaRecord(
        "dlq",
        0,
        9,
        5,
        0,
        b"k",
        b"v",
        (
            ("own", b"x"),
            ("__connect.errors.topic", b"t"),
            ("__connect.errors.partition", b"3"),
            ("__connect.errors.offset", b"\xd9\xa3"),
            ("__connect.errors.exception.stacktrace", b"a.B: no\n\tat x.y(Z.java:1)\n"),
        ),
    )
    found = origin(record)
    assert (found.topic, found.partition, found.offset, found.code) == ("t", 3, None, None)
    assert found.headers == (("own", b"x"),)
    assert not origin(KafkaRecord("dlq", 0, 9, 5, 0, None, None, ())).is_known
