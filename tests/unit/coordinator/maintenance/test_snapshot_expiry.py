"""Which snapshots are due, by Iceberg's rules and by what sinks need."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import SnapshotExpiryConfig
from connect.protocol.maintenance_tag import AGE_MS_MAX, tag_name
from coordinator.maintenance.snapshot_expiry import ExpiryPolicy, due
from tests.support.snapshot_metadata import NOW_MS, branch, line, metadata, tag

SINK = "kafka.connect.offsets.control.connect-a"


def ids(table: TableMetadata, policy: ExpiryPolicy, **more: Any) -> tuple[int, ...]:
    """What a commit to main may remove now."""
    return due(table, policy, **{"branch": "main", "now_ms": NOW_MS, **more})


@pytest.mark.parametrize(
    ("policy", "removed"),
    [
        (ExpiryPolicy(batch=1, max_age_ms=250), (1, 2, 3, 4, 5, 6, 7)),
        (ExpiryPolicy(batch=1, max_age_ms=250, min_kept=6), (1, 2, 3, 4, 5)),
        (ExpiryPolicy(batch=1, max_age_ms=10_000), ()),
        (ExpiryPolicy(batch=1, max_age_ms=0, min_kept=1), (1, 2, 3, 4, 5, 6, 7, 8, 9)),
        (ExpiryPolicy(max_age_ms=250, batch=7), (1, 2, 3, 4, 5, 6, 7)),
        (ExpiryPolicy(max_age_ms=250, batch=8), ()),
    ],
)
def test_a_branch_keeps_snapshots_by_age_and_count(
    policy: ExpiryPolicy, removed: tuple[int, ...]
) -> None:
    """The new snapshot counts; fewer than a batch of expired snapshots wait."""
    assert ids(metadata(line(10), {"main": branch(10)}), policy) == removed


def test_the_retention_of_a_branch_replaces_the_policy() -> None:
    """``min-snapshots-to-keep`` and ``max-snapshot-age-ms`` of the reference apply."""
    policy = ExpiryPolicy(batch=1, max_age_ms=0)
    properties = branch(10, **{"min-snapshots-to-keep": 5})
    assert ids(metadata(line(10), {"main": properties}), policy) == (1, 2, 3, 4, 5, 6)
    properties = branch(10, **{"max-snapshot-age-ms": 10_000})
    assert ids(metadata(line(10), {"main": properties}), policy) == ()


def test_references_keep_their_snapshots() -> None:
    """A tag keeps one snapshot, another branch keeps its ancestry; a moved tag keeps none."""
    policy = ExpiryPolicy(batch=1, max_age_ms=0)
    table = metadata(line(10), {"main": branch(10), "t": tag(3), "mine": tag(9)})
    assert ids(table, policy) == (1, 2, 4, 5, 6, 7, 8)
    assert ids(table, policy, moved_tag="mine") == (1, 2, 4, 5, 6, 7, 8, 9)
    other = metadata(line(10), {"main": branch(10), "b": branch(4, **{"min-snapshots-to-keep": 2})})
    assert ids(other, policy) == (1, 2, 5, 6, 7, 8, 9)


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [(0, (1, 2)), (AGE_MS_MAX - 1, (1, 2)), (AGE_MS_MAX, (1, 2, 4, 5, 6))],
)
def test_maintenance_keeps_what_follows_the_snapshot_that_it_reads(
    age_ms: int, expected: tuple[int, ...]
) -> None:
    """Until its tag is old: the process was killed, and the tag keeps only its own snapshot."""
    refs = {"main": branch(6), tag_name("a-1", NOW_MS + 1): tag(3)}
    policy = ExpiryPolicy(0, 1, batch=1)
    assert ids(metadata(line(6), refs), policy, now_ms=NOW_MS + 1 + age_ms) == expected


def test_the_newest_offsets_of_each_sink_are_kept() -> None:
    """The Java sink has no tag: its floor is in the newest snapshot that carries its offsets."""
    snapshots = line(10)
    for place in (2, 4):
        snapshots[place]["summary"] = {SINK: '{"0":5}'}
    snapshots[6]["summary"] = {SINK + "b": '{"0":9}'}
    table = metadata(snapshots, {"main": branch(10)})
    assert ids(table, ExpiryPolicy(batch=1, max_age_ms=0)) == (1, 2, 3, 4, 6, 8, 9)


def test_an_abandoned_snapshot_is_kept_until_it_is_old() -> None:
    """After a rollback, snapshots without a reference are kept until the maximum age."""
    table = metadata(line(10), {"main": branch(5)})
    assert ids(table, ExpiryPolicy(batch=1, max_age_ms=250, min_kept=10)) == (6, 7)


def test_snapshots_of_uncertain_attempts_are_kept() -> None:
    """An attempt with an unknown outcome is found by its snapshot id."""
    table = metadata(line(5), {"main": branch(5)})
    assert ids(table, ExpiryPolicy(batch=1, max_age_ms=0), kept={2, 99}) == (1, 3, 4)
    assert ids(table, ExpiryPolicy(batch=1, max_age_ms=0), kept_since_ms=NOW_MS - 200) == (1, 2)


def test_main_keeps_its_newest_snapshot_when_a_branch_is_created() -> None:
    """Nothing is added to main."""
    table = metadata(line(5), {"main": branch(5)})
    assert ids(table, ExpiryPolicy(batch=1, max_age_ms=0), branch="new") == (1, 2, 3, 4)


def test_a_cycle_of_parents_is_followed_once() -> None:
    """Parents that lead in a circle are followed once."""
    snapshots = line(3)
    snapshots[0]["parent"] = 3
    assert ids(metadata(snapshots, {"main": branch(3)}), ExpiryPolicy(batch=1, max_age_ms=0)) == (
        1,
        2,
    )


def test_the_first_commit_of_a_table_expires_nothing() -> None:
    """The first commit of a table removes nothing."""
    assert ids(metadata([], {}), ExpiryPolicy(batch=1, max_age_ms=0)) == ()


@pytest.mark.parametrize(
    ("properties", "age_ms", "kept"),
    [
        ({}, 7, 3),
        ({"history.expire.max-snapshot-age-ms": "9"}, 9, 3),
        ({"history.expire.min-snapshots-to-keep": "5"}, 7, 5),
        ({"history.expire.min-snapshots-to-keep": "0"}, 7, 1),
        ({"history.expire.max-snapshot-age-ms": "soon"}, 7, 3),
        ({"history.expire.max-snapshot-age-ms": "-1"}, 7, 3),
    ],
)
def test_table_properties_replace_the_keys_of_the_connector(
    properties: dict[str, str], age_ms: int, kept: int
) -> None:
    """A property that is not a number has no effect."""
    policy = ExpiryPolicy.of(SnapshotExpiryConfig(7, 3), properties)
    assert (policy.max_age_ms, policy.min_kept) == (age_ms, kept)


def test_without_keys_and_properties_the_defaults_of_iceberg_apply() -> None:
    """Five days, one snapshot."""
    assert ExpiryPolicy.of(SnapshotExpiryConfig(), {}) == ExpiryPolicy(432_000_000, 1)


def test_one_commit_expires_a_bounded_number_of_snapshots() -> None:
    """The next commits expire the rest."""
    table = metadata(line(1_200), {"main": branch(1_200)})
    assert ids(table, ExpiryPolicy(max_age_ms=0)) == tuple(range(1, 501))
