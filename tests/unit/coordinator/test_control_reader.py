"""A coordinator's reader: first its own, then the feed that coordinators share, without a gap."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from connect.errors import ConfigError, RetriableError
from connect.protocol.control_feed import ControlFeeds, WaitingLimits
from coordinator.control_reader import ControlReader
from tests.support.control_log import TP, ControlLog, start_commit, wait_until

GROUPS = ("connect-a", "connect-b")
EVENTS = 400
UNLIMITED = WaitingLimits()


@pytest.fixture
def log() -> Iterator[ControlLog]:
    """A log that returns few events at a time; its readers end with the test."""
    yield (made := ControlLog(batch_max=3))
    made.fail(RetriableError("the test ends"))


def coordinators(log: ControlLog, limits: WaitingLimits = UNLIMITED) -> ControlFeeds:
    return ControlFeeds(log.open_reader, limits=limits, takes_announcements=True)


def reader_of(feeds: ControlFeeds, log: ControlLog, group: str) -> ControlReader:
    return ControlReader(
        log.open_reader,
        lambda: feeds.subscribe({"a": "b"}, "control", group, ends=log.ends),
    )


class Read:
    """What a reader has given so far, checked against its position after each poll."""

    def __init__(self, reader: ControlReader, log: ControlLog, group: str, start: int) -> None:
        self.reader, self.start, self.offsets = reader, start, list[int]()
        self._log, self._group = log, group.encode()
        reader.assign({TP: start})

    def poll(self, timeout_ms: int = 20) -> None:
        """Poll once: the position covers the events that were given, and no other event."""
        self.offsets += [r.offset for r in self.reader.poll(timeout_ms) if self._is_own(r.value)]
        assert self.offsets == self.written(self.reader.positions()[TP])

    def written(self, end: int | None = None) -> list[int]:
        """Offsets of the group's events from the start to ``end``."""
        with self._log.changed:
            events = self._log.records[TP][self.start : end]
        return [event.offset for event in events if event and self._is_own(event.value)]

    def read_all(self) -> None:
        """Poll until the end of the log is reached by the feed."""
        end = self._log.ends()[TP]

        def is_read() -> bool:
            self.poll()
            return self.reader.is_shared and self.reader.positions()[TP] >= end

        wait_until(is_read)

    def _is_own(self, value: bytes | None) -> bool:
        return self._group in (value or b"")


def write(log: ControlLog, seed: int) -> None:
    """Write events of both groups, announcements among them, and ends of transactions."""
    choose = random.Random(seed)
    for number in range(EVENTS):
        if choose.random() < 0.3:
            log.append_marker()
        else:
            header = choose.choice([None, "icefloe.layout"])
            log.append(start_commit(choose.choice(GROUPS), number), header=header)


@pytest.mark.parametrize("seed", range(6))
def test_each_event_is_read_once_while_others_write(log: ControlLog, seed: int) -> None:
    """From any start, also where the feed is already ahead, and with announcements."""
    write(log, seed)
    feeds, choose = coordinators(log), random.Random(seed)
    Read(reader_of(feeds, log, GROUPS[0]), log, GROUPS[0], EVENTS).read_all()
    writer = threading.Thread(target=write, args=(log, seed + 100))
    writer.start()
    starts = [choose.randrange(EVENTS) for _ in range(4)]
    reads = [
        Read(reader_of(feeds, log, group), log, group, start)
        for group, start in zip(GROUPS * 2, starts, strict=True)
    ]
    while writer.is_alive():
        for read in reads:
            read.poll(1)
    writer.join()
    for read in reads:
        read.read_all()
        assert read.offsets == read.written()
        read.reader.close()


def test_coordinators_that_have_caught_up_have_one_client(log: ControlLog) -> None:
    """Twenty of them hold one reader; without coordinators none is left."""
    feeds = coordinators(log)
    write(log, 1)
    names = [f"connect-{number:02}" for number in range(20)]
    reads = [Read(reader_of(feeds, log, name), log, name, EVENTS - 9) for name in names]
    for read in reads:
        read.read_all()
    assert len(log.open_readers) == 1
    for read in reads:
        read.reader.close()
    wait_until(lambda: not log.open_readers)


def test_too_many_waiting_events_are_read_alone(log: ControlLog) -> None:
    """Nothing is lost, the coordinator does not start again, and it joins the feed again."""
    feeds = coordinators(log, WaitingLimits(events=5))
    read = Read(reader_of(feeds, log, GROUPS[0]), log, GROUPS[0], 0)
    read.read_all()
    readers = len(log.readers)
    write(log, 2)
    (feed,) = log.open_readers
    wait_until(lambda: feed.positions()[TP] >= EVENTS - 10)  # the rest may be ends of transactions
    read.read_all()
    assert read.offsets == read.written()
    assert len(log.readers) > readers
    read.reader.close()


def test_events_that_wait_are_bounded_in_bytes() -> None:
    """A single event may have any size: otherwise it could never be read."""
    limits = WaitingLimits(size_bytes=100)
    assert not limits.are_exceeded(1, 5_000)
    assert limits.are_exceeded(2, 101)


def test_an_error_of_the_feed_is_one_of_the_coordinator(log: ControlLog) -> None:
    """The coordinator starts again from its stored control offsets, or fails."""
    read = Read(reader_of(coordinators(log), log, GROUPS[0]), log, GROUPS[0], 0)
    read.read_all()
    log.fail(ConfigError("no ACL", topic="control"))
    with pytest.raises(ConfigError, match="no ACL"):
        wait_until(lambda: read.reader.poll(100))


def test_a_wait_for_events_can_be_ended(log: ControlLog) -> None:
    """By a stop or an operator's decision; the wait itself would last for minutes."""
    read = Read(reader_of(coordinators(log), log, GROUPS[0]), log, GROUPS[0], 0)
    read.read_all()
    waiting = threading.Thread(target=read.reader.poll, args=(600_000,))
    waiting.start()
    read.reader.wake()
    waiting.join(150)
    assert not waiting.is_alive()
    read.reader.close()
    read.reader.wake()  # a closed reader ignores it
    assert read.reader.positions() == {}


def test_a_feed_that_fails_before_the_handover_is_an_error_too(log: ControlLog) -> None:
    """Otherwise the coordinator would keep a reader of its own for ever."""
    feeds = coordinators(log)
    reader = ControlReader(
        ControlLog().open_reader,  # one that does not fail, and never reaches the feed's position
        lambda: feeds.subscribe({"a": "b"}, "control", GROUPS[0], ends=log.ends),
    )
    log.append(start_commit(GROUPS[0]))
    reader.assign({TP: 0})
    assert reader.poll(0) == []
    log.fail(RetriableError("gone", code="unavailable"))
    with pytest.raises(RetriableError, match="gone"):
        wait_until(lambda: reader.poll(1))
    reader.close()
