"""Fences a task: neither a predecessor nor a task of an older layout can announce anything.

Rules of this file:
- First the fence, then the checks of layout and place. Afterwards no other task can change what
  they have confirmed.
"""

from __future__ import annotations

import contextlib

from connect import failpoints
from connect.errors import Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer, client_properties
from connect.protocol.java_sink_members import committed_offsets, refuse_members
from connect.protocol.source_floor import SourceFloor
from worker.task.read_ledger import Offsets
from worker.task.task_context import TaskSetup


class LayoutSuperseded(Fenced):
    """A newer layout is in the config topic: this task must not start."""

    default_code = "layout_superseded"


def check_layout(setup: TaskSetup) -> SourceFloor:
    """Compare the task's layout with the newest one in the config topic.

    Returns:
        The source partitions that the connector has read before.

    Raises:
        LayoutSuperseded: a newer layout exists, or the connector has none.
        RetriableError: the broker does not answer.
    """
    config, assignment, context = setup.config, setup.assignment, setup.context
    if context.stored is None:
        return SourceFloor()
    stored = context.stored(config.name, context.node)
    newest = stored.layout
    if newest is None or newest.number > assignment.layout:
        raise LayoutSuperseded(
            f"the task belongs to layout {assignment.layout}, but the config topic has "
            f"{'no layout' if newest is None else f'layout {newest.number}'}",
            connector=config.name,
            task=assignment.task,
        )
    return stored.source_floor


def confirm_place(setup: TaskSetup, admin: KafkaAdmin, announced: Offsets) -> None:
    """Check that no other task has had the place of this one while its producer was closed.

    The producer is open again, so no other task can announce anything from now on.

    Args:
        setup: the task.
        admin: the cluster.
        announced: the source offsets that the task committed last.

    Raises:
        LayoutSuperseded: a newer layout exists, or the connector has none.
        RetriableError: ``offsets_moved``: another task, or an operator, committed other source
            offsets, so the task starts again from them; ``group_in_use``: another sink is running;
            or the broker does not answer.
    """
    config = setup.config
    check_layout(setup)
    refuse_members(admin, config.member_groups)
    committed = committed_offsets(admin, config, setup.assignment.partitions)
    for tp, at in announced.items():
        if committed[tp] != at:
            raise RetriableError(
                f"the source offset is {committed[tp]}, and this task committed {at} last: another "
                "task or an operator committed it meanwhile; the task starts again from there",
                code="offsets_moved",
                topic=tp.topic,
                partition=tp.partition,
            )


def fenced_producer(setup: TaskSetup) -> TransactionalProducer:
    """Return a producer of the task, after every older producer with its id is fenced."""
    config = setup.config
    properties = client_properties(
        setup.context.node, config.producer_overrides, config.kafka_overrides, prefix="producer."
    )
    producer = TransactionalProducer(properties, setup.transactional_id)
    with contextlib.ExitStack() as failing:
        failing.callback(producer.close)
        failpoints.hit("W13")
        producer.init(topic=config.control_topic)
        failing.pop_all()
    return producer


def task_admin(setup: TaskSetup, clients: contextlib.ExitStack) -> KafkaAdmin:
    """Return the admin client of a task; the exit stack gives it back."""
    config = setup.config
    properties = client_properties(
        setup.context.node, config.consumer_overrides, config.kafka_overrides, prefix="admin."
    )
    return clients.enter_context(setup.context.admins.lend(properties))
