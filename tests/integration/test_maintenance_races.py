"""Maintenance of tables that others commit to at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from connect.protocol.snapshot_ancestry import ancestry, summary
from coordinator.maintenance.snapshot_expiry import BATCH as EXPIRED_AT_ONCE
from tests.support.faulty_http import FaultyProxy
from tests.support.maintained_table import (
    ALL_BYTES,
    KEYS,
    MAINTAINED,
    MaintainedTable,
    maintained_tables,
)
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import RestCatalog
from tests.support.tables import QuickClock
from tests.support.task_harness import wait_until
from worker.maintenance.table_actions import RETRIES, SUMMARY_PROPERTY
from worker.spark.session import Session

pytestmark = [*SPARK_MARKS, pytest.mark.java]
LOST = 6
"""Attempts to commit that the stream precedes: Iceberg's default is four more than the first."""
ONE_KEPT = {**MAINTAINED, "iceberg__maintenance__expire_snapshots__min_snapshots_to_keep": "1"}


@pytest.fixture
def make(
    rest_catalog: RestCatalog, spark_session: Session
) -> Iterator[Callable[..., MaintainedTable]]:
    """Makes a table in the Java REST catalog."""
    with maintained_tables(rest_catalog, spark_session) as made:
        yield made


@pytest.fixture
def raced(
    rest_catalog: RestCatalog, spark_session: Session
) -> Iterator[tuple[MaintainedTable, FaultyProxy]]:
    """A table whose maintenance reaches the catalog through a proxy, which the stream does not."""
    proxy = FaultyProxy(rest_catalog.uri)
    with maintained_tables(rest_catalog, spark_session, java_uri=proxy.uri) as made:
        yield made(), proxy
    proxy.close()


@pytest.mark.parametrize("is_kept", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_the_history_that_a_rewrite_needs_does_not_expire(
    make: Callable[..., MaintainedTable], *, is_kept: bool
) -> None:
    """The coordinator commits and expires meanwhile. Without the tag the work is lost."""
    table = make()
    table.commit(*((key, "first") for key in range(KEYS)))
    table.commit((1, "second"), is_upsert=True)
    table.committer = table.new_committer(**ONE_KEPT)
    actions = table.actions()

    def work() -> int:
        for turn in range(2 * EXPIRED_AT_ONCE):
            table.commit((2, f"turn {turn}"), is_upsert=True)
        return actions._rewrite(ALL_BYTES, {"delete-file-threshold": "1"}).rewritten_files

    if is_kept:
        with actions.history_kept("c", QuickClock().now_ms()):
            assert work() > 0
            assert len(table.reloaded().metadata.snapshots) > 2 * EXPIRED_AT_ONCE
    else:
        with pytest.raises(Py4JJavaError, match="Failed to open input stream"):
            work()
    last = f"turn {2 * EXPIRED_AT_ONCE - 1}"
    assert table.rows() == [(0, "first"), (1, "second"), (2, last), (3, "first")]
    assert not [name for name in table.reloaded().metadata.refs if "maintenance" in name]
    table.commit((2, "after"), is_upsert=True)
    table.committer.close()
    assert len(table.reloaded().metadata.snapshots) <= EXPIRED_AT_ONCE


def test_the_tag_of_a_killed_run_is_removed_by_the_next(
    make: Callable[..., MaintainedTable],
) -> None:
    """Only that of the same connector; another one may be under way."""
    table = make()
    table.commit((1, "x"))
    now = table.reloaded().current_snapshot()
    assert now is not None
    with table.reloaded().manage_snapshots() as change:
        for name in ("icefloe_maintenance-c-1", "icefloe_maintenance-c-2-3"):
            change.create_tag(now.snapshot_id, name)
    with table.actions().history_kept("c", 7):
        held = {name for name in table.reloaded().metadata.refs if "maintenance" in name}
        assert held == {"icefloe_maintenance-c-7", "icefloe_maintenance-c-2-3"}
    assert "icefloe_maintenance-c-7" not in table.reloaded().metadata.refs


class _Raced:
    """A table of the JVM that another commit changes during the next changes of its tags.

    Args:
        table: the table.
        others: the commits.
    """

    def __init__(self, table: Any, others: list[Callable[[], object]]) -> None:
        self._table = table
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def manageSnapshots(self) -> Any:  # noqa: N802 - Iceberg's name
        """Begin a change; the other commit comes before its end."""
        change = self._table.manageSnapshots()
        if self._others:
            self._others.pop()()
        return change


def test_tags_are_set_and_removed_between_other_commits(
    make: Callable[..., MaintainedTable],
) -> None:
    """A commit that comes first costs neither the work nor leaves the tag."""
    table = make()
    table.commit((1, "x"))
    actions = table.actions()
    others: list[Callable[[], object]] = []
    actions._table = _Raced(actions._table, others)
    others.extend(lambda n=n: table.commit((n, "y")) for n in (2, 3))
    with actions.history_kept("c", 7):
        assert not others
        assert "icefloe_maintenance-c-7" in table.reloaded().metadata.refs
        others.append(lambda: table.commit((4, "y")))
    assert not others
    assert "icefloe_maintenance-c-7" not in table.reloaded().metadata.refs


@pytest.mark.parametrize(
    "is_upsert",
    [
        pytest.param(True, id="upserts"),
        pytest.param(False, id="appends", marks=pytest.mark.matrix),
    ],
)
def test_a_rewrite_is_committed_although_the_stream_commits_first_again_and_again(
    raced: tuple[MaintainedTable, FaultyProxy], *, is_upsert: bool
) -> None:
    """Every attempt meets a commit, more often than Iceberg repeats one by default."""
    table, proxy = raced
    for turn in range(2):
        table.commit(*((key, f"turn {turn}") for key in range(KEYS)), is_upsert=True)
    left = list(range(LOST))

    def commit_first() -> None:
        if left:
            table.commit((100 + left.pop(), "stream"), is_upsert=is_upsert)

    actions = table.actions()
    with actions.history_kept("c", 7):
        proxy.before_commit.append(commit_first)
        before = proxy.commits
        done = actions._rewrite(ALL_BYTES, {"delete-file-threshold": "1"} if is_upsert else {})
        attempts = proxy.commits - before
    assert (done.rewritten_files, done.lost_commits) == (2 * KEYS, 0)
    assert not left
    assert attempts == LOST + 1
    made = [summary(s) for s in ancestry(table.reloaded().metadata, "main")]
    is_of_maintenance = [SUMMARY_PROPERTY in properties for properties in made]
    assert is_of_maintenance == [True, *(False for _ in range(LOST + 2))]
    stream = [(100 + n, "stream") for n in range(LOST)]
    assert table.rows() == [*((key, "turn 1") for key in range(KEYS)), *stream]


def test_how_often_a_commit_is_repeated_is_the_operators_choice(
    make: Callable[..., MaintainedTable],
) -> None:
    """Properties are set once, and only in a table that has none of them."""
    table, chosen = make(), make()
    with chosen.reloaded().transaction() as change:
        change.set_properties({"commit.retry.max-wait-ms": "7"})
    for one in (table, chosen):
        one.commit((1, "x"))
        with one.actions().history_kept("c", 7):
            pass
    assert RETRIES.items() <= table.reloaded().properties.items()
    kept = {k: v for k, v in chosen.reloaded().properties.items() if k in RETRIES}
    assert kept == {"commit.retry.max-wait-ms": "7"}


@pytest.mark.parametrize("is_whole", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_no_snapshot_expires_while_orphan_files_are_removed(
    make: Callable[..., MaintainedTable], *, is_whole: bool
) -> None:
    """It reads all manifests of all snapshots. A tag on the newest snapshot keeps later ones."""
    table = make()
    for key in range(EXPIRED_AT_ONCE + 1):
        table.commit((key, "x"))
    table.committer = table.new_committer(**ONE_KEPT)
    oldest = table.reloaded().metadata.snapshots[0]
    actions = table.actions()
    with actions.history_kept("c", QuickClock().now_ms(), is_whole=is_whole):
        table.commit((98, "meanwhile"))
        table.commit((99, "meanwhile"))
        if is_whole:
            assert actions.remove_orphan_files(1).orphan_files == 0
            kept = [s.snapshot_id for s in table.reloaded().metadata.snapshots]
            assert oldest.snapshot_id in kept
        else:
            io = table.reloaded().io
            wait_until(lambda: not io.new_input(oldest.manifest_list).exists())
            with pytest.raises(Py4JJavaError, match=r"not exist|open input stream"):
                actions.remove_orphan_files(1)
    table.committer.close()
