"""Control events of an answer: chunked under the size limit, complete, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.clock import SystemClock
from connect.errors import ConfigError, RecordError
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import decode
from control_schemas.events import (
    ContentFile,
    DataComplete,
    DataWritten,
    FileContent,
    LostRange,
    TableReference,
)
from control_schemas.headers import decode_headers
from worker.batch.descriptors import DeadLetter, PartitionProgress
from worker.batch.messages import SCHEMA, MessageChunk
from worker.task.read_ledger import OffsetRanges, ReadLedger, TaskAnnouncement, WrittenBatch
from worker.task.rounds.announcer import EVENT_SHARE, Announcer

COMMIT = UUID(int=9)
TP = TopicPartition("t", 0)


@dataclass
class LimitedProducer:
    """The attributes of a producer that the announcer uses for events."""

    request_bytes_max: int


def announcer(request_bytes_max: int = 1_048_576) -> Announcer:
    """An announcer that only makes events."""
    return Announcer(
        cast("TransactionalProducer", LimitedProducer(request_bytes_max)),
        control_topic="control",
        connect_group_id="connect-c",
        layout=4,
        task=3,
        clock=SystemClock(),
        dead_letter=lambda _: None,
    )


def test_a_dead_letter_that_does_not_fit_is_named() -> None:
    """The task stops; the error has the record's coordinates and the setting to raise."""
    record = KafkaRecord("orders", 3, 77, None, -1, None, b"x" * 1_000, ())
    letter = DeadLetter(record, RecordError("bad"))
    batch = WrittenBatch(OffsetRanges({TP: 0}, {TP: 1}), {}, (), (letter,))
    made = replace(
        announcer(request_bytes_max=1_400),
        dead_letter=lambda given: ProducerMessage("dead", None, given.record.value),
    )
    with pytest.raises(
        ConfigError, match=r"max\.request\.size.*max\.message\.bytes of topic dead"
    ) as e:
        made.announce(COMMIT, TaskAnnouncement((batch,), (), (), {}))
    assert e.value.code == "dead_letter_too_large"
    assert e.value.coordinates == {"topic": "orders", "partition": 3, "offset": 77}


def chunk_of(*values: bytes) -> MessageChunk:
    """Rows for outputs of records with offsets from 70."""
    rows = [
        {"output": 1, "key": b"k", "value": value, "timestamp": n, "topic": "orders"}
        | {"partition": 3, "offset": 70 + n}
        for n, value in enumerate(values)
    ]
    return MessageChunk.of(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def test_a_row_that_does_not_fit_is_named() -> None:
    """Before the transaction begins; the error has its record, its topic and the way out."""
    batch = WrittenBatch(
        OffsetRanges({TP: 0}, {TP: 3}), {}, messages=(chunk_of(b"a", b"x" * 1_000, b"b"),)
    )
    made = replace(announcer(request_bytes_max=1_400), topics=("all", "large"))
    with pytest.raises(ConfigError, match=r"topic large has 1001 bytes.*at least 1513") as e:
        made.announce(COMMIT, TaskAnnouncement((batch,), (), (), {}))
    assert e.value.code == "output_too_large"
    assert e.value.coordinates == {"topic": "orders", "partition": 3, "offset": 71}


def test_rows_are_sent_between_dead_letters_and_events() -> None:
    """In the order of batches and chunks, in the same transaction."""
    transactions: list[list[ProducerMessage]] = []

    class Recording(LimitedProducer):
        def transact(self, messages: Any, **_: Any) -> None:
            transactions.append(list(messages))

    record = KafkaRecord("orders", 3, 77, None, -1, None, b"x", ())
    letter = DeadLetter(record, RecordError("bad"))
    batches = tuple(
        WrittenBatch(OffsetRanges({TP: n}, {TP: n + 1}), {}, (), (letter,), messages=(chunk_of(v),))
        for n, v in enumerate((b"first", b"second"))
    )
    made = replace(
        announcer(),
        producer=cast("TransactionalProducer", Recording(1_048_576)),
        topics=("all", "large"),
        dead_letter=lambda given: ProducerMessage("dead", None, given.record.value),
    )
    assert made.announce(COMMIT, TaskAnnouncement(batches, (), (), {})) == 2
    messages = transactions[-1]
    assert len(transactions) == 1
    assert [m.topic for m in messages] == ["dead", "dead", "large", "large", "control"]
    assert messages[2:4] == [
        ProducerMessage("large", b"k", value, timestamp_ms=0) for value in (b"first", b"second")
    ]


def data_file(number: int, *, bound: bytes = b"a", content: FileContent = FileContent.DATA) -> Any:
    """A file with a bound on one column."""
    return ContentFile(
        content,
        f"s3://bucket/db/t/data/{number:08d}.parquet",
        "PARQUET",
        0,
        (),
        1,
        100,
        lower_bounds={1: bound},
        upper_bounds={1: bound},
    )


def answer(*batches: dict[str, list[ContentFile]]) -> TaskAnnouncement:
    """An answer with these files per table and batch."""
    ledger = ReadLedger({TP: 0}, out_of_order_ms=0, idle_lag_ms=0)
    for number, tables in enumerate(batches):
        files = tuple(
            (TableReference("c", ("db",), name, UUID(int=1)), tuple(listed))
            for name, listed in tables.items()
        )
        part = OffsetRanges({TP: number}, {TP: number + 1})
        ledger.add(WrittenBatch(part, {TP: PartitionProgress(1, 0, 0, 1, 7)}, (files,)))
    return ledger.answer()


def events(messages: list[ProducerMessage]) -> list[tuple[Any, Any]]:
    """Payloads with headers."""
    return [(decode(m.value or b"").payload, decode_headers(m.headers)) for m in messages]


def test_events_come_batch_by_batch_and_end_with_data_complete() -> None:
    """DataWritten has layout, task and batch number, per batch and table."""
    payloads = list(
        announcer().events(
            COMMIT, answer({"a": [data_file(0)], "b": [data_file(1)]}, {"a": [data_file(2)]})
        )
    )
    assert {(m.topic, m.key) for m in payloads} == {("control", b"connect-c")}
    *written, (complete, headers) = events(payloads)
    assert [(p.table.name, h.batch, h.layout, h.task) for p, h in written] == [
        ("a", 0, 4, 3),
        ("b", 0, 4, 3),
        ("a", 1, 4, 3),
    ]
    assert isinstance(complete, DataComplete)
    assert (headers.layout, headers.task) == (4, 3)
    assert [(a.offset, a.timestamp_us) for a in complete.assignments or ()] == [(2, 7000)]
    assert [(r.start_offset, r.end_offset) for r in headers.ranges or ()] == [(0, 2)]


def test_the_batches_of_a_successor_have_higher_numbers() -> None:
    """A successor may answer the same round as its predecessor."""
    ledger = ReadLedger({TP: 0}, out_of_order_ms=0, idle_lag_ms=0)
    table = TableReference("c", ("db",), "a", UUID(int=1))
    numbers = []
    for start in (0, 2, 4):
        if start == 4:  # a new incarnation, from the committed offsets
            ledger = ReadLedger({TP: 4}, out_of_order_ms=0, idle_lag_ms=0)
        for at in (start, start + 1):
            part = OffsetRanges({TP: at}, {TP: at + 1})
            files = ((table, (data_file(at),)),)
            ledger.add(WrittenBatch(part, {TP: PartitionProgress(1, 0, 0, 1, 7)}, (files,)))
        answered = ledger.answer()
        ledger.announced(answered)
        announced = events(list(announcer().events(COMMIT, answered)))
        numbers += [h.batch for p, h in announced if isinstance(p, DataWritten)]
    assert numbers == sorted(set(numbers))


@given(st.integers(1, 300), st.integers(12_000, 60_000))
def test_files_are_split_over_events_below_the_size_limit(files: int, limit: int) -> None:
    """Any number of files is announced once and in order."""
    listed = [data_file(i) for i in range(files)]
    messages = list(announcer(limit).events(COMMIT, answer({"a": listed})))
    assert all(len(m.value or b"") <= limit * EVENT_SHARE for m in messages)
    found = [
        f for p, _ in events(messages) if isinstance(p, DataWritten) for f in p.data_files or ()
    ]
    assert [f.file_path for f in found] == [f.file_path for f in listed]


def test_delete_files_have_a_separate_list() -> None:
    """An event lists data files and delete files separately."""
    both = [data_file(0), data_file(1, content=FileContent.EQUALITY_DELETES)]
    ((payload, _), _) = events(list(announcer().events(COMMIT, answer({"a": both}))))
    assert [f.file_path[-9] for f in payload.data_files or ()] == ["0"]
    assert [f.file_path[-9] for f in payload.delete_files or ()] == ["1"]


def test_files_of_two_specs_have_separate_events() -> None:
    """An event has one partition type; both events have the same batch number."""
    both = [data_file(0), replace(data_file(1, content=FileContent.EQUALITY_DELETES), spec_id=1)]
    announced = events(list(announcer().events(COMMIT, answer({"a": both}))))
    written = [(p, h) for p, h in announced if isinstance(p, DataWritten)]
    assert [(len(p.data_files or ()), len(p.delete_files or ())) for p, _ in written] == [
        (1, 0),
        (0, 1),
    ]
    assert [h.batch for _, h in written] == [0, 0]


def test_a_file_too_large_for_an_event_is_announced_without_bounds() -> None:
    """Bounds only serve pruning."""
    messages = list(
        announcer(12_000).events(COMMIT, answer({"a": [data_file(0, bound=b"x" * 6_000)]}))
    )
    ((payload, _), _) = events(messages)
    (file,) = payload.data_files or ()
    assert not file.lower_bounds
    assert file.record_count == 1


def test_an_event_that_cannot_be_made_smaller_is_an_error() -> None:
    """The error names the setting to raise."""
    with pytest.raises(ConfigError, match=r"max\.request\.size") as e:
        list(announcer(2_000).events(COMMIT, answer({"a": [data_file(0)]})))
    assert e.value.code == "event_too_large"


def test_a_batch_without_files_has_only_its_range() -> None:
    """If all records are dropped, there is no DataWritten."""
    announced = events(list(announcer().events(COMMIT, answer({"a": []}))))
    assert [type(p) for p, _ in announced] == [DataComplete]


def test_lost_records_are_in_the_header_of_every_event() -> None:
    """Files carry ranges that no snapshot has yet, DataComplete those inside its ranges."""
    old, new = LostRange("t", 0, 0, 3), LostRange("t", 0, 3, 9)
    given = replace(answer({"a": [data_file(0)]}), lost=(new,), lost_to_report=(old, new))
    lost = [headers.lost for _, headers in events(list(announcer().events(COMMIT, given)))]
    assert lost == [(old, new), (new,)]
