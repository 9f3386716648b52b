"""Reads one connector's control events: alone until it has caught up, then from a shared feed.

Rules of this file:
- The events are those of one reader that starts at the given positions: in order within a
  partition, each once. What is given and ``positions`` belong together, because the positions
  decide which control offsets are stored.
- It joins the feed first. The feed keeps all events at and after ``read_from``. Its own reader
  continues until each of its positions is at or above that. From there the feed continues; what it
  kept below these positions was read already, and is dropped.
- The feed keeps a bounded number of events. If more wait, it leaves the feed and reads alone again,
  from its last positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.protocol.control_feed import ControlSubscription

ALONE_MS_MAX = 100  # a wait for events on its own reader: nothing can wake it


class ControlReader:
    """The control events of one connector. For one thread, except ``wake``.

    Args:
        open_reader: opens a reader of its own.
        subscribe: joins the shared feed, given the positions to read from where it is new.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        subscribe: Callable[[], ControlSubscription],
    ) -> None:
        self._open_reader = open_reader
        self._subscribe = subscribe
        self._own: LogReader | None = None
        self._shared: ControlSubscription | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it has no reader of its own."""
        return self._own is None and self._shared is not None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these control offsets on.

        Raises:
            ConfigError, RetriableError: the control topic cannot be read.
        """
        self.close()
        self._own = self._open_reader()
        self._own.assign(positions)
        self._shared = self._subscribe()

    def poll(self, timeout_ms: int) -> list[KafkaRecord]:
        """Return what is there; wait up to ``timeout_ms`` for the first event, or for ``wake``.

        Raises:
            ConfigError, RetriableError: as ``LogReader.poll``.
        """
        own, shared = self._own, self._shared
        assert shared is not None, "assigned"
        if own is not None and not shared.has_failed:
            records = own.poll(min(timeout_ms, ALONE_MS_MAX))
            self._hand_over(own.positions())
            return records
        try:
            return shared.poll(timeout_ms)
        except RetriableError as error:
            if error.code != "control_events_waiting":
                raise
        self.assign(self.positions())
        return []

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next control offset of each partition, behind all events that were polled."""
        source = self._own or self._shared
        return {} if source is None else source.positions()

    def wake(self) -> None:
        """End a long wait of ``poll``; any thread may call it."""
        shared = self._shared
        if shared is not None:
            shared.wake()

    def close(self) -> None:
        """Close its own reader and leave the feed."""
        own, self._own = self._own, None
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()
        if own is not None:
            own.close()

    def _hand_over(self, positions: Mapping[TopicPartition, int]) -> None:
        own, shared = self._own, self._shared
        assert own is not None, "it still reads alone"
        assert shared is not None, "assigned"
        kept_from = shared.read_from
        if all(at >= kept_from.get(tp, at + 1) for tp, at in positions.items()):
            shared.begin(positions)
            self._own = None
            own.close()
