"""Starts a task that writes aggregates: claims its state, fences, finds offsets and their state.

Rules of this file:
- The order is fixed: claim the state, take over the transactional id, confirm the claim, check the
  layout, read the committed source offsets, find the state for them. See
  ``worker.aggregate.state_checkpoint``.
- The task answers no rounds: there is no table to commit to, and its coordinator is idle.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import structlog

from connect.config.aggregation import Aggregation
from connect.errors import ConfigError
from connect.gateways.storage.state_folder import StateFolder
from connect.protocol.java_sink_members import wait_until_left
from worker.aggregate.state_checkpoint import STATE_MISSING, SavedState, StateCheckpoint
from worker.spark.session import Session
from worker.task.aggregates.aggregate_run import AggregateRun, ResultSender
from worker.task.aggregates.event_stream import open_event_stream
from worker.task.dead_letters.dead_letter_limits import DeadLetterLimits
from worker.task.dead_letters.record_errors import RecordErrors
from worker.task.read_ledger import Offsets
from worker.task.source.source_log import SourceLog, positions_text
from worker.task.task_context import TaskSetup
from worker.task.task_fencing import check_layout, fenced_producer, task_admin
from worker.task.task_metrics import AggregateMetrics

log = structlog.get_logger("worker.task")


def open_aggregate_run(setup: TaskSetup, clients: contextlib.ExitStack) -> AggregateRun:
    """Start a task from its committed source offsets and the state for them.

    Args:
        setup: the task.
        clients: closes the clients of the run.

    Raises:
        Fenced: another task has the transactional id, or a newer layout exists.
        DataLost: source records are gone.
        ConfigError: the state is missing or of other aggregates; an operator must act.
        RetriableError: Kafka or the store of the state does not answer.
    """
    config, clock = setup.config, setup.clock
    aggregation = config.aggregation
    assert aggregation is not None
    setup.metrics.start(len(setup.assignment.partitions), now_ms=clock.monotonic_ms())
    setup.metrics.aggregate = setup.metrics.aggregate or AggregateMetrics()
    session = _local_session(setup)
    stream = open_event_stream(setup, session, clients)
    waits_for = setup.context.waits_for
    waits_for(f"the store of its state at {aggregation.location}")
    checkpoint = _checkpoint(setup, aggregation, session)
    clients.callback(checkpoint.close)
    checkpoint.claim()
    waits_for(f"the broker to fence earlier producers of transactional.id {setup.transactional_id}")
    producer = fenced_producer(setup)
    clients.callback(producer.close)
    checkpoint.confirm()
    floor = check_layout(setup)
    admin = task_admin(setup, clients)
    wait_until_left(admin, config.member_groups, setup.stop, clock, waits_for)
    waits_for("the committed source offsets and the state of its topics")
    source = SourceLog(setup, admin)
    sender = ResultSender(producer, aggregation.topic, setup)

    def store(new: Offsets) -> None:
        if len(new) == len(source.partitions):  # nothing was read before
            checkpoint.begin_empty(new)
        sender.store_offsets(new)

    starts = source.start_offsets(floor, store)
    state = _state(checkpoint, starts, aggregation)
    if state is not None:
        checkpoint.restore(state, starts)
    log.info(
        "task started",
        positions=positions_text(starts),
        **setup.log_labels,
    )
    return AggregateRun(
        setup,
        source,
        stream,
        checkpoint,
        sender,
        RecordErrors(config, setup.assignment.task, setup.metrics, clock),
        DeadLetterLimits.of(config.errors),
        dict(starts),
    )


def _state(
    checkpoint: StateCheckpoint, starts: Offsets, aggregation: Aggregation
) -> SavedState | None:
    """Return the state for the committed offsets; None if the task reads nothing."""
    if not starts:
        return None
    state = checkpoint.find(starts)
    if state is not None:
        return state
    if aggregation.missing_state == "empty":
        return checkpoint.begin_empty(starts)
    raise ConfigError(
        f"{aggregation.location} has no state for the committed source offsets: the state was "
        "deleted, the location was changed, or an operator changed the offsets. Restore the state; "
        "or stop the connector and reset its offsets to compute all windows again; or set "
        "icefloe.aggregate.state.missing=empty to continue at these offsets with empty windows",
        code=STATE_MISSING,
    )


def _local_session(setup: TaskSetup) -> Session:
    session = setup.session()
    if session.cluster is not None:
        raise ConfigError(
            f"spark.master is {session.cluster}: aggregates keep Spark's state on the machine of "
            "the worker and need a local master; run the connector on a node with spark.master "
            "local[*]",
            code="aggregate_cluster",
        )
    return session


def _checkpoint(setup: TaskSetup, aggregation: Aggregation, session: Session) -> StateCheckpoint:
    config = setup.config
    local = Path(tempfile.mkdtemp(prefix="aggregate-", dir=session.folder))
    location = f"{aggregation.location.rstrip('/')}/{config.name}"
    folder = StateFolder(config.state_properties, location, config.locations)
    return StateCheckpoint(folder, local, aggregation.definition, str(setup.clock.new_uuid()))
