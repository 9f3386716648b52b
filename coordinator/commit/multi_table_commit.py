"""Commits the tables of a round: each alone, or all of them in one request to the catalog.

Rules of this file:
- All tables are sent in one request only if the operator configures it, because the catalog must
  be atomic. The answer decides about no table: each table is read afterwards, and committed alone
  if it lacks its snapshot.
- A table that cannot be loaded or written is not part of the request. A table that failed after
  such a request is committed alone until that succeeds. So no table delays the others forever.
- If the catalog throttles (429), the same request is repeated later. When the bound is reached, the
  tables wait for the next round: one request per table would be more load.
- A table is in a request only once: a catalog may lose the second change.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import structlog

from connect import failpoints
from connect.errors import CommitError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, TableChange
from coordinator.commit.commit_retries import ThrottleBackoff
from coordinator.commit.iceberg.committer import Committer, ReadyCommit
from coordinator.commit.rules.commit_rules import TableCommitter, guarded
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted, TableFailed

log = structlog.get_logger("coordinator")
S = TypeVar("S")
T = TypeVar("T")
Prepared = tuple[ReadyCommit, TableChange]


class RoundCommitter:
    """Commits in threads; outcomes are taken from ``outcomes`` by the thread that asked.

    Args:
        committer: commits one table.
        joint: commits several tables in one request; None commits each alone.
        threads: tables worked on at the same time.
        name: of the connector, for the threads.
    """

    def __init__(
        self,
        committer: TableCommitter,
        joint: JointCommitter | None,
        *,
        threads: int,
        name: str,
    ) -> None:
        self._committer = committer
        self._joint = joint
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"commit-{name}")
        # waits for those of the pool, so it cannot be one of them
        self._rounds = ThreadPoolExecutor(1, thread_name_prefix=f"round-{name}")
        self._ended: queue.SimpleQueue[Future[list[CommitOutcome]]] = queue.SimpleQueue()

    def start(self, commits: Sequence[TableCommit]) -> None:
        """Begin to commit these tables; returns at once."""
        joint = self._joint
        if joint is not None and joint.is_atomic and len(commits) > 1:
            self._note(self._rounds.submit(joint.commit_together, commits, self._pool))
        else:
            for commit in commits:
                self._note(self._pool.submit(self._commit_alone, commit))

    def outcomes(self) -> Iterator[CommitOutcome]:
        """What ended since the last call.

        Raises:
            Exception: what no outcome stands for: a bug.
        """
        while not self._ended.empty():
            yield from self._ended.get().result()

    def close(self) -> None:
        """End when no commit that was started can still be applied.

        The next session would take a later commit for one of another coordinator. The time limits
        of the requests bound the wait.
        """
        self._pool.shutdown(wait=True, cancel_futures=True)  # of a round for all, too
        self._rounds.shutdown(wait=True, cancel_futures=True)
        self._committer.close()

    def _commit_alone(self, commit: TableCommit) -> list[CommitOutcome]:
        return [self._committer.commit(commit)]

    def _note(self, future: Future[list[CommitOutcome]]) -> None:
        future.add_done_callback(self._ended.put)


class JointCommitter:
    """Commits Iceberg tables in one request to their catalog.

    Args:
        committer: commits one table.
        catalog: where the tables are.

    Attributes:
        is_atomic: False once the catalog does not offer it.
    """

    def __init__(self, committer: Committer, catalog: CatalogGateway) -> None:
        self._committer = committer
        self._catalog = catalog
        self.is_atomic = True
        self._alone: set[tuple[str, ...]] = set()

    def commit_together(
        self, commits: Sequence[TableCommit], pool: ThreadPoolExecutor
    ) -> list[CommitOutcome]:
        """Commit several tables in one request, and alone what that does not bring in.

        Args:
            commits: one per table.
            pool: works on several tables at a time.
        """

        def each(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
            return list(pool.map(work, items))

        with contextlib.ExitStack() as locks:
            for commit in sorted(commits, key=lambda c: c.table.identifier):
                locks.enter_context(self._committer.lock(commit))
            ready = each(self._prepare, commits)
            outcomes = [b for b in ready if not isinstance(b, tuple)]
            joint, single = self._chosen([b for b in ready if isinstance(b, tuple)])
            if joint:
                answer = self._send([change for _, change in joint])
                settled = each(lambda p: self._settle(p[0], answer), joint)
                failed = {o.table.identifier for o in settled if isinstance(o, TableFailed)}
                if len(failed) < len(joint):  # else it was none of the tables
                    self._alone |= failed
                outcomes += settled
            outcomes += each(lambda p: self._commit_single(p[0]), single)
            self._alone -= {o.table.identifier for o in outcomes if isinstance(o, TableCommitted)}
        return outcomes

    def _chosen(self, ready: Sequence[Prepared]) -> tuple[list[Prepared], list[Prepared]]:
        """Those that go in one request, and those that go alone."""
        joint: list[Prepared] = []
        single: list[Prepared] = []
        table_uuids = set()
        for prepared in ready:
            uuid = prepared[1].table.metadata.table_uuid
            is_alone = prepared[0].commit.table.identifier in self._alone or uuid in table_uuids
            table_uuids.add(uuid)
            (single if is_alone else joint).append(prepared)
        return (joint, single) if len(joint) > 1 else ([], [*joint, *single])

    def _send(self, changes: Sequence[TableChange]) -> CommitError | RetriableError | None:
        throttle = ThrottleBackoff(self._committer.clock)
        while (error := self._sent(changes)) is not None and throttle.wait(error):
            pass
        return error

    def _sent(self, changes: Sequence[TableChange]) -> CommitError | RetriableError | None:
        try:
            failpoints.hit_in_flight("C10")
            self._catalog.commit_together(changes)
            failpoints.hit("C11")
        except (CommitError, RetriableError) as error:
            if error.code == "multi_table_unsupported":
                self.is_atomic = False
            log.warning(
                "tables not committed in one request; each is read and committed alone",
                tables=len(changes),
                code=error.code,
                error=str(error),
            )
            return error
        return None

    def _prepare(self, commit: TableCommit) -> Prepared | CommitOutcome:
        def prepared() -> Prepared | CommitOutcome:
            ready = self._committer.begin(commit)
            if not isinstance(ready, ReadyCommit):
                return ready
            try:
                return ready, ready.attempts.prepare(ready.table, ready.state)
            except BaseException:
                ready.delete_copies()
                raise

        return guarded(commit, prepared)

    def _settle(
        self, ready: ReadyCommit, answer: CommitError | RetriableError | None
    ) -> CommitOutcome:
        return guarded(ready.commit, lambda: self._committer.settle(ready, answer))

    def _commit_single(self, ready: ReadyCommit) -> CommitOutcome:
        return guarded(ready.commit, lambda: self._committer.commit_alone(ready))
