"""The message of lost records in a task's status."""

from __future__ import annotations

from connect.model.layout import TopicPartition
from control_schemas.events import LostRange
from worker.task.reported_losses import KEPT_MAX, SHOWN_MAX, ReportedLosses


def test_ranges_are_named_and_bounded() -> None:
    """A range that is found again counts once, with its largest end."""
    losses = ReportedLosses()
    assert losses.error() is None
    losses.add([LostRange("orders", 0, 10, 25)])
    losses.add([LostRange("orders", 0, 10, 27), LostRange("orders", 1, 0, 3)])
    error = losses.error()
    assert error is not None
    assert error.code == "source_data_lost"
    assert "orders-0 [10, 27), orders-1 [0, 3). A restart" in error.message
    losses.add(LostRange("many", 0, n, n + 1) for n in range(KEPT_MAX + 5))
    text = str(losses.error())
    assert text.count("many-0") == SHOWN_MAX
    assert f"and {KEPT_MAX - SHOWN_MAX} more ranges" in text


def test_recreated_topics_and_recovered_positions_are_named() -> None:
    """With the code of the loss, if there is one."""
    losses = ReportedLosses()
    losses.recovered[TopicPartition("orders", 2)] = 7
    error = losses.error()
    assert error is not None
    assert error.code == "offsets_lost"
    assert "last announcement: orders-2 7. A restart" in error.message
    losses.add([LostRange("orders", 0, 10, None), LostRange("orders", 0, 0, 5)])
    error = losses.error()
    assert error is not None
    assert error.code == "source_data_lost"
    assert "orders-0 [0, 5), orders-0 from 10 on (the topic was created again)" in error.message


def test_columns_of_changed_types_are_named() -> None:
    """By table, column and the column that took the values; a column is new once."""
    losses = ReportedLosses()
    assert losses.add_conflicts([("db.orders", "amount", "amount__text")])
    assert not losses.add_conflicts([("db.orders", "amount", "amount__text")])
    error = losses.error()
    assert error is not None
    assert error.code == "type_conflict"
    assert "db.orders.amount to amount__text" in error.message


def test_values_that_the_source_did_not_send_are_named() -> None:
    """By table and column, with the cure; a column is new once."""
    losses = ReportedLosses()
    assert losses.add_unavailable([("db.orders", "note")])
    assert not losses.add_unavailable([("db.orders", "note")])
    error = losses.error()
    assert error is not None
    assert error.code == "unavailable_value"
    assert "db.orders.note" in error.message
    assert "REPLICA IDENTITY FULL" in error.message
    losses.add([LostRange("orders", 0, 10, 25)])
    assert "db.orders.note" in str(losses.error())
    assert losses.error().code == "source_data_lost"
