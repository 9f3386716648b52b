"""One reader of each control topic for all tasks of this process.

Rules of this file:
- A task gets the same events as from a reader of its own: those at and after the ends that it has
  asked the broker for, in order within a partition. The feed keeps events for a task from before
  that request on, and the task drops those below its ends.
- Events of other groups, and announcements of Icefloe's tasks, are given to no task.
- The reader belongs to the feed's thread. An error ends the feed, and each of its tasks raises it.
  A task that starts again gets a new feed.
- The feed ends, and its reader is closed, soon after its last task has left.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from connect.errors import IcefloeError, InvariantViolation, RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.frame import is_of_another_group

POLL_MS: Final = 200
WAITING_MAX: Final = 50_000
"""Events that wait for a task; a task takes them after each micro-batch."""
_WORKERS_HEADER: Final = "icefloe.layout"

FeedKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The control topic and the properties of its reader."""
Ends: TypeAlias = Mapping[TopicPartition, int]


class ControlSubscription:
    """The control events of one group since a point in the log. For one thread.

    Args:
        group: connect group id.
        leave: removes the subscription from its feed.
        waiting_max: so many events may wait for the task.
    """

    def __init__(
        self, group: bytes, leave: Callable[[ControlSubscription], None], waiting_max: int
    ) -> None:
        self.group = group
        self._waiting_max = waiting_max
        self._leave = leave
        self._starts: dict[TopicPartition, int] = {}
        self._waiting: deque[KafkaRecord] = deque()
        self._error: IcefloeError | None = None
        self._changed = threading.Condition()

    def begin(self, ends: Ends) -> None:
        """Set the first control offset of each partition; events below it are dropped."""
        self._starts = dict(ends)

    def poll(self, timeout_ms: int) -> list[KafkaRecord]:
        """Return what has arrived; wait up to ``timeout_ms`` for the first event.

        Raises:
            ConfigError, RetriableError: the control topic cannot be read, as ``LogReader.poll``.
            RetriableError: ``control_events_waiting``: too many events wait for the task.
        """
        with self._changed:
            if not self._waiting and self._error is None:
                self._changed.wait(timeout_ms / 1000)
            records = list(self._waiting)
            self._waiting.clear()
            error = self._error
        if error is not None:
            # an exception of its own: each task adds its coordinates and its stack
            raise type(error)(error.message, code=error.code, **error.coordinates) from error
        return [record for record in records if self._is_of_task(record)]

    def put(self, records: Collection[KafkaRecord]) -> None:
        """Take events from the feed."""
        with self._changed:
            if len(self._waiting) + len(records) > self._waiting_max:
                self._error = RetriableError(
                    f"more than {self._waiting_max} control events wait for the task",
                    code="control_events_waiting",
                )
                self._waiting.clear()
            else:
                self._waiting.extend(records)
            self._changed.notify()

    def fail(self, error: IcefloeError) -> None:
        """End with an error of the reader."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify()

    def close(self) -> None:
        """Leave the feed."""
        self._leave(self)

    def _is_of_task(self, record: KafkaRecord) -> bool:
        start = self._starts.get(TopicPartition(record.topic, record.partition))
        return start is not None and record.offset >= start


class ControlFeed:
    """Reads one control topic in a thread of its own and distributes the events.

    Args:
        open_reader: opens the reader, in the feed's thread.
        on_end: called when the feed has ended.
        waiting_max: so many events may wait for one task.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        on_end: Callable[[ControlFeed], None],
        waiting_max: int,
    ) -> None:
        self._waiting_max = waiting_max
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
            subscription = ControlSubscription(group, self._leave, self._waiting_max)
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
            records = [r for r in reader.poll(POLL_MS) if not _is_announcement(r)]
            for subscription in self._subscriptions if records else ():
                group = subscription.group
                own = [r for r in records if not is_of_another_group(r.value or b"", group)]
                if own:
                    subscription.put(own)

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
        waiting_max: so many events may wait for one task.
    """

    def __init__(
        self,
        open_reader: Callable[[Mapping[str, str]], LogReader] = LogReader,
        *,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._waiting_max = waiting_max
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
        """Subscribe a task to its control topic from the present ends on.

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
            feed = ControlFeed(lambda: self._open_reader(kafka), self._forget, self._waiting_max)
            subscription = feed.join(group)
            assert subscription is not None, "a new feed has not ended"
            self._feeds[key] = feed
        threading.Thread(target=feed.run, name=f"control-{key[0]}", daemon=True).start()
        return feed, subscription

    def _forget(self, feed: ControlFeed) -> None:
        with self._lock:
            self._feeds = {key: each for key, each in self._feeds.items() if each is not feed}
