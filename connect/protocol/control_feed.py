"""One reader of each control topic for all tasks, or all coordinators, of this process.

Rules of this file:
- A subscription has no gap: it gets each event of its group at and after ``read_from``, in order
  within a partition. The feed sets ``read_from`` with the first events that it gives, or does not
  give, to the subscription.
- A task begins at the ends that it has asked the broker for after it joined, and drops the events
  below them. A coordinator hands over from a reader of its own (``control_reader``).
- Events and the position behind them arrive together: a subscription's position never covers an
  event that it was not given.
- Events of other groups are given to no subscription; announcements of Icefloe's tasks only where
  the feeds take them.
- The reader belongs to the feed's thread. An error ends the feed, and each of its subscriptions
  raises it. One that starts again gets a new feed.
- The feed ends, and its reader is closed, soon after its last subscription has left.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from connect.errors import IcefloeError, InvariantViolation, RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.frame import is_of_another_group

POLL_MS: Final = 200
_WORKERS_HEADER: Final = "icefloe.layout"

FeedKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The control topic and the properties of its reader."""
Ends: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class WaitingLimits:
    """How much may wait for one subscriber; a task takes events after each micro-batch only."""

    events: int = 50_000
    size_bytes: int = 32 * 1024 * 1024

    def are_exceeded(self, events: int, size_bytes: int) -> bool:
        """Return whether so much must not wait; a single event may have any size."""
        return events > self.events or (events > 1 and size_bytes > self.size_bytes)


class ControlSubscription:
    """The control events of one group since a point in the log. For one thread.

    Only ``wake`` may be called from any thread.

    Args:
        group: connect group id.
        leave: removes the subscription from its feed.
        limits: so much may wait for the subscriber.
    """

    def __init__(
        self, group: bytes, leave: Callable[[ControlSubscription], None], limits: WaitingLimits
    ) -> None:
        self.group = group
        self._limits = limits
        self._leave = leave
        self._starts: Ends = {}
        self._waiting: deque[KafkaRecord] = deque()
        self._waiting_bytes = 0
        self._read_from: Ends = {}
        self._positions: Ends = {}
        self._error: IcefloeError | None = None
        self._is_woken = False
        self._changed = threading.Condition()

    @property
    def read_from(self) -> Ends:
        """Where the feed began to keep events for this subscription, by partition."""
        return self._read_from

    @property
    def has_failed(self) -> bool:
        """Whether ``poll`` raises."""
        return self._error is not None

    def begin(self, starts: Ends) -> None:
        """Set the first control offset of each partition; events below it are dropped."""
        self._starts = dict(starts)

    def poll(self, timeout_ms: int) -> list[KafkaRecord]:
        """Return what has arrived; wait up to ``timeout_ms`` for the first event, or for ``wake``.

        Raises:
            ConfigError, RetriableError: the control topic cannot be read, as ``LogReader.poll``.
            RetriableError: ``control_events_waiting``: too many events wait for the subscriber.
        """
        with self._changed:
            if not (self._waiting or self._error or self._is_woken):
                self._changed.wait(timeout_ms / 1000)
            self._is_woken = False
            records = list(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            reached, error = self._positions, self._error
        if error is not None:
            # an exception of its own: each subscriber adds its coordinates and its stack
            raise type(error)(error.message, code=error.code, **error.coordinates) from error
        kept = [record for record in records if self._is_subscribed(record)]
        self._starts = {tp: max(at, reached.get(tp, at)) for tp, at in self._starts.items()}
        return kept

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next control offset of each partition, behind all events that were polled."""
        return dict(self._starts)

    def wake(self) -> None:
        """End the present wait of ``poll``, or the next one."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def put(self, records: Collection[KafkaRecord], before: Ends, after: Ends) -> None:
        """Take events from the feed.

        Args:
            records: of the group, in order.
            before: positions of the feed before it read them.
            after: positions of the feed behind them.
        """
        with self._changed:
            self._read_from = {**before, **self._read_from}
            self._positions = after
            size = self._waiting_bytes + sum(len(record.value or b"") for record in records)
            if self._limits.are_exceeded(len(self._waiting) + len(records), size):
                self._error = RetriableError(
                    f"{len(self._waiting)} control events of {self._waiting_bytes} bytes wait, "
                    "and more arrive",
                    code="control_events_waiting",
                )
                self._waiting.clear()
            else:
                self._waiting.extend(records)
                self._waiting_bytes = size
            if records:
                self._changed.notify()

    def fail(self, error: IcefloeError) -> None:
        """End with an error of the reader."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify()

    def close(self) -> None:
        """Leave the feed."""
        self._leave(self)

    def _is_subscribed(self, record: KafkaRecord) -> bool:
        start = self._starts.get(TopicPartition(record.topic, record.partition))
        return start is not None and record.offset >= start


class ControlFeed:
    """Reads one control topic in a thread of its own and distributes the events.

    Args:
        open_reader: opens the reader, in the feed's thread.
        on_end: called when the feed has ended.
        limits: so much may wait for one subscriber.
        takes_announcements: whether subscriptions get the announcements of Icefloe's tasks.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        on_end: Callable[[ControlFeed], None],
        limits: WaitingLimits,
        *,
        takes_announcements: bool,
    ) -> None:
        self._limits = limits
        self._takes_announcements = takes_announcements
        self._open_reader = open_reader
        self._on_end = on_end
        self._lock = threading.Condition()
        self._subscriptions: tuple[ControlSubscription, ...] = ()
        self._ends: dict[TopicPartition, int] = {}
        self._has_ended = False

    def join(self, group: bytes) -> ControlSubscription | None:
        """Return a subscription that keeps events from now on; None if the feed has ended."""
        with self._lock:
            if self._has_ended:
                return None
            subscription = ControlSubscription(group, self._leave, self._limits)
            self._subscriptions = (*self._subscriptions, subscription)
            return subscription

    def read(self, ends: Ends) -> None:
        """Read these partitions too; those that are read already continue where they are."""
        with self._lock:
            self._ends = {**ends, **self._ends}
            self._lock.notify()

    def run(self) -> None:
        """Read until the last subscription has left, or an error."""
        reader: LogReader | None = None
        try:
            reader = self._open_reader()
            self._distribute(reader)
        except IcefloeError as error:
            self._fail(error)
        finally:
            self._fail(InvariantViolation("the reader of the control topic has ended"))
            self._on_end(self)
            if reader is not None:
                reader.close()

    def _distribute(self, reader: LogReader) -> None:
        while (positions := self._partitions()) is not None:
            if positions.keys() != reader.positions().keys():
                reader.assign({**positions, **reader.positions()})
            before = reader.positions()
            records = reader.poll(POLL_MS)
            after = reader.positions()
            if not self._takes_announcements:
                records = [record for record in records if not _is_announcement(record)]
            has_moved = after != before
            # those that joined during the poll get its events too: they may have asked for ends
            for subscription in self._subscriptions:
                if has_moved or subscription.read_from.keys() != after.keys():
                    group = subscription.group
                    own = [r for r in records if not is_of_another_group(r.value or b"", group)]
                    subscription.put(own, before, after)

    def _partitions(self) -> Ends | None:
        """Return the partitions to read, once there are any; None without a subscription."""
        with self._lock:
            while self._subscriptions and not self._ends:
                self._lock.wait()
            self._has_ended = not self._subscriptions
            return None if self._has_ended else self._ends

    def _leave(self, subscription: ControlSubscription) -> None:
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)
            self._lock.notify()

    def _fail(self, error: IcefloeError) -> None:
        with self._lock:
            self._has_ended = True
            failed, self._subscriptions = self._subscriptions, ()
        for subscription in failed:
            subscription.fail(error)


def _is_announcement(record: KafkaRecord) -> bool:
    return any(name == _WORKERS_HEADER for name, _ in record.headers)


class ControlFeeds:
    """The feeds of this process. Thread-safe.

    Args:
        open_reader: opens a reader from Java-named consumer properties.
        limits: so much may wait for one subscriber.
        takes_announcements: whether subscriptions get the announcements of Icefloe's tasks.
    """

    def __init__(
        self,
        open_reader: Callable[[Mapping[str, str]], LogReader] = LogReader,
        *,
        limits: WaitingLimits = WaitingLimits(),
        takes_announcements: bool = False,
    ) -> None:
        self._limits = limits
        self._takes_announcements = takes_announcements
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self._feeds: dict[FeedKey, ControlFeed] = {}

    def subscribe(
        self,
        kafka: Mapping[str, str],
        topic: str,
        group_id: str,
        *,
        ends: Callable[[], Ends],
    ) -> ControlSubscription:
        """Subscribe to a control topic from the present ends on.

        Args:
            kafka: Java-named properties of the reader.
            topic: the control topic.
            group_id: connect group id; its events are given.
            ends: asks the broker for the ends of the control topic.

        Returns:
            The subscription, which the caller closes.

        Raises:
            ConfigError, RetriableError: what ``ends`` raises.
        """
        key = topic, tuple(sorted(kafka.items()))
        feed, subscription = self._join(key, kafka, group_id.encode())
        with contextlib.ExitStack() as on_error:
            on_error.callback(subscription.close)
            starts = ends()  # after joining: what follows these ends is kept
            subscription.begin(starts)
            feed.read(starts)
            on_error.pop_all()
        return subscription

    def _join(
        self, key: FeedKey, kafka: Mapping[str, str], group: bytes
    ) -> tuple[ControlFeed, ControlSubscription]:
        with self._lock:
            feed = self._feeds.get(key)
            subscription = feed.join(group) if feed is not None else None
            if feed is not None and subscription is not None:
                return feed, subscription
            feed = ControlFeed(
                lambda: self._open_reader(kafka),
                self._forget,
                self._limits,
                takes_announcements=self._takes_announcements,
            )
            subscription = feed.join(group)
            assert subscription is not None, "a new feed has not ended"
            self._feeds[key] = feed
        threading.Thread(target=feed.run, name=f"control-{key[0]}", daemon=True).start()
        return feed, subscription

    def _forget(self, feed: ControlFeed) -> None:
        with self._lock:
            self._feeds = {key: each for key, each in self._feeds.items() if each is not feed}
