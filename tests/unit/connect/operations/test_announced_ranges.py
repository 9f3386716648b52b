"""Sums over a control topic: the results for constructed histories, correct and wrong ones."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

from connect.model.layout import TopicPartition
from connect.operations.audit.announced_ranges import AnnouncedSums
from connect.operations.audit.audit_report import AuditReport
from connect.protocol.control_topic import ControlRecord
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    LostRange,
    Payload,
    RowCounts,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from tests.support.frames import FILE

GROUP = "connect-orders"
TABLE = TableReference("iceberg", ("db",), "orders", None)
LETTERS = TableReference("iceberg", ("db",), "letters", None)
PLACE = TopicPartition("orders", 0)


class History:
    """A control topic with one partition, written event by event."""

    def __init__(self) -> None:
        self.records: list[ControlRecord] = []

    def add(
        self, payload: Payload, headers: EventHeaders | None = None, partition: int = 0
    ) -> None:
        """Append an event; the next one is a microsecond younger."""
        offset = len(self.records)
        event = Event(uuid4(), offset, GROUP, payload)
        self.records.append(ControlRecord(partition, offset, event, headers or EventHeaders()))

    def announce(
        self,
        start: int,
        end: int,
        *,
        rows: int | None = None,
        dropped: int = 0,
        dead: int = 0,
        letters: int = 0,
        counted: RowCounts | None = None,
    ) -> UUID:
        """One answer: a file, one of dead letters perhaps, and the range they come from."""
        commit_id, read = uuid4(), end - start
        written = read - dropped - dead
        file = replace(
            FILE, file_path=f"s3://lake/{uuid4()}", record_count=written if rows is None else rows
        )
        self.add(DataWritten(commit_id, TABLE, (file,), ()))
        if letters:
            file = replace(file, file_path=f"{file.file_path}-dead", record_count=letters)
            self.add(DataWritten(commit_id, LETTERS, (file,), ()))
        source = SourceRange("orders", 0, start, end, read, dropped, dead, written, None)
        self.add(DataComplete(commit_id, ()), EventHeaders(ranges=(source,), rows=counted))
        return commit_id


def audited(
    history: History,
    *,
    log_start: int = 0,
    is_one_row: bool = True,
    is_row_level: bool = False,
) -> AuditReport:
    """What the sums say."""
    audit = AuditReport("orders")
    announced = AnnouncedSums(
        audit,
        GROUP,
        {0: log_start},
        is_one_row=is_one_row,
        is_row_level=is_row_level,
        dead_letter_table=str(LETTERS),
    )
    announced.take(history.records)
    announced.check_rounds()
    return audit


def codes(audit: AuditReport) -> list[str]:
    return [mismatch.code for mismatch in audit.mismatches]


def test_an_intact_history_has_no_mismatch() -> None:
    """Contiguous ranges, each with its rows."""
    history = History()
    history.announce(5, 15, dropped=2, dead=1)
    history.announce(15, 20)
    audit = audited(history)
    assert audit.is_sound
    source = audit.sources[PLACE]
    assert (source.from_offset, source.to_offset, source.read) == (5, 20, 15)
    assert (source.written, source.dropped, source.dead_lettered) == (12, 2, 1)


def test_gaps_and_overlaps_are_named_in_their_order() -> None:
    """Ranges that no task announced, and ranges that were announced twice."""
    history = History()
    history.announce(0, 10)
    history.announce(12, 20)
    history.announce(15, 30)
    audit = audited(history)
    assert codes(audit) == ["source_gap", "source_overlap"]
    gap, overlap = (mismatch.where for mismatch in audit.mismatches)
    assert (gap["start_offset"], gap["end_offset"], gap["control_offset"]) == (10, 12, 3)
    assert (overlap["start_offset"], overlap["end_offset"]) == (15, 20)


def test_records_without_an_outcome_are_named() -> None:
    """Read, but neither written nor dropped nor dead letters."""
    history = History()
    bad = SourceRange("orders", 0, 0, 10, 10, 1, 1, 7, None)
    history.add(DataComplete(uuid4(), ()), EventHeaders(ranges=(bad,)))
    assert codes(audited(history)) == ["range_differs", "round_differs"]


def test_a_round_has_at_least_a_row_per_written_record() -> None:
    """More rows only if a record may become several."""
    history = History()
    history.announce(0, 10, rows=9)
    history.announce(10, 20, rows=11)
    assert codes(audited(history)) == ["round_differs", "round_differs"]
    assert codes(audited(history, is_one_row=False)) == ["round_differs"]


def test_superseded_and_deleted_rows_add_up() -> None:
    """Several changes of a key in one batch make fewer rows than records."""
    history = History()
    history.announce(0, 1_000, rows=430, counted=RowCounts(1_000, 560, 10))
    history.announce(1_000, 1_010, rows=10, counted=RowCounts(10))
    audit = audited(history, is_row_level=True)
    assert audit.is_sound
    assert not audit.notes
    assert audit.rows == RowCounts(1_010, 560, 10)


def test_counted_rows_must_be_in_the_files() -> None:
    """A difference of one row is named in every mode."""
    history = History()
    history.announce(0, 1_000, rows=429, counted=RowCounts(1_000, 560, 10))
    history.announce(1_000, 2_000, rows=431, counted=RowCounts(1_000, 560, 10))
    history.announce(2_000, 2_010, rows=30, counted=RowCounts(31))
    audit = audited(history, is_one_row=False, is_row_level=True)
    assert codes(audit) == ["round_differs"] * 3


def test_records_that_made_no_row_are_named() -> None:
    """A written record makes at least one row; exactly one in a single table."""
    history = History()
    history.announce(0, 10, rows=9, counted=RowCounts(9))
    assert codes(audited(history, is_one_row=False)) == ["round_differs"]
    history = History()
    history.announce(0, 10, rows=20, counted=RowCounts(20))
    assert codes(audited(history)) == ["round_differs"]
    assert audited(history, is_one_row=False).is_sound


def test_rows_without_counts_of_an_older_version_are_a_note() -> None:
    """They are no mismatch."""
    history = History()
    history.announce(0, 1_000, rows=430)
    audit = audited(history, is_row_level=True)
    assert audit.is_sound
    [note] = audit.notes
    assert note.startswith("1 rounds of row-level changes")


def test_a_file_announced_twice_counts_once() -> None:
    """As for the committer."""
    history = History()
    history.announce(0, 10)
    first = history.records[0].event
    assert first is not None
    history.add(first.payload)
    assert audited(history).is_sound


def test_announcements_of_the_java_sink_are_no_gap() -> None:
    """It gives no ranges and uses all partitions: a note says that they are not checked."""
    history = History()
    history.announce(0, 10)
    java = TopicPartitionOffset("orders", 0, 20, None)
    history.add(DataComplete(uuid4(), (java,)), partition=1)
    history.announce(20, 30)
    history.announce(31, 40)
    audit = audited(history)
    assert codes(audit) == ["source_gap"]
    assert audit.mismatches[0].where["start_offset"] == 30
    assert "read from 20 instead of 10" in audit.notes[0]


def test_offsets_set_by_an_operator_are_no_gap() -> None:
    """The node announces the change on the control topic."""
    history = History()
    history.announce(0, 10)
    history.add(CommitComplete(uuid4(), None), EventHeaders(moved=()))
    history.announce(3, 10)
    assert audited(history).is_sound


def test_an_answer_cut_by_retention_is_not_checked() -> None:
    """Its first files may have been deleted from the log."""
    history = History()
    history.announce(0, 10)
    history.announce(10, 20)
    del history.records[0]
    assert codes(audited(history)) == ["round_differs"]
    assert audited(history, log_start=1).is_sound


def test_rows_of_the_dead_letter_table_must_equal_the_dead_letters() -> None:
    """They are no rows of written records; a difference is named."""
    for letters, expected in ((3, []), (2, ["round_differs"]), (4, ["round_differs"])):
        history = History()
        history.announce(0, 10, dead=3, letters=letters)
        assert codes(audited(history)) == expected


def test_lost_records_count_as_lost_and_not_as_missing() -> None:
    """A range with lost records adds up; a note names them."""
    history = History()
    history.announce(0, 10)
    source = SourceRange("orders", 0, 10, 30, 5, 0, 0, 5, None)
    commit_id = uuid4()
    history.add(DataWritten(commit_id, TABLE, (replace(FILE, record_count=5),), ()))
    headers = EventHeaders(ranges=(source,), lost=(LostRange("orders", 0, 10, 25),))
    history.add(DataComplete(commit_id, ()), headers)
    history.announce(30, 31)
    audit = audited(history)
    assert audit.is_sound, audit.mismatches
    assert (audit.sources[PLACE].lost, audit.sources[PLACE].read) == (15, 16)
    assert "[10, 25) were deleted" in audit.notes[0]


def test_a_recreated_topic_is_a_note() -> None:
    """It is read from 0 after the change of its offsets; nothing is counted as lost."""
    history = History()
    history.announce(0, 10)
    history.add(CommitComplete(uuid4(), None), EventHeaders(moved=(("orders", 0),)))
    found = SourceRange("orders", 0, 0, 5, 5, 0, 0, 5, None)
    commit_id = uuid4()
    history.add(DataWritten(commit_id, TABLE, (replace(FILE, record_count=5),), ()))
    headers = EventHeaders(ranges=(found,), lost=(LostRange("orders", 0, 10, None),))
    history.add(DataComplete(commit_id, ()), headers)
    audit = audited(history)
    assert audit.is_sound, audit.mismatches
    assert audit.sources[PLACE].lost == 0
    assert any("records from offset 10 on are lost" in note for note in audit.notes)


def test_a_loss_that_its_announcement_does_not_cover_is_a_mismatch() -> None:
    """Outside the range, in another partition, or counted as read."""
    for lost, read in (
        (LostRange("orders", 0, 10, 31), 0),
        (LostRange("orders", 0, 9, 12), 0),
        (LostRange("orders", 1, 10, 12), 0),
        (LostRange("orders", 0, 10, 25), 16),
    ):
        history = History()
        source = SourceRange("orders", 0, 10, 30, read, 0, 0, read, None)
        commit_id = uuid4()
        history.add(DataWritten(commit_id, TABLE, (replace(FILE, record_count=read),), ()))
        history.add(DataComplete(commit_id, ()), EventHeaders(ranges=(source,), lost=(lost,)))
        assert [m.code for m in audited(history).mismatches] == ["loss_differs"]
