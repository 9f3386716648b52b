"""The status topic: statuses of connectors, tasks and nodes.

Rules of this file:
- Memory holds what the topic's records add up to (``status_state``), and this node's statuses
  before they are written.
- A status of this node is newer than every value read for its key, until it is read back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from connect.clock import Clock
from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.redaction.secret_values import KNOWN
from connect.state import topic_records
from connect.state.compacted_topic import CLOSE_TIMEOUT_S
from connect.state.config_store import StoreSettings
from connect.state.file_log import STATUS_FILE
from connect.state.status_state import NodeStatus, Running, Status, StatusState

_log = logger("store")


class StatusStore:
    """Statuses of connectors, tasks and nodes. Thread-safe.

    A status is visible on this node at once. A separate thread writes it, the newest value of each
    key only, so an unreachable broker delays no decision.

    Args:
        settings: topics and clients.
    """

    def __init__(self, settings: StoreSettings, admin: KafkaAdmin, clock: Clock) -> None:
        self._state = StatusState()
        self._changed = threading.Condition()
        self._waiting: dict[str, bytes | None] = {}
        self._own: dict[str, bytes | None] = {}
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._topic = settings.open_log(
            settings.status_topic,
            STATUS_FILE,
            admin=admin,
            transactional_id=f"{settings.group_id}-status-{settings.worker_id}",
            on_record=self._apply,
            clock=clock,
        )

    def start(self) -> None:
        """Create or check the topic, read it to its end, and start the writing thread.

        Raises:
            ConfigError: the topic cannot be used.
            RetriableError: the broker cannot be reached.
        """
        self._topic.start()
        self._thread = threading.Thread(target=self._write_behind, name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the pending statuses, if the broker can be reached, then stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        self._topic.close()

    # ------------------------------------------------------------ connectors and tasks

    def connector(self, name: str) -> Status | None:
        """Return the connector's status."""
        with self._changed:
            return self._state.connector(name)

    def tasks(self, name: str) -> dict[int, Status]:
        """Return the status by task id."""
        with self._changed:
            return self._state.tasks(name)

    def failed_tasks(self, name: str) -> frozenset[int]:
        """Return the tasks with FAILED as their last state."""
        return frozenset(t for t, status in self.tasks(name).items() if status.state == "FAILED")

    def topics(self, name: str) -> frozenset[str]:
        """Return the topics from which the connector has read since the last reset."""
        with self._changed:
            return self._state.topics(name)

    def problem(self, name: str) -> str | None:
        """Return why the leader cannot lay the connector out; None when it can."""
        with self._changed:
            return self._state.problem(name)

    def put_connector(self, name: str, status: Status | None) -> None:
        """Set the connector's status if it differs; None removes it."""
        if self.connector(name) != status:
            self._put(topic_records.STATUS_CONNECTOR + name, status)

    def put_tasks(self, name: str, tasks: Mapping[int, Status]) -> None:
        """Set the statuses of these tasks where they differ."""
        reported = self.tasks(name)
        for task, status in tasks.items():
            if reported.get(task) != status:
                self._put(f"{topic_records.STATUS_TASK}{name}-{task}", status)

    def forget_tasks(self, name: str, *, above: int = 0) -> None:
        """Remove the statuses of tasks with this id and higher ones."""
        for task in self.tasks(name):
            if task >= above:
                self._put(f"{topic_records.STATUS_TASK}{name}-{task}", None)

    def put_problem(self, name: str, trace: str | None) -> None:
        """Set why a connector cannot be laid out; None when it can."""
        trace = trace and KNOWN.mask(trace)
        if self.problem(name) != trace:
            key = topic_records.PROBLEM + name
            self._put_json(key, None if trace is None else {"trace": trace})

    def put_topic(self, name: str, topic: str, *, task: int, now_ms: int) -> None:
        """Add a topic to the connector's active topics."""
        self._put_json(*topic_records.topic_record(name, topic, task=task, now_ms=now_ms))

    def forget_topics(self, name: str) -> None:
        """Remove all active topics of the connector."""
        for topic in self.topics(name):
            self._put_json(f"{topic_records.STATUS_TOPIC}{topic}:connector-{name}", None)

    # ------------------------------------------------------------ nodes

    def nodes(self) -> dict[str, NodeStatus]:
        """Return the last status by node id; such a node may have left since."""
        with self._changed:
            return self._state.nodes()

    def running(self, name: str) -> dict[str, Running]:
        """Return the units of the connector that each node last reported, by node id."""
        with self._changed:
            return self._state.running(name)

    def put_node(self, status: NodeStatus) -> None:
        """Set the status of a node if it differs."""
        if self.nodes().get(status.worker_id) != status:
            self._put_json(topic_records.NODE + status.worker_id, status.to_json())

    def put_running(self, node: str, name: str, running: Running | None) -> None:
        """Set which units of a connector a node runs; None when it runs none."""
        if self.running(name).get(node) != running:
            key = topic_records.running_key(node, name)
            self._put_json(key, None if running is None else running.to_json())

    def forget_node(self, node: str) -> None:
        """Remove everything that a node reported; it has left the cluster."""
        with self._changed:
            names = self._state.ran_by(node)
        for name in names:
            self.put_running(node, name, None)
        if node in self.nodes():
            self._put_json(topic_records.NODE + node, None)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition on the statuses holds; return whether it did in time."""
        with self._changed:  # its lock is reentrant: the condition reads this store
            return self._changed.wait_for(condition, timeout_s)

    # ------------------------------------------------------------ common

    def _put(self, key: str, status: Status | None) -> None:
        self._put_json(key, None if status is None else status.to_json())

    def _put_json(self, key: str, value: Mapping[str, object] | None) -> None:
        with self._changed:
            self._state.apply(key, value)
            self._own[key] = self._waiting[key] = topic_records.encode(value)
            self._changed.notify_all()

    def _write_behind(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
                if not batch:
                    return
            try:
                self._topic.write(list(batch.items()))
            except IcefloeError as e:
                _log.warning("statuses not written", error=str(e), count=len(batch))
                with self._changed:
                    if self._is_closing or not isinstance(e, RetriableError):
                        for key in batch.keys() - self._waiting.keys():
                            self._own.pop(key, None)  # it will not be read back
                        continue
                    self._waiting = {**batch, **self._waiting}

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            decoded = topic_records.decode(value)
        except ValueError:
            return
        with self._changed:
            if key in self._own:
                # the value in memory is newer than every value up to our last write of the key
                if self._own[key] == value:
                    del self._own[key]
                return
            self._state.apply(key, decoded)
            self._changed.notify_all()
