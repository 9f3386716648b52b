"""The valid-through timestamp of rounds."""

from __future__ import annotations

from uuid import UUID

from connect.model.layout import TopicPartition
from control_schemas.events import (
    CommitComplete,
    EventHeaders,
    StartCommit,
)
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import InboxAdvanced, InitialLogEnds, SendCompletion, TableDecision
from coordinator.kernel.kernel import Kernel
from tests.support.kernel_driver import P0, P1, T1, T2, Driver


def test_the_vtts_never_decreases(driver: Driver) -> None:
    """A round with a lower value repeats the last claim; without a timestamp it has no claim."""
    commit = driver.start()
    driver.complete(commit, (P0, 9_000))
    driver.complete(commit, (P1, 9_000))
    driver.sent(commit)
    driver.now_ms += 10_000
    commit = driver.start()
    driver.complete(commit, (P0, 4_000))
    (effect,) = driver.complete(commit, (P1, 9_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us == 9_000
    driver.sent(commit)
    driver.now_ms += 10_000
    commit = driver.start()
    driver.complete(commit, (P0, None))
    (effect,) = driver.complete(commit, (P1, 9_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None


def test_a_claim_that_was_reset_does_not_count(driver: Driver) -> None:
    """After the operator's reset, a restarted coordinator uses the timestamps of its tasks."""
    driver.read(CommitComplete(UUID(int=3), 4_102_444_800_000_000))
    driver.read(CommitComplete(UUID(int=4), None), EventHeaders(is_reset=True))
    commit = driver.start()
    driver.complete(commit, (P0, 9_000))
    (effect,) = driver.complete(commit, (P1, 8_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us == 8_000


def test_a_timestamp_ahead_of_the_clock_claims_nothing(driver: Driver) -> None:
    """The bound is the coordinator's clock plus the configured difference."""
    driver.kernel = Kernel(KernelSettings("c-0", 10_000, 3_000, future_max_ms=5))
    driver.layout(P0, P1)
    commit = driver.start()
    driver.complete(commit, (P0, 5_001))
    (effect,) = driver.complete(commit, (P1, 4_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None
    driver.sent(commit)
    driver.now_ms += 10_000
    commit = driver.start()
    driver.complete(commit, (P0, 5_000))
    (effect,) = driver.complete(commit, (P1, 4_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us == 4_000


def test_a_vtts_from_before_a_restart_is_kept(driver: Driver) -> None:
    """A coordinator that reads an earlier completion never claims less."""
    driver.read(CommitComplete(UUID(int=3), 50_000))
    driver.read(CommitComplete(UUID(int=3), None))
    driver.read(StartCommit(UUID(int=3)))
    commit = driver.start()
    driver.complete(commit, (P0, 9_000))
    (effect,) = driver.complete(commit, (P1, 9_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None
    driver.sent(commit)
    driver.now_ms += 10_000
    commit = driver.start()
    driver.complete(commit, (P0, 60_000))
    (effect,) = driver.complete(commit, (P1, 70_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us == 60_000


def test_a_vtts_is_not_repeated_for_an_added_partition(driver: Driver) -> None:
    """No claim is made until the new partition has caught up."""
    commit = driver.start()
    driver.complete(commit, (P0, 9_000))
    driver.complete(commit, (P1, 9_000))
    driver.sent(commit)
    late = TopicPartition("orders", 2)
    driver.layout(P0, P1, late, number=2)
    driver.now_ms += 10_000
    commit = driver.start()
    (effect,) = driver.complete(commit, (P0, 12_000), (P1, 12_000), (late, 5_000), layout=2)
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None


def test_a_retry_during_a_round_does_not_restore_its_claim(driver: Driver) -> None:
    """Announcements of the failed table are not committed, even after the operator's retry."""
    commit = driver.start()
    driver.written(commit, T1)
    driver.complete(commit, (P0, 9_000), (P1, 9_000))
    driver.failed(commit, T1, retriable=False)
    driver.sent(commit)
    driver.now_ms += 10_000
    commit = driver.start()
    driver.written(commit, T2)
    driver.complete(commit, (P0, 19_000), (P1, 19_000))
    driver.kernel.receive(TableDecision(T1, "retry"), driver.now_ms)
    (effect,) = driver.committed(commit, T2)
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None


def test_nothing_is_claimed_before_the_old_announcements_are_read(driver: Driver) -> None:
    """Earlier sinks may have announced in any control partition, with nothing committed yet."""
    driver.kernel.receive(InitialLogEnds({0: 0, 1: 5}), driver.now_ms)
    driver.kernel.receive(InboxAdvanced({0: 0, 1: 4}), driver.now_ms)
    commit = driver.start()
    (effect,) = driver.complete(commit, (P0, 9_000), (P1, 9_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us is None
    driver.sent(commit)
    driver.kernel.receive(InboxAdvanced({1: 5}), driver.now_ms)
    driver.now_ms += 10_000
    commit = driver.start()
    (effect,) = driver.complete(commit, (P0, 9_000), (P1, 9_000))
    assert isinstance(effect, SendCompletion)
    assert effect.valid_through_us == 9_000
