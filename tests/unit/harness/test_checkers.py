"""Each checker of the fault tests finds the faults that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.faults.checkers import (
    Log,
    ObservedFile,
    ObservedRange,
    ObservedSnapshot,
    ObservedTable,
    Rows,
    check_commits,
    check_control_offsets,
    check_counts_at_least,
    check_files,
    check_no_growth,
    check_progress,
    check_ranges,
    check_record_counts,
    check_rows,
    check_secrets,
    check_sequence_numbers,
    check_source_offsets,
    check_valid_through,
    findings,
)

GOOD_ROWS = ((0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 2, 2), (1, 1, 2))
SNAPSHOTS = (
    ObservedSnapshot(1, "a", {0: 10}, 1_010, (1,)),
    ObservedSnapshot(2, "b", {0: 20}, 1_020, (2, 2)),
    ObservedSnapshot(3),  # of another writer
)
FILES = (ObservedFile("one", 10, 10), ObservedFile("two", 20, 20))


def log(*, table: int = 0) -> Log:
    """Three records of partition 0 and two of partition 1, times 1000, 1010, 1020 and so on."""
    records = np.array([(0, 0, 1_000), (0, 1, 1_010), (0, 2, 1_020), (1, 0, 1_010), (1, 1, 1_020)])
    return Log(records[:, 0], records[:, 1], records[:, 2], np.full(len(records), table))


def rows(*of: tuple[int, int, int]) -> Rows:
    """Rows from (partition, sequence, snapshot)."""
    each = np.array(of, dtype=np.int64).reshape(-1, 3)
    return Rows(each[:, 0], each[:, 1], each[:, 2])


def expect_one(problems: Sequence[str], *texts: str) -> None:
    """Assert that there is exactly one finding, and that it contains these texts."""
    assert len(problems) == 1, problems
    assert all(text in problems[0] for text in texts), problems


def test_a_good_history_has_no_findings() -> None:
    """Every check together, two tables."""
    first = log(table=0)
    both = Log(
        *(
            np.concatenate([getattr(first, name), getattr(log(table=1), name)])
            for name in ("partitions", "sequences", "timestamps_ms", "tables")
        )
    )
    table = ObservedTable("t", SNAPSHOTS, FILES, rows(*GOOD_ROWS))
    assert findings(both, [table, replace(table, name="u")]) == []


def test_findings_name_the_table() -> None:
    """A finding says where it was found."""
    table = ObservedTable("db.t", SNAPSHOTS, (*FILES, FILES[0]), rows(*GOOD_ROWS))
    expect_one(findings(log(), [table]), "db.t: ", "listed twice")


@pytest.mark.parametrize("missing", range(len(GOOD_ROWS)))
def test_a_missing_row_is_found(missing: int) -> None:
    """The finding has its partition and sequence."""
    remaining = [row for place, row in enumerate(GOOD_ROWS) if place != missing]
    partition, sequence, _ = GOOD_ROWS[missing]
    expect_one(check_rows(log(), rows(*remaining)), "1 rows missing", f"'{partition}:{sequence}'")


def test_every_row_of_an_empty_table_is_missing() -> None:
    """No rows at all."""
    expect_one(check_rows(log(), rows()), "5 rows missing")


def test_a_row_twice_is_found() -> None:
    """In another snapshot or in the same one."""
    expect_one(check_rows(log(), rows(*GOOD_ROWS, (0, 1, 2))), "1 rows twice", "'0:1'")
    expect_one(check_rows(log(), rows(*GOOD_ROWS, (0, 1, 1), (0, 1, 1))), "2 rows twice", "'0:1'")


def test_one_missing_and_one_twice_do_not_balance() -> None:
    """The number of rows is right and the rows are not."""
    problems = check_rows(log(), rows(*GOOD_ROWS[1:], (0, 1, 2)))
    assert [text.partition(",")[0] for text in problems] == ["1 rows missing", "1 rows twice"]


def test_a_row_of_no_record_is_found() -> None:
    """A row is reported whose record belongs to another table or was never produced."""
    expect_one(check_rows(log(), rows(*GOOD_ROWS, (3, 7, 2))), "1 rows unknown", "'3:7'")


def test_a_record_that_is_twice_in_the_log_is_two_rows() -> None:
    """Its two offsets are two records."""
    short = log()
    double = Log(*(np.append(getattr(short, n), getattr(short, n)[0]) for n in short.__slots__))
    expect_one(check_rows(double, rows(*GOOD_ROWS)), "1 rows missing", "'0:0'")
    assert check_rows(double, rows(*GOOD_ROWS, GOOD_ROWS[0])) == []


def test_a_file_that_is_listed_twice_is_found() -> None:
    """In two live entries of any manifests."""
    expect_one(check_files([*FILES, FILES[0]]), "1 files listed twice", "one")


def test_a_file_that_is_not_there_is_found() -> None:
    """The table names it, the store does not have it."""
    expect_one(check_files([FILES[0], ObservedFile("two", 20, None)]), "1 files not there", "two")


def test_a_file_of_another_size_is_found() -> None:
    """Truncated, or written again."""
    expect_one(check_files([FILES[0], ObservedFile("two", 20, 19)]), "of another size", "two")


def test_two_snapshots_of_one_round_are_found() -> None:
    """A commit was applied and sent again."""
    expect_one(
        check_commits([SNAPSHOTS[0], replace(SNAPSHOTS[0], sequence_number=2)]), "1 rounds", "a"
    )


def test_a_manifest_with_a_stale_number_is_found() -> None:
    """An attempt after a conflict kept the number of the attempt before it."""
    expect_one(
        check_sequence_numbers([SNAPSHOTS[0], ObservedSnapshot(2, "b", None, None, (2, 1))]), "[2]"
    )


@pytest.mark.parametrize("second", [{0: 9}, {}, {1: 30}])
def test_control_offsets_that_go_back_are_found(second: dict[int, int]) -> None:
    """A lower offset, or none."""
    history = [SNAPSHOTS[0], ObservedSnapshot(2), ObservedSnapshot(3, "c", second)]
    expect_one(check_control_offsets(history), "partition 0 goes from 10", "snapshot 3")


def test_a_new_control_partition_is_no_finding() -> None:
    """Partitions were added to the control topic."""
    assert check_control_offsets([SNAPSHOTS[0], ObservedSnapshot(2, "c", {0: 10, 1: 5})]) == []


def test_valid_through_that_goes_back_is_found() -> None:
    """Also over snapshots without one."""
    history = [SNAPSHOTS[0], ObservedSnapshot(2), ObservedSnapshot(3, "c", None, 1_009)]
    expect_one(check_valid_through(log(), rows(*GOOD_ROWS), history), "from 1010 to 1009")


def test_valid_through_over_a_later_row_is_found() -> None:
    """A record older than the VTTS comes with a later snapshot only."""
    late = rows((0, 0, 1), (0, 1, 2), (1, 0, 1), (0, 2, 2), (1, 1, 2))
    history = [replace(SNAPSHOTS[0], valid_through_ms=1_011), SNAPSHOTS[1]]
    expect_one(
        check_valid_through(log(), late, history), "VTTS 1011 of snapshot 1", "1 records", "'0:1'"
    )


def test_valid_through_over_a_missing_row_is_found() -> None:
    """A missing record makes every later VTTS wrong."""
    missing = rows(*GOOD_ROWS[1:])
    problems = check_valid_through(log(), missing, SNAPSHOTS)
    assert len(problems) == 2
    assert all("'0:0'" in text for text in problems)


def test_valid_through_may_share_its_millisecond() -> None:
    """Reading may stop between two records of one timestamp."""
    history = [replace(SNAPSHOTS[0], valid_through_ms=1_020), SNAPSHOTS[1]]
    assert check_valid_through(log(), rows(*GOOD_ROWS), history) == []


@pytest.mark.parametrize("at", [4, 6, None])
def test_source_offsets_short_of_the_end_are_found(at: int | None) -> None:
    """Before the end, past it, or none at all."""
    expect_one(
        check_source_offsets({0: 3, 1: at}, {0: 3, 1: 5}),
        f"partition 1 ends at 5, but the group committed {at}",
    )
    assert check_source_offsets({0: 3, 1: 5}, {0: 3, 1: 5}) == []


RANGES = (
    ObservedRange(0, 6, 5, 1, 1, 3),
    ObservedRange(6, 10, 3, 0, 0, 3),
)  # holes: 6 offsets, 5 records


def test_contiguous_announced_ranges_have_no_finding() -> None:
    """Also for a partition without records."""
    assert check_ranges({"a": RANGES}, {"a": 10, "b": 0}) == []


@pytest.mark.parametrize(
    ("ranges", "finding"),
    [
        (RANGES[1:], "[6, 10) announced at 0"),
        ((*RANGES, RANGES[1]), "[6, 10) announced at 10"),
        (RANGES[:1], "announced to 6, which ends at 10"),
        ((), "announced to 0, which ends at 10"),
    ],
    ids=["gap", "twice", "short", "never"],
)
def test_ranges_that_do_not_fit_are_found(ranges: Sequence[ObservedRange], finding: str) -> None:
    """A gap, an overlap, an end that was not reached."""
    assert any(finding in text for text in check_ranges({"a": ranges}, {"a": 10}))


def test_record_counts_that_add_up() -> None:
    """Eight records: six rows, a dead letter, one dropped."""
    assert check_record_counts(RANGES, records=8, rows=6, dead_letters=1, dropped=1) == []


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        ({"rows": 5}, "6 records reported written, 5 found"),
        ({"dead_letters": 0}, "1 records reported dead-lettered, 0 found"),
        ({"dead_letters": 2}, "1 records reported dead-lettered, 2 found"),
        ({"dropped": 0}, "1 records reported dropped, 0 found"),
        ({"records": 9}, "8 records reported read, 9 found"),
    ],
)
def test_record_counts_that_do_not_add_up_are_found(wrong: dict[str, int], finding: str) -> None:
    """A count differs from the announced count, and the sum differs from the source."""
    problems = check_record_counts(
        RANGES, **{"records": 8, "rows": 6, "dead_letters": 1, "dropped": 1, **wrong}
    )
    assert len(problems) == 2
    assert finding in problems[0]
    assert "dead letters +" in problems[1]


def test_no_progress_after_a_fault_is_found() -> None:
    """No new rows, and fewer rows."""
    assert check_progress([("a kill", 10, 11)]) == []
    expect_one(
        check_progress([("a kill", 10, 11), ("a freeze", 11, 11)]), "no progress after a freeze"
    )
    expect_one(check_progress([("a freeze", 11, 3)]), "11 rows, later 3")


def test_a_canary_is_found_and_not_repeated() -> None:
    """A secret is found in any text; the finding names the place, not the secret."""
    texts = {"log": b"key=canary-1 accepted", "metrics": b"fine"}
    problems = check_secrets(texts, ["canary-0", "canary-1"])
    expect_one(problems, "secret 1 is in log")
    assert "canary" not in problems[0]
    assert check_secrets(texts, ["canary-2"]) == []


def test_growth_is_found_and_variation_is_not() -> None:
    """A leak of one per step; a series that varies or warms up; too few values."""
    expect_one(check_no_growth("threads", range(100, 140), slack=3), "threads grows from")
    assert check_no_growth("threads", [50, 60, 70] + [80, 83, 79, 81] * 4, slack=3) == []
    expect_one(check_no_growth("threads", [1, 2, 3], slack=100), "too few")


def test_a_fault_that_did_not_happen_is_found() -> None:
    """A run without its faults proves nothing."""
    assert check_counts_at_least({"kills": 2}, {"kills": 2, "freezes": 1}) == []
    expect_one(
        check_counts_at_least({"kills": 2, "freezes": 1}, {"kills": 2}),
        "freezes happened 0 times of 1",
    )
