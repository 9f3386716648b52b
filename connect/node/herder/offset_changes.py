"""Committed source offsets of stopped connectors: set, forgotten one by one, forgotten all.

Rules of this file:
- A change is taken as a whole or refused as a whole; what is refused is not done later either.
- ``moves`` announces each change and stores it in a transaction that a later start fences.
- Called by one thread at a time, for a connector whose tasks can write no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from connect.config.connector import ConnectorConfig
from connect.config.source_group import is_tabular
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.node.herder.offset_events import OffsetEvents
from connect.node.herder.views import reachable
from connect.node.herder_api import NotAllowedError
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector


class OffsetChanges:
    """Changes of a connector's committed source offsets.

    Args:
        store: keeps what is still to be set.
        admin: offsets of groups.
        moves: tells the coordinator that is to come.
        group_of: consumer group of a connector's source offsets.
        settle: sets the offsets that the store says are to be set for a group.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        moves: OffsetEvents,
        *,
        group_of: Callable[[StoredConnector], str],
        settle: Callable[[StoredConnector, str], None],
    ) -> None:
        self._store = store
        self._admin = admin
        self.moves = moves
        self._group_of = group_of
        self._settle = settle

    def committed(self, state: StoredConnector) -> dict[TopicPartition, int]:
        """Every committed source offset, of topics that exist.

        Raises:
            UnavailableError: the broker is away.
        """
        with reachable():
            return self._admin.committed_all(self._group_of(state))

    def alter(self, name: str, given: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets, and forget those given as None.

        Raises:
            NotAllowedError: a partition does not exist, or the group is in use.
            UnavailableError: the broker is away; what was asked may be done later.
        """
        moved = {tp: offset for tp, offset in given.items() if offset is not None}
        with reachable(), self.moves.changing:
            group = self.settle(name)
            self._must_exist(moved)
            if len(moved) == len(given):
                self.moves.set(self._store.get(name), group, moved)
            else:
                self._replace(name, group, given, moved)
            self.moves.accept(self._store.get(name), {tp.topic for tp in given})

    def reset(self, name: str) -> None:
        """Forget all offsets.

        Raises:
            NotAllowedError: the group is in use.
            UnavailableError: the broker is away.
        """
        with reachable(), self.moves.changing:
            group = self.settle(name)
            self._forget_copy(name, group)
            self.moves.forget_all(self._store.get(name), group)
            self.moves.accept(self._store.get(name))

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """The connector's configuration, typed.

        Raises:
            ConfigError: it is not valid.
        """
        return self.moves.parsed(state)

    def settle(self, name: str) -> str:
        """Do what is left to be done; the connector's group.

        Raises:
            RetriableError: the broker is away.
        """
        state = self._store.get(name)
        group = self._group_of(state)
        self._settle(state, group)
        return group

    def _replace(
        self,
        name: str,
        group: str,
        given: Mapping[TopicPartition, int | None],
        moved: Mapping[TopicPartition, int],
    ) -> None:
        """No request forgets single partitions: the group is forgotten and set anew."""
        self._admin.refuse_members(group)
        self.moves.forget_floor(self._store.get(name), given)
        self.moves.announce(self._store.get(name), given)
        copy = self._copy_of(name)
        kept = self._admin.committed_all(copy) if copy is not None else {}
        kept |= self._admin.committed_all(group)
        left = {tp: offset for tp, offset in kept.items() if tp not in given}
        self._store.put_offsets(name, {**left, **moved})
        try:
            self._forget_copy(name, group)
            self._settle(self._store.get(name), group)
        except RetriableError as e:
            if e.code == "group_in_use":  # nothing was changed, and nothing is to be
                self._store.put_offsets(name, None)
            raise

    def _copy_of(self, name: str) -> str | None:
        """The group in which the older sink keeps a copy; its offsets count where ours has none."""
        state = self._store.get(name)
        return self.parsed(state).fallback_group_id if is_tabular(state.config or {}) else None

    def _forget_copy(self, name: str, group: str) -> None:
        """Forget the copy before the connector's own group; a crash between asks for a repetition.

        Raises:
            RetriableError: ``group_in_use``; then neither group is changed.
        """
        copy = self._copy_of(name)
        if copy is None:
            return
        self._admin.refuse_members(group)
        self._admin.delete_group(copy)

    def _must_exist(self, partitions: Iterable[TopicPartition]) -> None:
        known = self._admin.topics()
        for tp in partitions:
            if tp.partition >= known.get(tp.topic, 0):
                raise NotAllowedError(
                    f"partition {tp.partition} of topic {tp.topic!r} does not exist; "
                    "no offset was changed"
                )
