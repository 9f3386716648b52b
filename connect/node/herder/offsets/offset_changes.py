"""Changes of the committed source offsets of a stopped connector: set some, reset some, reset all.

Rules of this file:
- A change is made completely or refused completely. A refused change is not made later.
- ``OffsetEvents`` announces each change and stores it in a transaction that a later start fences.
- Called by one thread at a time, for a connector without any task that can still write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from connect.config.source_group import is_tabular
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.node.node_requests import NotAllowedError, reachable
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector


class OffsetChanges:
    """Changes of a connector's committed source offsets.

    Args:
        store: pending offsets.
        admin: offsets of groups.
        offset_events: announces changes and stores them.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        offset_events: OffsetEvents,
        configs: ConnectorConfigs,
    ) -> None:
        self._store = store
        self._admin = admin
        self._offset_events = offset_events
        self._configs = configs

    def committed(self, state: StoredConnector) -> dict[TopicPartition, int]:
        """Return every committed source offset of topics that exist.

        Raises:
            UnavailableError: the broker cannot be reached.
        """
        with reachable():
            return self._admin.committed_all(self._configs.group_of(state))

    def alter(self, name: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets, and reset those given as None.

        Raises:
            NotAllowedError: a partition does not exist, or the group is in use.
            UnavailableError: the broker cannot be reached; the change may be made later.
        """
        moved = {tp: offset for tp, offset in offsets.items() if offset is not None}
        with reachable(), self._offset_events.changing:
            group = self.settle(name)
            self._must_exist(moved)
            if len(moved) == len(offsets):
                self._offset_events.set(self._store.get(name), group, moved)
            else:
                self._replace(name, group, offsets, moved)
            self._offset_events.accept(self._store.get(name), {tp.topic for tp in offsets})
            self.run_again(name)

    def reset(self, name: str) -> None:
        """Reset all offsets.

        Raises:
            NotAllowedError: the group is in use.
            UnavailableError: the broker cannot be reached.
        """
        with reachable(), self._offset_events.changing:
            group = self.settle(name)
            self._delete_copy(name, group)
            self._offset_events.reset(self._store.get(name), group)
            self._offset_events.accept(self._store.get(name))
            self.run_again(name)

    def settle(self, name: str) -> str:
        """Commit pending offsets of an earlier change; return the connector's group.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        state = self._store.get(name)
        group = self._configs.group_of(state)
        self._offset_events.settle(state, self._configs.valid(state), group)
        return group

    def run_again(self, name: str) -> None:
        """Let a complete bounded run read the changed offsets to the same end."""
        end = self._store.get(name).end
        if end is not None and end.completed is not None:
            self._store.put_end(name, replace(end, completed=None))

    def _replace(
        self,
        name: str,
        group: str,
        offsets: Mapping[TopicPartition, int | None],
        moved: Mapping[TopicPartition, int],
    ) -> None:
        """Delete the group and commit the other offsets again: Kafka resets no single partition."""
        self._admin.refuse_members(group)
        self._offset_events.reset_floor(self._store.get(name), offsets)
        self._offset_events.announce(self._store.get(name), offsets)
        copy = self._copy_of(name)
        committed = self._admin.committed_all(copy) if copy is not None else {}
        committed |= self._admin.committed_all(group)
        left = {tp: offset for tp, offset in committed.items() if tp not in offsets}
        self._store.put_offsets(name, {**left, **moved})
        try:
            self._delete_copy(name, group)
            self.settle(name)
        except RetriableError as e:
            if e.code == "group_in_use":  # nothing was changed, and nothing may be later
                self._store.put_offsets(name, None)
            raise

    def _copy_of(self, name: str) -> str | None:
        """Return the second group of the older sink; used for partitions without an offset."""
        state = self._store.get(name)
        if not is_tabular(state.config or {}):
            return None
        return self._configs.parsed(state).fallback_group_id

    def _delete_copy(self, name: str, group: str) -> None:
        """Delete the second group before the connector's own; repeated after a crash in between.

        Raises:
            RetriableError: ``group_in_use``; then neither group is changed.
        """
        copy = self._copy_of(name)
        if copy is not None:
            self._offset_events.delete_copy(name, group, copy)

    def _must_exist(self, partitions: Iterable[TopicPartition]) -> None:
        partition_counts = self._admin.topics()
        for tp in partitions:
            if tp.partition >= partition_counts.get(tp.topic, 0):
                raise NotAllowedError(
                    f"partition {tp.partition} of topic {tp.topic!r} does not exist; "
                    "no offset was changed"
                )
