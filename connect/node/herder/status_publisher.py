"""What this node says in the status topic: of itself, and of what runs on it.

Rules of this file:
- Each status has one node that says it: a task's the node it is placed on, the connector's own the
  node of its coordinator; what has no place yet is the leader's to say.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from connect.node.herder.connector_status import (
    LocalConnector,
    ReportedConnector,
    displayed_status,
    stored,
)
from connect.node.herder.units import Run
from connect.node.herder_api import ReportedStatus
from connect.state.config_store import ConfigStore
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore


class StatusPublisher:
    """This node's words.

    Args:
        store: what is wanted.
        statuses: where it is told.
        word: of this node, so far.
    """

    def __init__(self, store: ConfigStore, statuses: StatusStore, word: NodeStatus) -> None:
        self._store = store
        self._statuses = statuses
        self._word = word

    def node(
        self, children: Collection[str] | None = None, *, count: int = 0, is_draining: bool = False
    ) -> None:
        """Say how this node is.

        Args:
            children: those that take work, when that has changed.
            count: how many children there are.
            is_draining: it is about to end.
        """
        if children is not None:
            is_ready = self._word.is_ready or len(children) == count
            self._word = replace(self._word, children=tuple(children), is_ready=is_ready)
        if is_draining:
            self._word = replace(self._word, is_draining=True)
        self._statuses.put_node(self._word)

    def missing_topic(self) -> None:
        """Say that a task here misses a topic; the leader looks."""
        self._word = replace(self._word, misses=self._word.misses + 1)
        self._statuses.put_node(self._word)

    def status(self, name: str, run: Run | None) -> ReportedStatus:
        """The connector's status as of now."""
        reported = ReportedConnector(
            self._statuses.connector(name),
            self._statuses.tasks(name),
            self._statuses.problem(name),
        )
        here = LocalConnector(self._word.worker_id, has_worker="worker" in self._word.children)
        return displayed_status(self._store.get(name), run, reported, here)

    def publish(self, run: Run, *, is_leading: bool) -> None:
        """Say how the connector is, as far as that is this node's to say."""
        name, state = run.name, self._store.get(run.name)
        if state.config is None:
            return
        me = self._word.worker_id
        displayed = self.status(name, run)
        reported = partial(
            stored,
            generation=state.layout.number if state.layout is not None else 0,
            version=self._word.version,
        )
        if displayed.worker_id == me and (is_leading or state.places is not None):
            self._statuses.put_connector(name, reported(displayed))
        own = {task.id: reported(task) for task in displayed.tasks if task.worker_id == me}
        self._statuses.put_tasks(name, own)
        if is_leading:
            self._statuses.forget_tasks(name, above=len(displayed.tasks))

    def forget(self, name: str) -> None:
        """The connector is deleted; said by the leader."""
        self._statuses.put_connector(name, None)
        self._statuses.put_problem(name, None)
        self._statuses.forget_tasks(name)
        self._statuses.forget_topics(name)
