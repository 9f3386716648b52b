"""Announcements that come again, or name tables of others: no row twice, no foreign table."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from control_schemas.events import ContentFile
from coordinator.commit.committer import Committer
from coordinator.commit.held_files import COMMITTED_MAX, HeldFiles, created_ms
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.places import Place, paths_of
from tests.support.tables import QuickClock, announced, reference, table_commit


def _commit(committer: Committer, place: Place, files: list[ContentFile], offset: int) -> object:
    event = announced(reference(place.table), files, offset=offset)
    return committer.commit(table_commit([event]))


def _held(committer: Committer, place: Place) -> HeldFiles:
    return committer._memories[place.table.name()].held_files


def test_a_repeated_announcement_commits_no_file_twice(place: Place) -> None:
    """Also if another connector sends it."""
    committer, files = place.committer(), place.files(2)
    assert isinstance(_commit(committer, place, files, 0), TableCommitted)
    other = Place(place.catalog, place.table, "d")
    for number, again in enumerate((committer, place.committer(), other.committer()), 1):
        outcome = _commit(again, place, files, number * 10)
        assert outcome == TableCommitted(outcome.table, outcome.commit_id, None)
    more = [*files, *place.files(1)]
    outcome = _commit(other.committer(), place, more, 90)
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    assert len(paths_of(place.now())) == len(set(paths_of(place.now()))) == 3


def test_files_without_a_time_in_their_name_are_committed_once(place: Place) -> None:
    """Files of the Java sink; the whole table is searched."""
    files = [
        replace(f, file_path=f"{place.table.location()}/data/00001-7-{uuid4()}-00001.parquet")
        for f in place.files(2)
    ]
    assert isinstance(_commit(place.committer(), place, files, 0), TableCommitted)
    committer = place.committer()
    assert isinstance(_commit(committer, place, place.files(1), 1), TableCommitted)
    outcome = _commit(committer, place, files, 9)
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None


def test_merged_manifests_are_searched(place: Place) -> None:
    """A file that was committed long ago is found in a merged manifest."""
    place.change(
        SetPropertiesUpdate(updates={"commit.manifest.min-count-to-merge": "2"}),
    )
    committer, files = place.committer(), place.files(1)
    assert isinstance(_commit(committer, place, files, 0), TableCommitted)
    for offset in range(1, 5):
        assert isinstance(_commit(committer, place, place.files(1), offset), TableCommitted)
    outcome = _commit(place.committer(), place, files, 9)
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert len(paths_of(place.now())) == 5


def test_new_files_cost_no_reads(place: Place) -> None:
    """A coordinator that is alone at its table reads no manifest for them."""
    committer = place.committer()
    for offset in range(5):
        assert isinstance(_commit(committer, place, place.files(2), offset), TableCommitted)
    assert not _held(committer, place)._read
    other = Place(place.catalog, place.table, "d").committer()
    assert isinstance(_commit(other, place, place.files(1), 0), TableCommitted)
    assert isinstance(_commit(committer, place, place.files(2), 9), TableCommitted)
    assert len(_held(committer, place)._read) == 1  # the other's manifest, once


def test_the_list_of_committed_files_is_bounded() -> None:
    """Only the newest commits are kept; older ones are read from the table."""
    held = HeldFiles(since_ms=0)
    for round_number in range(1, 4):
        held.committed((f"{round_number}-{n}" for n in range(COMMITTED_MAX // 2)), 1, round_number)
    assert len(held._committed) == COMMITTED_MAX
    assert held.since_ms == 1


def test_a_table_of_others_is_not_written(place: Place) -> None:
    """Events for a table that the connector neither writes to nor wrote to are kept."""
    stranger = place.committer(settings={"iceberg__tables": "db.other"})
    outcome = _commit(stranger, place, place.files(1), 0)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("table_not_configured", False)
    assert place.now().current_snapshot() is None


def test_a_removed_table_gets_its_announced_files(place: Place) -> None:
    """A table that the connector wrote to, after its removal from the configuration."""
    assert isinstance(_commit(place.committer(), place, place.files(1), 0), TableCommitted)
    without = place.committer(settings={"iceberg__tables": "db.other"})
    assert isinstance(_commit(without, place, place.files(1), 1), TableCommitted)
    assert len(paths_of(place.now())) == 2


@pytest.mark.parametrize(
    ("name", "is_timed"),
    [
        ("0192f3c1-7b1e-7abc-8def-0123456789ab-00017.parquet", True),
        ("0192f3c1-7b1e-7abc-8def-0123456789ab.parquet", True),
        ("0192f3c1-7b1e-4abc-8def-0123456789ab-00017.parquet", False),
        ("00000-1-0192f3c1-7b1e-7abc-8def-0123456789ab-00001.parquet", False),
        ("0192f3c1-7b1e-7abc-8def-0123456789ab/00017.parquet", False),
    ],
)
def test_a_file_name_contains_its_creation_time(name: str, *, is_timed: bool) -> None:
    """Only names of workers; those of the Java sink do not."""
    assert created_ms(f"s3://b/t/data/{name}") == (0x0192F3C17B1E if is_timed else None)


def test_the_time_in_a_file_name_is_that_of_the_clock() -> None:
    """In milliseconds."""
    clock = QuickClock()
    before = clock.now_ms()
    made = clock.new_timed_uuid()
    assert made.version == 7
    assert before <= created_ms(f"x/{made}-00001.parquet") <= clock.now_ms()
