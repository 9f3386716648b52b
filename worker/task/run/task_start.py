"""Starts a task: takes over its transactional id, checks its layout, finds its start offsets.

Rules of this file:
- The order is fixed. First the fence: predecessors can announce nothing more. Then the layout
  check: a newer layout must not exist. Only then the committed source offsets are read.
- With any other order a predecessor or a newer task could move offsets that this task has read.
- Each client is closed by the caller's exit stack, also when a later step fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import structlog

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.protocol.java_sink_members import refuse_members, wait_until_left
from worker.spark.batch_sizing import (
    BATCH_MS_MAX,
    BATCH_READ_MS_MAX,
    ReadSizes,
    ReadSpeed,
)
from worker.spark.source_options import source_options
from worker.task.batches.batch_processor import BatchProcessor
from worker.task.dead_letters.dead_letter_limits import DeadLetterLimits
from worker.task.dead_letters.record_errors import RecordErrors
from worker.task.read_ledger import Offsets, ReadLedger
from worker.task.rounds.announcer import Announcer
from worker.task.rounds.answer_trace import AnswerTrace
from worker.task.rounds.control_listener import ControlListener
from worker.task.rounds.round_answers import RoundAnswers
from worker.task.rounds.task_producer import TaskProducer, idle_ms_of
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.rounds.webhook_posts import WebhookPosts
from worker.task.run.task_run import TaskRun
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_log import SourceLog, positions_text
from worker.task.source.source_reader import SourceReader
from worker.task.source.source_rows import SourceRows
from worker.task.source.task_source import TaskSource
from worker.task.task_context import BatchRunner, TaskSetup
from worker.task.task_fencing import check_layout, confirm_place, fenced_producer, task_admin

log = structlog.get_logger("worker.task")


def open_task_run(setup: TaskSetup, clients: contextlib.ExitStack) -> TaskRun:
    """Start a task from its committed source offsets.

    Args:
        setup: the task.
        clients: closes the clients of the run.

    Raises:
        Fenced: another task has the transactional id, or a newer layout exists.
        DataLost: source records are gone.
        ConfigError, CommitRefused: an operator must act.
        RetriableError: Kafka or the catalog does not answer, or another sink is still running.
    """
    config, assignment, clock = setup.config, setup.assignment, setup.clock
    partition_count = len(assignment.partitions)
    log.info(
        "task starting", layout=assignment.layout, partitions=partition_count, **setup.log_labels
    )
    setup.metrics.start(partition_count, now_ms=clock.monotonic_ms())
    waits_for = setup.context.waits_for
    waits_for(f"the broker to fence earlier producers of transactional.id {setup.transactional_id}")
    admin = task_admin(setup, clients)
    producer = TaskProducer(
        lambda: fenced_producer(setup),
        lambda announced: confirm_place(setup, admin, announced),
        clock,
        idle_ms_of(config.commit_interval_ms, setup.context.producer_idle_ms),
    )
    clients.callback(producer.close)
    producer.open()
    waits_for("its layout in the config topic")
    floor = check_layout(setup)
    wait_until_left(admin, config.member_groups, setup.stop, clock, waits_for)
    waits_for("the committed source offsets and the state of its topics")
    source = SourceLog(setup, admin)
    runner = setup.context.runner(config, assignment, setup.session)
    clients.callback(runner.close)
    announcer = _announcer(setup, producer, runner)
    starts = source.start_offsets(floor, announcer.store_offsets)
    ledger = ReadLedger(
        starts,
        out_of_order_ms=config.vtts_out_of_order_ms,
        idle_lag_ms=config.vtts_idle_lag_ms,
        recreated=source.recreated(floor, starts),
    )
    rounds = _rounds(setup)
    reader = _source_reader(setup, runner)
    control = _control_listener(setup, admin, rounds, clients)
    log.info("task started", positions=positions_text(starts), **setup.log_labels)
    posts = WebhookPosts.of(config, clock, setup.stop, setup.progress.made)
    clients.callback(posts.close)
    run = TaskRun(
        setup,
        source,
        control,
        rounds,
        ledger,
        reader,
        BatchProcessor(
            runner,
            RecordErrors(config, assignment.task, setup.metrics, clock),
            DeadLetterLimits.of(config.errors),
            ledger,
            reader.sizes,
            setup,
        ),
        RoundAnswers(
            announcer,
            source,
            ledger,
            rounds,
            setup.metrics,
            posts,
            clock,
            AnswerTrace(setup),
            commits_files=config.has_tables,
        ),
    )
    run.pass_lost()
    return run


def _announcer(setup: TaskSetup, producer: TaskProducer, runner: BatchRunner) -> Announcer:
    return Announcer(
        producer,
        control_topic=setup.config.control_topic,
        connect_group_id=setup.config.connect_group_id,
        layout=setup.assignment.layout,
        task=setup.assignment.task,
        clock=setup.clock,
        dead_letter=runner.dead_letter,
        topics=tuple(output.topic for output in setup.config.outputs),
    )


def _rounds(setup: TaskSetup) -> TaskRounds:
    config = setup.config
    rounds = TaskRounds(
        rounds_max=config.max_uncommitted_rounds,
        silence_ms_max=config.max_uncommitted_rounds * config.commit_interval_ms
        + config.commit_timeout_ms,
    )
    rounds.wait_since(setup.clock.monotonic_ms())
    return rounds


def _source_reader(setup: TaskSetup, runner: BatchRunner) -> SourceReader:
    config, context = setup.config, setup.context
    is_bounded = setup.assignment.ends is not None
    longest_ms = BATCH_READ_MS_MAX if is_bounded else BATCH_MS_MAX
    # rows for topics wait in memory: their batches are bounded in bytes, however fast they are
    speed = ReadSpeed(min(config.commit_interval_ms, longest_ms) if config.has_tables else 0)
    if runner.takes_blocks:
        kind: Callable[..., TaskSource] = partial(SourceBlocks, in_driver=runner.takes_few_records)
    else:
        kind = SourceRows
    source = kind(
        setup.session(),
        source_options(
            context.node,
            config.consumer_overrides,
            task=setup.transactional_id,
            has_headers="headers" in runner.columns,
        ),
        runner.columns,
        ReadSizes(context.small_records, context.batch_records, speed=speed),
        is_ordered=config.is_row_level,
    )
    return SourceReader(
        source,
        pool=config.name,
        commit_interval_ms=config.commit_interval_ms,
        is_bounded=is_bounded,
    )


def _control_listener(
    setup: TaskSetup, admin: KafkaAdmin, rounds: TaskRounds, clients: contextlib.ExitStack
) -> ControlListener:
    config = setup.config
    kafka = client_properties(setup.context.node, config.kafka_overrides, prefix="consumer.")
    events = setup.context.control.subscribe(
        kafka,
        config.control_topic,
        config.connect_group_id,
        ends=lambda: _control_ends(admin, config.control_topic),
    )
    clients.callback(events.close)
    clients.enter_context(setup.stop.waking(events.wake))
    return ControlListener(
        events,
        rounds,
        setup.clock,
        group_id=config.connect_group_id,
        task=setup.assignment.task,
        refuse_other_sinks=lambda: refuse_members(admin, config.member_groups),
    )


def _control_ends(admin: KafkaAdmin, topic: str) -> Offsets:
    """Return the end of each partition of the control topic.

    Raises:
        RetriableError: ``topic_missing`` when the control topic does not exist.
    """
    partitions = admin.partitions(topic)
    if not partitions:
        raise RetriableError(
            f"control topic {topic} does not exist", code="topic_missing", topic=topic
        )
    return admin.ends(partitions)
