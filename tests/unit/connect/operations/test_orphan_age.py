"""From which age on a file that no table knows may be removed."""

from __future__ import annotations

from connect.operations.orphan_age import (
    AGE_MS_MIN,
    MARGIN_MS,
    OrphanAgeReport,
    age_of,
    oldest_of,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def test_without_waiting_announcements_the_default_age_is_safe() -> None:
    """Batches that are not announced are younger."""
    assert age_of(None, now_ms=NOW_MS) == OrphanAgeReport(None, AGE_MS_MIN)


def test_the_age_is_above_that_of_waiting_announcements() -> None:
    """Their files are in no table, and older than the announcement by a batch."""
    for days in (0, 1, 2, 5, 400):
        age = age_of(NOW_MS - days * DAY_MS, now_ms=NOW_MS)
        assert age.safe_age_ms == max(AGE_MS_MIN, days * DAY_MS + MARGIN_MS)


def test_an_announcement_without_a_time_allows_no_age() -> None:
    """For example in the old format."""
    assert age_of(0, now_ms=NOW_MS) == OrphanAgeReport(0, None)


def test_an_announcement_from_the_future_has_age_zero() -> None:
    """The writer's clock may be ahead of the node's."""
    assert age_of(NOW_MS + DAY_MS, now_ms=NOW_MS).safe_age_ms == AGE_MS_MIN


def test_the_oldest_announcement_of_all_writers_of_a_table_counts() -> None:
    """One whose time is not known allows no age."""
    reports = [age_of(at, now_ms=NOW_MS) for at in (None, NOW_MS - 9 * DAY_MS, NOW_MS)]
    assert oldest_of(reports, now_ms=NOW_MS) == reports[1]
    assert oldest_of([*reports, OrphanAgeReport(0, None)], now_ms=NOW_MS).safe_age_ms is None
    assert oldest_of([reports[0]], now_ms=NOW_MS) == reports[0]
